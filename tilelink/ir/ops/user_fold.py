"""A user's own fold, as `tilelink.ir.user_fold` makes one of a declaration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilelink.errors import BadUserOp
from tilelink.ir.location import Location
from tilelink.ir.ops.op import Inferred, Op
from tilelink.ir.ops.user_op import UserOp, cut_axis, extents_of
from tilelink.ir.placement import Partial, Replicate, Shard
from tilelink.ir.value import Value


@dataclass(frozen=True, slots=True)
class FoldResult:
    """What makes result `name` of a whole state: a function with `parameters`, or the only part of the state itself."""

    name: str
    function: str
    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UserFold(Op):
    """Result `number` of a registered fold over the axis `over`, fp32, of operands on whole tensors.

    `block`: what makes the state of a block of elements, as an op that writes the axis of the result, and `over`; its text has
    all functions. `parts` of a state: their names, and the numbers of a state that has seen nothing. `merge`: the function that
    makes one state of two, of which the second one has seen what comes behind.
    """

    block: UserOp
    over: str
    parts: tuple[tuple[str, float], ...]
    merge: str
    finishes: tuple[FoldResult, ...]
    number: int = 0

    @property
    def word(self) -> str:
        return self.block.name

    @property
    def row(self) -> str:
        """The axis of the result."""
        return self.block.writes[0]

    @property
    def finish(self) -> FoldResult:
        return self.finishes[self.number]

    def dtype(self, operands: Sequence[Value], location: Location) -> str:
        return "fp32"

    def infer(self, operands: Sequence[Value], location: Location) -> Inferred:
        """Partial if the parts of `over` lie on the ranks: each has a state then."""
        extents = extents_of(self.block, operands, location)
        for value, (tensor, _) in zip(operands, self.block.reads, strict=True):
            if value.placement == Partial():
                reason = f"{tensor!r} got {value.name}, which is Partial"
                legal = f"Resolve {value.name} first, with reduce_scatter or all_reduce."
                raise BadUserOp(location, name=self.word, reason=reason, legal=legal)
        cut = cut_axis(self.block, operands, location)
        return (extents[self.row],), Partial() if cut == self.over else Shard(0) if cut else Replicate()
