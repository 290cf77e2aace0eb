"""Collectives: what moves between ranks, or meets there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tilelink.errors import BadDim, BadShape, BadShift, NothingToGather, NothingToReduce, NothingToSend
from tilelink.ir.location import Location
from tilelink.ir.ops.op import Inferred, Op, text
from tilelink.ir.placement import Partial, Replicate, Shard
from tilelink.ir.value import Value


@dataclass(frozen=True, slots=True)
class AllGather(Op):
    """`Shard(dim) -> Replicate`: every rank receives all parts along `dim`."""

    word: ClassVar[str] = "all_gather"
    suffix: ClassVar[str] = "_full"
    most_dims: ClassVar[int] = 4
    dim: int

    def infer(self, operands: Sequence[Value], location: Location) -> Inferred:
        (value,), dim = operands, self.dim
        if len(value.shape) == 3:
            what = f"all_gather operand {value.name}"
            raise BadShape(location, what=what, rank=3, shape=text(value.shape), legal="1, 2 or 4")
        _check_dim("all_gather", value, dim, location)
        if value.placement != Shard(dim):
            legal = f"dim={value.placement.dim}" if isinstance(value.placement, Shard) else "nothing, it is not sharded"
            raise NothingToGather(location, dim=dim, tensor=value.name, placement=value.placement, legal=legal)
        return value.shape, Replicate()


@dataclass(frozen=True, slots=True)
class ReduceScatter(Op):
    """`Partial -> Shard(dim)`: the summands of each part meet on the rank that owns it."""

    word: ClassVar[str] = "reduce_scatter"
    suffix: ClassVar[str] = "_sum"
    most_dims: ClassVar[int] = 3  # of states
    dim: int

    def infer(self, operands: Sequence[Value], location: Location) -> Inferred:
        (value,) = operands
        _check_dim("reduce_scatter", value, self.dim, location)
        _check_summands(self.word, value, location)
        return value.shape, Shard(self.dim)


@dataclass(frozen=True, slots=True)
class ReduceTokens(ReduceScatter):
    """The same of sums of rows, of which each rank has those of its own experts: the rows may travel instead, one by one."""


@dataclass(frozen=True, slots=True)
class AllReduce(Op):
    """`Partial -> Replicate`: every rank receives the sum."""

    word: ClassVar[str] = "all_reduce"
    suffix: ClassVar[str] = "_sum"
    most_dims: ClassVar[int] = 3  # of states

    def infer(self, operands: Sequence[Value], location: Location) -> Inferred:
        (value,) = operands
        _check_summands(self.word, value, location)
        return value.shape, Replicate()


@dataclass(frozen=True, slots=True)
class SendRecv(Op):
    """`Shard(dim) -> Shard(dim)`: every rank receives what the rank `by` before it holds."""

    word: ClassVar[str] = "send_recv"
    suffix: ClassVar[str] = "_received"
    by: int

    def infer(self, operands: Sequence[Value], location: Location) -> Inferred:
        (value,), by = operands, self.by
        if not isinstance(by, int) or isinstance(by, bool) or by == 0:
            reason = "every rank would send to itself" if by == 0 else "it is not an integer"
            raise BadShift(location, by=by, reason=reason, legal="an integer other than 0, such as by=1")
        match value.placement:
            case Shard():
                return value.shape, value.placement
            case Replicate():
                reason, legal = "every rank holds the same already", "use it as it is"
            case Partial():
                reason, legal = "summands that move from rank to rank add up to the same", "resolve it first"
        raise NothingToSend(location, by=by, tensor=value.name, placement=value.placement, reason=reason, legal=legal)


def _check_summands(collective: str, value: Value, location: Location) -> None:
    name, placement = value.name, value.placement
    if not isinstance(placement, Partial):
        hint = "use it as it is"
        if isinstance(placement, Shard):
            hint = f"to give every rank the whole of it use all_gather(…, dim={placement.dim})"
        legal = f"{name} is not: {hint}"
        raise NothingToReduce(location, collective=collective, tensor=name, placement=placement, legal=legal)


def _check_dim(collective: str, value: Value, dim: int, location: Location) -> None:
    if not isinstance(dim, int) or not 0 <= dim < len(value.shape):
        legal = ", ".join(str(d) for d in range(len(value.shape)))
        raise BadDim(location, collective=collective, dim=dim, tensor=value.name, shape=text(value.shape), legal=legal)
