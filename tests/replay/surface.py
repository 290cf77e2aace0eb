"""The surface of tilelink that the replay stands on, in one place: old commits are replayed with this file as well.

Where a later commit renames something, the new name is tried first and the old one stays behind it. What a commit has
under neither name is an error of the case, and the replay shows it as a difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast

ROOT = Path(__file__).resolve().parents[2]  # of the commit that is replayed: the replay is copied into its tree


class Declared(Protocol):
    """What `@tilelink.overlap` gives."""

    def plan_for(self, topology: Any, sizes: Mapping[str, int], dtype: str, pin: Mapping[str, object]) -> Any: ...


def operator(reference: str) -> Declared:
    """`bench NAME`, `torch NAME` (tests/pipeline/torch_specs.py), `spec NAME` (specs.py), or `FILE.py:NAME` of examples/."""
    folder, _, name = reference.partition(" ")
    match folder:
        case "bench":
            from tilelink.bench import operators

            return cast("Declared", getattr(operators, name))
        case "torch":
            from tests.pipeline.torch_specs import WRITTEN

            return cast("Declared", WRITTEN[name].overlap())
        case "spec":
            from tests.replay import specs

            return cast("Declared", getattr(specs, name))
    from tilelink.spec_file import load_overlap

    return cast("Declared", load_overlap(str(ROOT / "examples" / reference)))


def plan(
    reference: str, topology: str, num_ranks: int, sizes: Mapping[str, int], dtype: str, pins: Mapping[str, str]
) -> Any:
    """The schedule. Raises what the planner raises."""
    import topologies

    return operator(reference).plan_for(topologies.load(topology, num_ranks), sizes, dtype, pins)


def emit(schedule: Any, target: str) -> str:
    import lowering

    return str(lowering.emit(schedule, target))


def choices(schedule: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in schedule.choices}


def predicted_us(schedule: Any) -> float:
    return float(schedule.predicted_us)


def arch(schedule: Any) -> str:
    """What kernels are compiled for: "sm_90", "gfx942"."""
    return str(schedule.machine.arch)


def load(source: str, name: str) -> ModuleType:
    """An emitted file as a module."""
    from tilelink.runtime.load import load_source

    return load_source(source, name)


def operator_class(module: ModuleType) -> Any:
    """The host class of an emitted module."""
    from tilelink.runtime.load import operator_class as found

    return found(module)


def written_ir(
    kernel: object, grid: tuple[int, ...], arguments: tuple[object, ...], options: dict[str, object], arch: str
) -> str:
    """Triton's or Gluon's IR of one launch before any pass. Raises what Triton raises."""
    from tilelink.runtime.aot import RecordedLaunch
    from tilelink.runtime.aot import written_ir as found

    return found(RecordedLaunch(kernel, grid, arguments, options), arch)
