"""The functions that a spec is written with. Each takes Tensors of one spec and returns a new one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal, overload

import sympy

from tilelink.errors import BadAttention, BadRouting, BadShape, BadUserOp, NotATensor
from tilelink.ir.location import here
from tilelink.ir.routing import Routing
from tilelink.ir.spec import (
    AllGather,
    AllReduce,
    Attention,
    Combine,
    DecodeAttention,
    Dispatch,
    Elementwise,
    Flatten,
    GroupedMatmul,
    LogWeights,
    Matmul,
    MergeStates,
    ReduceScatter,
    Route,
    SendRecv,
    Unflatten,
)
from tilelink.ir.tensor import Scalar, Tensor, Transposed, record
from tilelink.ir.user_op import Axes, Claims, make_user_op

__all__ = [  # of `tilelink`, too
    "add",
    "all_gather",
    "all_reduce",
    "attention",
    "combine",
    "dispatch",
    "div",
    "flatten",
    "gelu",
    "grouped_matmul",
    "matmul",
    "merge_states",
    "mul",
    "neg",
    "op",
    "reduce_scatter",
    "relu",
    "route",
    "send_recv",
    "silu",
    "sub",
    "unflatten",
]


def matmul(a: Tensor, b: Tensor | Transposed) -> Tensor:
    """`[M, K] @ [K, N] -> [M, N]`, accumulated in fp32. Contraction over a sharded dimension yields Partial.

    `matmul(x, w.T)` takes weights that lie as [N, K], as those of `torch.nn.Linear` do.
    Raises BadShape, MatmulMismatch, MatmulPlacement, MixedDtypes, NotATensor, TransposedOperand.
    """
    if isinstance(b, Transposed):
        return record(Matmul(transposed=True), (a, b.tensor), "matmul")
    return record(Matmul(), (a, b), "matmul")


def all_gather(x: Tensor, dim: int) -> Tensor:
    """`Shard(dim) -> Replicate`; `dim` may count from the last one, -1. Raises BadDim, NothingToGather."""
    return record(AllGather(_dim(x, dim)), (x,), "all_gather")


def reduce_scatter(x: Tensor, dim: int) -> Tensor:
    """`Partial -> Shard(dim)`; `dim` may count from the last one, -1. Raises BadDim, NothingToReduce."""
    return record(ReduceScatter(_dim(x, dim)), (x,), "reduce_scatter")


def all_reduce(x: Tensor) -> Tensor:
    """`Partial -> Replicate`. Raises NothingToReduce."""
    return record(AllReduce(), (x,), "all_reduce")


def send_recv(x: Tensor, by: int = 1) -> Tensor:
    """Each rank gets what the rank `by` before it holds: `Shard(dim) -> Shard(dim)`. Raises BadShift, NothingToSend."""
    return record(SendRecv(by), (x,), "send_recv")


@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = ...,
    window: int = ...,
    soft_cap: float = ...,
    softmax_scale: Scalar = ...,
    zigzag: bool = ...,
    lengths: Tensor | None = ...,
    pages: Tensor | None = ...,
    return_lse: Literal[False] = ...,
) -> Tensor: ...
@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = ...,
    window: int = ...,
    soft_cap: float = ...,
    softmax_scale: Scalar = ...,
    zigzag: bool = ...,
    lengths: Tensor | None = ...,
    pages: Tensor | None = ...,
    return_lse: Literal[True],
    base2: bool = ...,
) -> tuple[Tensor, Tensor]: ...


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    window: int = 0,
    soft_cap: float = 0.0,
    softmax_scale: Scalar = 0.0,
    zigzag: bool = False,
    lengths: Tensor | None = None,
    pages: Tensor | None = None,
    return_lse: bool = False,
    base2: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Queries [B, S, Q, D] over keys and values [B, T, G, D], Q a multiple of G: [B, S, Q, D], with scores and sums in fp32.

    Queries [B, Q, D] are one of each sequence, the one behind its last token. Tokens of keys and values are sharded then, and
    the result is Partial: all_reduce gives all heads to every rank, reduce_scatter some heads or sequences to each.
    `lengths` [B], int32: tokens that sequences have on all ranks together, 0 or more. `pages` [B, P], int32, Shard(1): keys and
    values are pages [N, L, G, D], Shard(0), and page p of sequence b is number pages[b, p] on the rank that has column p.
    `return_lse`: (result, lse). In lse, [B, S, Q] or [B, Q], fp32, are the natural logarithms of the sums of the weights, or
    those of `base2`; -inf where a query sees nothing. It lies as the result does; a Partial one is reduced as the result is.

    `causal`: query i sees keys up to i. `window`: it sees so many of the last ones, itself included; 0 for all. `soft_cap`:
    scores become `soft_cap * tanh(score / soft_cap)`; 0 for none. `softmax_scale`: of scores, 0 for 1 / sqrt(D).
    `zigzag`: of 2 n blocks of tokens rank r of n has number r, then number 2 n - 1 - r, which balances a causal mask.
    Raises BadAttention, AttentionPlacement, BadShape, MixedDtypes, IntegerOperand, NotATensor.
    """
    for name, value in (("window", window), ("soft_cap", soft_cap), ("softmax_scale", softmax_scale)):
        if isinstance(value, int | float) and not 0 <= value < math.inf:
            raise BadAttention(here(), reason=f"{name}={value}", legal=f"{name} is positive, or 0 for none.")
    if isinstance(q, Tensor) and len(q.shape) == 3:
        state = _decode(q, k, v, lengths, pages, zigzag, (window, soft_cap, softmax_scale))
        return _with_logs(*state, "attention", base2=base2) if return_lse else record(*state, "attention")
    if lengths is not None or pages is not None:
        reason = (
            f"{'lengths' if lengths is not None else 'pages'} with queries of {len(getattr(q, 'shape', ()))} dimensions"
        )
        raise BadAttention(here(), reason=reason, legal="They are of one query a sequence, q [B, Q, D].")
    if window and not causal:
        reason = f"window={window} without causal=True"
        raise BadAttention(here(), reason=reason, legal="A window counts from the query back, with causal=True.")
    scale = softmax_scale if isinstance(softmax_scale, sympy.Expr) else float(softmax_scale)
    attention = Attention(causal, window, float(soft_cap), scale, zigzag)
    if return_lse:
        return _with_logs(attention, (q, k, v), "attention", base2=base2)
    return record(attention, (q, k, v), "attention")


def _decode(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lengths: Tensor | None,
    pages: Tensor | None,
    zigzag: bool,
    how: tuple[int, float, Scalar],
) -> tuple[DecodeAttention, tuple[Tensor, ...]]:
    """Attention of one query a sequence, and what it takes."""
    if zigzag:
        reason = "zigzag=True with one query a sequence"
        raise BadAttention(here(), reason=reason, legal="It balances a causal mask of many queries.")
    window, soft_cap, given = how
    scale = given if isinstance(given, sympy.Expr) else float(given)
    more = [one for one in (lengths, pages) if one is not None]
    operation = DecodeAttention(window, float(soft_cap), scale, lengths is not None, pages is not None)
    return operation, (q, k, v, *more)


def _with_logs(
    how: Attention | DecodeAttention | MergeStates, operands: tuple[Tensor, ...], what: str, *, base2: bool
) -> tuple[Tensor, Tensor]:
    """Both parts of a state: means, and logarithms of the sums of weights."""
    return record(how, operands, what), record(LogWeights(how, base2), operands, what)


@overload
def merge_states(means: Tensor, lse: Tensor, *, base2: bool = ..., return_lse: Literal[False] = ...) -> Tensor: ...
@overload
def merge_states(
    means: Tensor, lse: Tensor, *, base2: bool = ..., return_lse: Literal[True]
) -> tuple[Tensor, Tensor]: ...


def merge_states(
    means: Tensor, lse: Tensor, *, base2: bool = False, return_lse: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """States of ranks as one, Partial: means [T, H, D] of values by weight, and in `lse` [T, H], fp32, the natural logarithm of
    the sum of the weights, or that of base 2. Both are Partial. A rank whose `lse` is -inf has seen nothing.

    all_reduce gives the merged mean to every rank, reduce_scatter some tokens (dim=0) or heads (dim=1) to each. `return_lse`:
    (means, lse) of the merge, the logarithms of the sums of all weights, of the same base. Both are reduced alike.
    Raises BadAttention, AttentionPlacement, BadShape, IntegerOperand, NotATensor.
    """
    if return_lse:
        return _with_logs(MergeStates(base2), (means, lse), "merge_states", base2=base2)
    return record(MergeStates(base2), (means, lse), "merge_states")


def flatten(x: Tensor) -> Tensor:
    """`[B, S, Q, D] -> [B * S, Q * D]`, or `[B, Q, D] -> [B, Q * D]`, of what attention makes: heads side by side, for a matmul
    behind it. No element moves.

    Raises BadShape, AttentionPlacement, BadAttention, NotATensor.
    """
    return record(Flatten(), (x,), "flatten")


def unflatten(x: Tensor, *shape: sympy.Expr | int) -> Tensor:
    """`[B * S, Q * D] -> [B, S, Q, D]`, the `shape`: columns as heads. Sharded columns become sharded heads, sharded rows
    sequences, or tokens where B is the number 1.

    Raises BadShape, AttentionPlacement, BadAttention, NotATensor.
    """
    if len(shape) != 4:  # B, S, Q, D
        raise BadShape(
            here(), what="the shape of unflatten", rank=len(shape), shape=", ".join(map(str, shape)), legal="4"
        )
    return record(Unflatten(tuple(map(sympy.sympify, shape))), (x,), "unflatten")


def route(ids: Tensor, num_experts: sympy.Expr | int) -> Routing:
    """The routing of tokens to experts from `ids` [T, K] of int32: the experts of each token, -1 for none; they may repeat.

    Other numbers outside of 0 .. num_experts - 1 choose no expert, and are an error that the operator counts.
    Raises BadRouting, RoutedPlacement, BadShape, NotATensor.
    """
    return Routing(record(Route(num_experts), (ids,), "route"), num_experts)


def dispatch(rows: Tensor, routing: Routing) -> Tensor:
    """Rows of tokens [T, H], Shard(0), to the ranks of their experts: [T * K, H] by assignment, ByExpert. The ids of the routing
    are Shard(0), too.

    Raises BadShape, BadRouting, RoutedPlacement, IntegerOperand, NotATensor.
    """
    _check_routing("dispatch", routing)
    return record(Dispatch(), (rows, routing.table), "dispatch")


def grouped_matmul(rows: Tensor, w: Tensor, routing: Routing) -> Tensor:
    """Each row times the matrix of its expert in w [E, H, F], accumulated in fp32, [T * K, F].

    Rows are of tokens [T, H], or by assignment [T * K, H]. Row t * K + j of the result is token t at its j-th expert; it is
    zeros where there is none.

    Raises BadShape, BadRouting, RoutedPlacement, MixedDtypes, IntegerOperand, NotATensor.
    """
    _check_routing("grouped_matmul", routing)
    return record(GroupedMatmul(routing.num_experts), (rows, w, routing.table), "grouped_matmul")


def combine(rows: Tensor, routing: Routing, weights: Tensor) -> Tensor:
    """Rows by assignment [T * K, H] back to tokens [T, H]: the sum of a token's rows, each times its weight in `weights` [T, K],
    added in fp32 in the order of its choices. Rows without an expert do not count, whatever they hold.

    Raises BadRouting, RoutedPlacement, IntegerOperand, NotATensor.
    """
    _check_routing("combine", routing)
    return record(Combine(), (rows, weights, routing.table), "combine")


def _check_routing(what: str, routing: object) -> None:
    if not isinstance(routing, Routing):
        reason, legal = f"{routing!r} is no routing", "Pass what tilelink.route(ids, num_experts=E) returns."
        raise BadRouting(here(), op=what, reason=reason, legal=legal)


def silu(x: Tensor) -> Tensor:
    """`x * sigmoid(x)`, elementwise. Raises ElementwisePlacement."""
    return record(Elementwise("silu"), (x,), "silu")


def gelu(x: Tensor) -> Tensor:
    """`x * (1 + erf(x / sqrt(2))) / 2`, elementwise. Raises ElementwisePlacement."""
    return record(Elementwise("gelu"), (x,), "gelu")


def relu(x: Tensor) -> Tensor:
    """`max(x, 0)`, elementwise. Raises ElementwisePlacement."""
    return record(Elementwise("relu"), (x,), "relu")


def neg(x: Tensor) -> Tensor:
    """`-x`, elementwise; summands stay summands."""
    return record(Elementwise("neg"), (x,), "-")


def add(x: Tensor | Scalar, y: Tensor | Scalar) -> Tensor:
    """Elementwise sum. Rows `(N,)` or `(1, N)` and columns `(M, 1)` broadcast; one operand may be a number.

    Raises ElementwiseMismatch, ElementwisePlacement, BadScalar.
    """
    return _binary("add", x, y, "+")


def sub(x: Tensor | Scalar, y: Tensor | Scalar) -> Tensor:
    """Elementwise difference, of what `add` takes; raises what it raises."""
    return _binary("sub", x, y, "-")


def mul(x: Tensor | Scalar, y: Tensor | Scalar) -> Tensor:
    """Elementwise product, of what `add` takes; raises what it raises."""
    return _binary("mul", x, y, "*")


def div(x: Tensor | Scalar, y: Tensor | Scalar) -> Tensor:
    """Elementwise quotient, of what `add` takes; raises what it raises."""
    return _binary("div", x, y, "/")


def op(
    reads: Mapping[str, tuple[sympy.Symbol, ...]],
    writes: tuple[sympy.Symbol, ...],
    reference: Callable[..., object] | None = None,
    *,
    whole: Axes = (),
    tiled: Axes = (),
    sums: Axes = (),
    linear: str | tuple[str, ...] = (),
) -> Callable[[object], Callable[..., Tensor]]:
    """Register a tile op of the user's; tilelink.ir.user_op has the conventions. Raises BadUserOp.

    `reads` gives the axes of each tensor, `writes` those of the result. `reference` is a torch function of whole tensors.
    Every tile reads all of a `whole` axis. Along a `tiled` axis it reads only what it writes. Over an axis of `sums` the
    result is a sum, and in a tensor of `linear` it is linear. Without these the reference decides about written axes.
    """

    def decorate(function: object) -> Callable[..., Tensor]:
        user_op = make_user_op(function, reads, writes, reference, Claims(whole, tiled, sums, linear))

        def call(*tensors: Tensor) -> Tensor:
            if len(tensors) != len(user_op.reads):
                expected = ", ".join(name for name, _ in user_op.reads)
                raise BadUserOp(
                    here(),
                    name=user_op.name,
                    reason=f"called with {len(tensors)} tensors",
                    legal=f"It reads: {expected}.",
                )
            return record(user_op, tensors, user_op.name)

        return call

    return decorate


def _dim(x: object, dim: int) -> int:
    """`dim` counted from the first one on; what is no dimension of `x` stays as it is, for `infer` to refuse."""
    rank = len(x.shape) if isinstance(x, Tensor) else 0
    return dim + rank if isinstance(dim, int) and -rank <= dim < 0 else dim


def _binary(function: str, x: object, y: object, what: str) -> Tensor:
    """`function` of two tensors, or of a tensor and a number on either side."""
    if isinstance(x, Tensor):
        return x.elementwise(function, y, what)
    if isinstance(y, Tensor):
        return y.elementwise(function, x, what, reflected=True)
    raise NotATensor(here(), what=what, value=repr(x))
