"""The operations a spec is written with. Each takes Tensors of one spec and returns a new one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import sympy

from tilelink.errors import BadUserOp, NotATensor, TransposedOperand
from tilelink.ir.location import here
from tilelink.ir.spec import AllGather, AllReduce, Elementwise, Matmul, Operation, ReduceScatter, SendRecv
from tilelink.ir.tensor import Tensor, Transposed
from tilelink.ir.user_op import Axes, Claims, make_user_op


def matmul(a: Tensor, b: Tensor | Transposed) -> Tensor:
    """`[M, K] @ [K, N] -> [M, N]`, accumulated in fp32. Contraction over a sharded dimension yields Partial.

    `matmul(x, w.T)` takes weights that lie as [N, K], as those of `torch.nn.Linear` do.
    Raises BadShape, MatmulMismatch, MatmulPlacement, MixedDtypes, NotATensor, TransposedOperand.
    """
    if isinstance(b, Transposed):
        return _record(Matmul(transposed=True), (a, b.tensor), "matmul")
    return _record(Matmul(), (a, b), "matmul")


def all_gather(x: Tensor, dim: int) -> Tensor:
    """`Shard(dim) -> Replicate`. Raises BadDim, NothingToGather."""
    return _record(AllGather(dim), (x,), "all_gather")


def reduce_scatter(x: Tensor, dim: int) -> Tensor:
    """`Partial -> Shard(dim)`. Raises BadDim, NothingToReduce."""
    return _record(ReduceScatter(dim), (x,), "reduce_scatter")


def all_reduce(x: Tensor) -> Tensor:
    """`Partial -> Replicate`. Raises NothingToReduce."""
    return _record(AllReduce(), (x,), "all_reduce")


def send_recv(x: Tensor, by: int = 1) -> Tensor:
    """Each rank gets what the rank `by` before it holds: `Shard(dim) -> Shard(dim)`. Raises BadShift, NothingToSend."""
    return _record(SendRecv(by), (x,), "send_recv")


def silu(x: Tensor) -> Tensor:
    """`x * sigmoid(x)`, elementwise. Raises ElementwisePlacement."""
    return _record(Elementwise("silu"), (x,), "silu")


def gelu(x: Tensor) -> Tensor:
    """`x * (1 + erf(x / sqrt(2))) / 2`, elementwise. Raises ElementwisePlacement."""
    return _record(Elementwise("gelu"), (x,), "gelu")


def relu(x: Tensor) -> Tensor:
    """`max(x, 0)`, elementwise. Raises ElementwisePlacement."""
    return _record(Elementwise("relu"), (x,), "relu")


def add(x: Tensor, y: Tensor) -> Tensor:
    """Elementwise sum; a row `(N,)` or `(1, N)` broadcasts. Raises ElementwiseMismatch, ElementwisePlacement."""
    return _record(Elementwise("add"), (x, y), "+")


def mul(x: Tensor, y: Tensor) -> Tensor:
    """Elementwise product; a row `(N,)` or `(1, N)` broadcasts. Raises ElementwiseMismatch, ElementwisePlacement."""
    return _record(Elementwise("mul"), (x, y), "*")


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
    """Register a tile op of the user's: see tilelink.ir.user_op for the conventions. Raises BadUserOp.

    `whole` axes are read whole by every tile, along `tiled` axes a tile reads what it writes; over the axes of `sums` the
    result is a sum; the result is linear in the tensors `linear`. The rest is taken from `reference`, a torch function of
    whole tensors.
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
            return _record(user_op, tensors, user_op.name)

        return call

    return decorate


def _record(operation: Operation, operands: tuple[Tensor, ...], what: str) -> Tensor:
    location = here()
    for operand in operands:
        if isinstance(operand, Transposed):
            raise TransposedOperand(location, what=what, tensor=operand.tensor.name)
        if not isinstance(operand, Tensor) or operand.trace is None or operand.trace is not operands[0].trace:
            raise NotATensor(location, what=what, value=operand)
    trace = operands[0].trace
    assert trace is not None  # checked above, for the type checker
    return trace.record(operation, operands, location)
