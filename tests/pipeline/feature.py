"""What a row of the table of features says of a form of a mechanism."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import topologies
from tilelink.declaration import Overlap
from tilelink.ir.schedule import Schedule

Sizes = Mapping[str, int]
Pins = Mapping[str, str]

COPIES, SMS, STORES = {"mover": "CopyEngine()"}, {"mover": "CommSms(2)"}, {"mover": "Fused()", "transfer": "push"}
PARTS_BY_COPIES = {"y_parts.mover": "CopyEngine()"}
SMALL_TILE = {"y.compute": "triton", "y.tile": "16x32x16/4w2s"}
LAYER = {"M": 4096, "K": 14336, "N": 4096}
FULL = {"M": 8192, "K": 11008, "N": 4096}


@dataclass(frozen=True, slots=True)
class Real:
    """Sizes of a layer, and pins beside those of the row, for which files are compiled on both vendors' GPUs."""

    sizes: Sizes
    pins: Pins


@dataclass(frozen=True, slots=True)
class Unpinned:
    """What is planned where the mechanism is not pinned, and, if something else is pinned `instead`, how much slower that is."""

    sizes: Sizes
    choices: Pins = field(default_factory=dict)
    ranks: int = 4
    pins: Pins = field(default_factory=dict)  # of other things
    instead: Pins = field(default_factory=dict)
    steps: tuple[str, ...] = ()  # expressions that match one behind the other in the printed schedule
    ratio: float = 1.0  # the prediction, over that of what is pinned instead, is below this
    operator: Overlap | None = None  # if it is another one than that of the row
    topology: str = "h200-nvswitch"
    quick: bool = False


@dataclass(frozen=True, slots=True)
class Feature:
    """A form of a mechanism: the pins that ask for it, at sizes that emulated ranks compute in a second."""

    operator: Overlap
    sizes: Sizes
    pins: Pins
    scaled: Sizes = field(default_factory=dict)  # sizes of one rank, which grow with their number
    ranks: tuple[int, ...] = (4,)  # the first is that of all checks but emulation
    topology: str = "laptop-switch"
    dtypes: tuple[str, ...] = ("bf16",)
    calls: int = 3
    steps: tuple[str, ...] = ()  # expressions that match one behind the other in the printed schedule
    never: tuple[str, ...] = ()  # expressions that do not match there
    source: tuple[str, ...] = ()  # expressions that match in the file for stock Triton
    stock_only: tuple[str, ...] = ()  # texts of that file which files for other targets do not have
    ptx: tuple[str, ...] = ()  # texts in the PTX of exactly one kernel for sm_90
    real: Real | None = None
    unpinned: tuple[Unpinned, ...] = ()
    quick: bool = False  # whether the quick suite has the row

    def but(self, pins: Pins | None = None, more: tuple[str, ...] = (), **fields: Any) -> Feature:
        """The row with other fields; pins and steps come beside its own."""
        return replace(self, pins={**self.pins, **(pins or {})}, steps=(*self.steps, *more), **fields)

    def plan(self, ranks: int = 0, dtype: str = "", pins: Pins | None = None) -> Schedule:
        """The schedule on the first number of ranks, of the first dtype, with more pins, unless others are given."""
        ranks = ranks or self.ranks[0]
        sizes = {**self.sizes, **{name: size * ranks for name, size in self.scaled.items()}}
        machine = topologies.load(self.topology, ranks)
        return self.operator.plan_for(machine, sizes, dtype or self.dtypes[0], {**self.pins, **(pins or {})})
