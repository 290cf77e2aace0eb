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
    BadScalar,
    BadShift,
    IllegalSize,
    MissingSize,
    NotDivisible,
    SliceOutOfRange,
    UnknownDtype,
    UnknownSize,
    did_you_mean,
)
from tilelink.ir.dtype import DTYPE_BYTES as DTYPE_BYTES
from tilelink.ir.dtype import DTYPES, dtype_name
from tilelink.ir.location import Location
from tilelink.ir.placement import Partial, Placement, Replicate, Shard
from tilelink.ir.user_op import UserOp

if TYPE_CHECKING:
    import torch

LARGEST_FP32 = 3.4028234663852886e38


@dataclass(frozen=True, slots=True)
class Matmul:
    """`[M, K] @ [K, N] -> [M, N]`, accumulated in fp32. With `transposed` the right operand lies as [N, K], row after row along
    the contracted dimension, as the weights of `torch.nn.Linear` do."""

    transposed: bool = False


@dataclass(frozen=True, slots=True)
class Elementwise:
    """One of `tilelink.ir.functions`, computed in fp32; dimensions of size 1, and those that are missing, broadcast.

    A constant may stand in the place of the `left` or the `right` operand: in a Spec an expression of sizes, in a BoundSpec
    a number.
    """

    function: str
    left: float | sympy.Expr | None = None
    right: float | sympy.Expr | None = None


@dataclass(frozen=True, slots=True)
class Slice:
    """The elements from `start` up to `stop` along `dim` of its operand, which is not sharded there: nothing moves between
    ranks. The bounds are expressions of sizes in a Spec, integers in a BoundSpec."""

    dim: int
    start: int | sympy.Expr
    stop: int | sympy.Expr


@dataclass(frozen=True, slots=True)
class AllGather:
    """`Shard(dim) -> Replicate`: every rank receives all parts along `dim`."""

    dim: int


@dataclass(frozen=True, slots=True)
class ReduceScatter:
    """`Partial -> Shard(dim)`: the summands of each part meet on the rank that owns it."""

    dim: int


@dataclass(frozen=True, slots=True)
class AllReduce:
    """`Partial -> Replicate`: every rank receives the sum."""


@dataclass(frozen=True, slots=True)
class SendRecv:
    """`Shard(dim) -> Shard(dim)`: every rank receives what the rank `by` before it holds."""

    by: int


Operation = Matmul | Elementwise | Slice | AllGather | ReduceScatter | AllReduce | SendRecv | UserOp


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the spec. `shape` is global; `dtype` is empty where the dtype given to `plan` applies."""

    name: str
    shape: tuple[sympy.Expr, ...]
    placement: Placement
    dtype: str
    location: Location


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
        expressions += [expression for node in self.nodes for expression in _expressions(node.operation)]
        for expression in expressions:
            found.update(dict.fromkeys(sorted(str(s) for s in expression.free_symbols)))
        return tuple(found)


def _expressions(operation: Operation) -> tuple[sympy.Expr, ...]:
    """What `bind` puts sizes into, apart from shapes."""
    match operation:
        case Elementwise(left=left, right=right):
            found = (left, right)
        case Slice(start=start, stop=stop):
            found = (start, stop)
        case _:
            return ()
    return tuple(one for one in found if isinstance(one, sympy.Expr))


@dataclass(frozen=True, slots=True)
class BoundValue:
    """A tensor with its sizes: `shape` global, `local` what one rank holds (a Partial summand has the global shape)."""

    name: str
    shape: tuple[int, ...]
    local: tuple[int, ...]
    placement: Placement
    dtype: str

    @property
    def num_bytes(self) -> int:
        """Bytes of one rank's part."""
        size = DTYPE_BYTES[self.dtype]
        for extent in self.local:
            size *= extent
        return size


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

    Raises MissingSize, UnknownSize, IllegalSize, NotDivisible, UnknownDtype, BadShift, BadScalar, SliceOutOfRange.
    """
    known, dtype = spec.symbols(), dtype_name(given)
    num_ranks = _plain(num_ranks)
    if isinstance(num_ranks, bool) or not isinstance(num_ranks, int) or num_ranks < 1:
        raise IllegalSize(spec.location, name="num_ranks", value=num_ranks, reason="it is not a number of ranks")
    sizes = {name: _plain(size) for name, size in sizes.items()}
    _check_sizes(spec, sizes, known)
    values = [*spec.inputs, *(node.output for node in spec.nodes)]
    if dtype not in DTYPES:
        raise UnknownDtype(spec.location, dtype=given, hint=did_you_mean(given, DTYPES), legal=", ".join(DTYPES))
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
        nodes=tuple(
            BoundNode(
                _bind_operation(node, bound, sizes), node.inputs, bound[node.output.name], _short(node.output.location)
            )
            for node in spec.nodes
        ),
        outputs=spec.outputs,
        source=spec.source,
    )


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
    number = _with_sizes(extent, sizes)
    if not number.is_integer:
        raise IllegalSize(location, name=extent, value=number, reason="it is not an integer")
    if number < 1:
        raise IllegalSize(location, name=extent, value=number, reason="it is zero" if number == 0 else "it is negative")
    if number > LARGEST_SIZE:
        raise IllegalSize(location, name=extent, value=number, reason="kernels count rows and columns in 32 bits")
    return int(number)


def _with_sizes(expression: sympy.Expr, sizes: Mapping[str, int]) -> sympy.Expr:
    return expression.subs({symbol: sizes[str(symbol)] for symbol in expression.free_symbols})


def _bind_operation(node: Node, bound: Mapping[str, BoundValue], sizes: Mapping[str, int]) -> Operation:
    """The operation with numbers for its expressions. Raises BadScalar, SliceOutOfRange."""
    location = node.output.location
    match node.operation:
        case Elementwise(function, left, right):
            sides = (("left", left), ("right", right))
            return Elementwise(function, *(_bind_constant(function, *side, sizes, location) for side in sides))
        case Slice(dim, start, stop):
            source = bound[node.inputs[0]]
            first, end = (_with_sizes(sympy.sympify(bound), sizes) for bound in (start, stop))
            if not first.is_integer or first < 0 or end > source.shape[dim]:
                facts = {"start": first, "stop": end, "extent": source.shape[dim]}
                raise SliceOutOfRange(location, tensor=source.name, dim=dim, **facts)
            return Slice(dim, int(first), int(end))
    return node.operation


def _bind_constant(
    function: str, side: str, constant: object, sizes: Mapping[str, int], location: Location
) -> float | None:
    if not isinstance(constant, sympy.Expr):
        assert constant is None or isinstance(constant, float), "numbers have become floats where they were written"
        return constant
    number = _with_sizes(constant, sizes)
    reason = "it is not a finite real number" if not number.is_real else why_no_constant(function, side, float(number))
    if reason:
        raise BadScalar(location, function=function, scalar=constant, reason=reason)
    return float(number)


def why_no_constant(function: str, side: str, number: float) -> str:
    """Why `number` cannot be the operand of `function` on this `side`, or nothing."""
    if not abs(number) <= LARGEST_FP32:  # nor is nan
        return "it is not a finite number of fp32, in which elementwise functions are computed"
    if function == "div" and side == "right" and number == 0:
        return "every element would be infinite or not a number"
    return ""


def _bind_value(value: Value, sizes: Mapping[str, int], num_ranks: int, dtype: str) -> BoundValue:
    shape = tuple(_extent(extent, sizes, value.location) for extent in value.shape)
    local = list(shape)
    match value.placement:
        case Shard(dim):
            size = shape[dim]
            if size % num_ranks:
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
            local[dim] = size // num_ranks
        case Replicate() | Partial():
            pass
    return BoundValue(value.name, shape, tuple(local), value.placement, value.dtype or dtype)
