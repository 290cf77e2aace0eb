"""Steps of programs on SMs, in Gluon: where Triton chooses a layout, Gluon has to be told one.

What a program does before and behind its tiles is done with numbers only. Tiles have layouts in slices of a product.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from lowering.host_doc import POOL_PLACES
from lowering.source import Chain, Source
from lowering.steps.descriptors import Described, shared_layout
from lowering.steps.errors import NotPrinted
from lowering.steps.frame import Frame
from lowering.steps.indices import Scope
from lowering.steps.programs import Programs
from lowering.steps.regions import Place
from tilelink.ir.enums import Protocol
from tilelink.schedule.index import Number
from tilelink.schedule.memory import Region
from tilelink.schedule.roles import Phase
from tilelink.schedule.steps import Compute, Step


class Own(NamedTuple):
    """What groups share, and what they know of a tile, as the text calls it beside the names of a schedule."""

    loaded: str = "loaded"
    used: str = "used"
    turns: str = "turns"
    leaving: str = "leaving"
    took: str = "took"
    begun: str = "begun"
    clocks: str = "clocks"
    slice_number: str = "slice_number"

    @classmethod
    def beside(cls, taken: frozenset[str]) -> Own:
        return cls(*(f"{name}_in_turns" if name in taken else name for name in cls._fields))

    @property
    def ring(self) -> tuple[str, str]:
        """Barriers of the places of the ring buffer."""
        return self.loaded, self.used

    @property
    def pace(self) -> tuple[str, ...]:
        """Arguments of a function whose slices leave in pieces."""
        return self.leaving, self.begun, self.slice_number, self.clocks, "GROUP"


class GluonPrograms(Programs):
    """`there`: by buffer, the descriptors through which a program stores at all ranks; they are one tuple, parameter
    `{buffer}_there` of the functions that the kernel calls."""

    language = "gluon"

    def __init__(self, frame: Frame, out: Source, scope: Scope) -> None:
        super().__init__(frame, out, scope)
        self.own_names = Own.beside(frame.constants.taken)
        self.there: dict[str, dict[str, Described]] = {}

    def parameters(self, needs: dict[str, str]) -> list[str]:
        return self.frame.order(super().parameters(needs))

    def take(self, inner: Programs) -> None:
        super().take(inner)
        self.there |= inner.there if isinstance(inner, GluonPrograms) else {}

    # the language

    def range(self, count: str, body: tuple[Step, ...], unrolled: bool) -> str:
        return f"tl.static_range({count})" if unrolled else f"range({count})"

    def may_flatten(self, phase: Phase) -> bool:
        return False

    def layout(self, buffer: str, cols: int) -> str:
        return shared_layout(self.buffers[buffer], cols)

    def _place(self, value: str, region: Region, step: Step) -> Place:
        """Of one element: a tile would need a layout."""
        buffer = self.buffers[region.buffer]
        if any(extent != 1 for extent in region.extent) or buffer.protocol is not Protocol.SIMPLE:
            self.not_printed("a tile beside the product in ping-pong", step, "a launch of its own for this phase")
        pointer = Chain((self.regions.base(region), *self.spell.flat(region.start, buffer.name, 0)))
        return Place((), pointer, Chain(()))

    def compute(self, step: Compute) -> None:
        if step.op != "own_place":
            self.not_printed(
                "a computation beside the product in ping-pong", step, "a launch of its own for this phase"
            )
        super().compute(step)

    # descriptors of all ranks

    def at_ranks(self, buffer: str, block: tuple[str, ...], cols: int, part: tuple[Number, ...]) -> str:
        """The parameter with descriptors of a part of `buffer` at every rank, and in every place of a pool."""
        places = range(POOL_PLACES) if self.buffers[buffer].places else (None,)
        layout = shared_layout(self.buffers[buffer], cols)
        found = {
            f"{buffer}_at_{peer}{'' if place is None else f'_in_{place}'}_desc": Described(
                buffer, block, layout, peer, place, part
            )
            for place, peer in product(places, range(self.schedule.num_ranks))
        }
        if self.there.setdefault(buffer, found) != found:
            name = self.scope.role
            what = f"pieces of several shapes or parts of {buffer}"
            raise NotPrinted(what=what, role=name, step=buffer, legal="one shape and part, Access.POINTER")
        self.needs[f"{buffer}_there"] = ""
        return f"{buffer}_there"
