"""The Spec: what an `@overlap` function computes, as named values and nodes; and its binding to sizes and ranks.

Shapes are global and symbolic (sympy) in a `Spec`, and plain integers in a `BoundSpec`. Neither says anything about how
the result is computed.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sympy

from tilelink.errors import (
    LARGEST_SIZE,
    BadShift,
    IllegalSize,
    MissingSize,
    NotDivisible,
    UnknownDtype,
    UnknownSize,
    did_you_mean,
)
from tilelink.ir.dtype import DTYPE_BYTES as DTYPE_BYTES
from tilelink.ir.dtype import DTYPES, FLOATS, dtype_name
from tilelink.ir.location import Location
from tilelink.ir.ops.attention import Attend as Attend
from tilelink.ir.ops.attention import Attention as Attention
from tilelink.ir.ops.collectives import AllGather as AllGather
from tilelink.ir.ops.collectives import AllReduce as AllReduce
from tilelink.ir.ops.collectives import ReduceScatter as ReduceScatter
from tilelink.ir.ops.collectives import ReduceTokens as ReduceTokens
from tilelink.ir.ops.collectives import SendRecv as SendRecv
from tilelink.ir.ops.elementwise import Elementwise as Elementwise
from tilelink.ir.ops.heads import Flatten as Flatten
from tilelink.ir.ops.heads import Unflatten as Unflatten
from tilelink.ir.ops.matmul import Matmul as Matmul
from tilelink.ir.ops.op import with_sizes
from tilelink.ir.ops.routing import Combine as Combine
from tilelink.ir.ops.routing import Dispatch as Dispatch
from tilelink.ir.ops.routing import GroupedMatmul as GroupedMatmul
from tilelink.ir.ops.routing import Return as Return
from tilelink.ir.ops.routing import Route as Route
from tilelink.ir.ops.routing import Spread as Spread
from tilelink.ir.ops.slices import Slice as Slice
from tilelink.ir.ops.states import DecodeAttention as DecodeAttention
from tilelink.ir.ops.states import LogWeights as LogWeights
from tilelink.ir.ops.states import Merged as Merged
from tilelink.ir.ops.states import MergeStates as MergeStates
from tilelink.ir.ops.user_fold import UserFold as UserFold
from tilelink.ir.ops.user_op import UserOp
from tilelink.ir.placement import ByExpert, Partial, Replicate, Shard, share
from tilelink.ir.value import BoundValue as BoundValue
from tilelink.ir.value import Value as Value

if TYPE_CHECKING:
    import torch


Operation = (
    Matmul
    | Elementwise
    | Slice
    | AllGather
    | ReduceScatter
    | AllReduce
    | SendRecv
    | UserOp
    | UserFold
    | Route
    | Dispatch
    | GroupedMatmul
    | Combine
    | Return
    | Spread
    | Attention
    | Attend
    | DecodeAttention
    | MergeStates
    | LogWeights
    | Flatten
    | Unflatten
    | Merged
)


@dataclass(frozen=True, slots=True)
class Node:
    """`output = operation(*inputs)`, written by the user at `location`."""

    operation: Operation
    inputs: tuple[str, ...]
    output: Value


@dataclass(frozen=True, slots=True)
class Spec:
    """The traced function: `inputs` in signature order, `nodes` in program order, `outputs` by value name."""

    name: str
    inputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    source: tuple[str, ...]  # the user's lines, for the header of emitted files
    location: Location

    def symbols(self) -> tuple[str, ...]:
        """Names of all sizes the spec needs, in order of appearance in the signature, then in the body."""
        found: dict[str, None] = {}
        expressions = [extent for value in self.inputs for extent in value.shape]
        expressions += [expression for node in self.nodes for expression in node.operation.expressions()]
        for expression in expressions:
            found.update(dict.fromkeys(sorted(str(s) for s in expression.free_symbols)))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class BoundNode:
    operation: Operation
    inputs: tuple[str, ...]
    output: BoundValue
    line: str  # "file.py:12" of the user


@dataclass(frozen=True, slots=True)
class BoundSpec:
    """A spec for fixed sizes, dtype and number of ranks."""

    name: str
    num_ranks: int
    sizes: tuple[tuple[str, int], ...]
    inputs: tuple[BoundValue, ...]
    nodes: tuple[BoundNode, ...]
    outputs: tuple[str, ...]
    source: tuple[str, ...]

    def value(self, name: str) -> BoundValue:
        for value in self.inputs:
            if value.name == name:
                return value
        return next(node.output for node in self.nodes if node.output.name == name)


def bind(spec: Spec, sizes: Mapping[str, int], num_ranks: int, given: str | torch.dtype) -> BoundSpec:
    """Put sizes, ranks and the dtype that is `given` into `spec`.

    Raises MissingSize, UnknownSize, IllegalSize, NotDivisible, UnknownDtype, BadShift, BadScalar, SliceOutOfRange, BadRouting,
    BadAttention.
    """
    known, dtype = spec.symbols(), dtype_name(given)
    num_ranks = _plain(num_ranks)
    if isinstance(num_ranks, bool) or not isinstance(num_ranks, int) or num_ranks < 1:
        raise IllegalSize(spec.location, name="num_ranks", value=num_ranks, reason="it is not a number of ranks")
    sizes = {name: _plain(size) for name, size in sizes.items()}
    _check_sizes(spec, sizes, known)
    values = [*spec.inputs, *(node.output for node in spec.nodes)]
    if dtype not in FLOATS:
        raise UnknownDtype(spec.location, dtype=given, hint=did_you_mean(given, FLOATS), legal=", ".join(FLOATS))
    for value in values:
        if value.dtype and value.dtype not in DTYPES:
            raise UnknownDtype(
                value.location, dtype=value.dtype, hint=did_you_mean(value.dtype, DTYPES), legal=", ".join(DTYPES)
            )
    for node in spec.nodes:
        if isinstance(node.operation, SendRecv) and node.operation.by % num_ranks == 0:
            reason = f"on {num_ranks} ranks every rank would send to itself"
            legal = f"1 to {num_ranks - 1}" if num_ranks > 1 else "nothing on one rank"
            raise BadShift(node.output.location, by=node.operation.by, reason=reason, legal=legal)
    bound = {value.name: _bind_value(value, sizes, num_ranks, dtype) for value in values}
    return BoundSpec(
        name=spec.name,
        num_ranks=num_ranks,
        sizes=tuple((name, sizes[name]) for name in known),
        inputs=tuple(bound[value.name] for value in spec.inputs),
        nodes=tuple(_bind_node(node, bound, sizes) for node in spec.nodes),
        outputs=spec.outputs,
        source=spec.source,
    )


def _bind_node(node: Node, bound: Mapping[str, BoundValue], sizes: Mapping[str, int]) -> BoundNode:
    operation = node.operation.bound([bound[name] for name in node.inputs], sizes, node.output.location)
    return BoundNode(operation, node.inputs, bound[node.output.name], _short(node.output.location))


def _short(location: Location) -> str:
    """File name without its folders: emitted files must not name the machine they were made on."""
    return f"{location.file.replace(chr(92), '/').rsplit('/', 1)[-1]}:{location.line}"


def _plain(size: int) -> int:
    """An integer of numpy, torch or sympy as one of Python; anything else as it is, to be refused."""
    try:
        return size if isinstance(size, bool) else operator.index(size)
    except TypeError:
        return size


def _check_sizes(spec: Spec, sizes: Mapping[str, int], known: tuple[str, ...]) -> None:
    needed = ", ".join(known)
    for name, size in sizes.items():
        if name not in known:
            raise UnknownSize(
                spec.location, function=spec.name, name=name, hint=did_you_mean(name, known), needed=needed
            )
        if isinstance(size, bool) or not isinstance(size, int):
            raise IllegalSize(spec.location, name=name, value=size, reason="it is not an integer")
        if size < 1:
            raise IllegalSize(
                spec.location, name=name, value=size, reason="it is zero" if size == 0 else "it is negative"
            )
    missing = [name for name in known if name not in sizes]
    if missing:
        raise MissingSize(spec.location, function=spec.name, needed=needed, missing=", ".join(missing))


def _extent(extent: sympy.Expr, sizes: Mapping[str, int], location: Location) -> int:
    """`extent` with its sizes; an expression such as M/2 may come out as no size, or too large. Raises IllegalSize."""
    number = with_sizes(extent, sizes)
    if not number.is_integer:
        raise IllegalSize(location, name=extent, value=number, reason="it is not an integer")
    if number < 1:
        raise IllegalSize(location, name=extent, value=number, reason="it is zero" if number == 0 else "it is negative")
    if number > LARGEST_SIZE:
        raise IllegalSize(location, name=extent, value=number, reason="kernels count rows and columns in 32 bits")
    return int(number)


def _bind_value(value: Value, sizes: Mapping[str, int], num_ranks: int, dtype: str) -> BoundValue:
    shape = tuple(_extent(extent, sizes, value.location) for extent in value.shape)
    local = list(shape)
    match value.placement:
        case Shard(dim):
            size = shape[dim]
            if size % num_ranks and not _of_experts(value):
                below = size // num_ranks * num_ranks
                legal = [str(n) for n in (below, below + num_ranks) if n > 0]
                raise NotDivisible(
                    value.location,
                    tensor=value.name,
                    placement=value.placement,
                    dim=value.shape[dim],
                    size=size,
                    num_ranks=num_ranks,
                    legal=", ".join(legal),
                )
            local[dim] = len(share(size, num_ranks, 0))
        case Replicate() | Partial() | ByExpert():
            pass
    return BoundValue(value.name, shape, tuple(local), value.placement, value.dtype or dtype)


def _of_experts(value: Value) -> bool:
    """Whether it is matrices of experts, some on each rank: the last ranks may have fewer."""
    return len(value.shape) == 3 and value.placement == Shard(0)
