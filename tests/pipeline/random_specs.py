"""Random specs over all operations: grown value by value, keeping only what is legal."""

from __future__ import annotations

import random

import tilelink
from tilelink import Partial, Replicate, Shard, Tensor
from tilelink.ir.location import here
from tilelink.ir.placement import Placement
from tilelink.ir.spec import BoundSpec, Spec, bind
from tilelink.ir.trace import Trace

DTYPES = ("bf16", "fp16", "fp32")


def random_spec(rng: random.Random, num_ranks: int, max_ops: int = 4, *, queues: bool = False) -> BoundSpec:
    """A bound spec of up to `max_ops` operations, with ragged sizes, whose outputs are no summands; with `queues` some
    values go to the next rank, or to the one before."""
    while True:
        spec = _grow(rng, num_ranks, rng.randint(1, max_ops), queues)
        if spec is not None:
            return bind(spec, {}, num_ranks, rng.choice(DTYPES))


def _size(rng: random.Random, num_ranks: int) -> int:
    return num_ranks * rng.choice((1, 3, 5, 8, 16, 17, 20))


def _grow(rng: random.Random, num_ranks: int, ops: int, queues: bool) -> Spec | None:
    trace = Trace()
    m, n, k = (_size(rng, num_ranks) for _ in range(3))
    count = 0

    def fresh(shape: tuple[int, ...], placement: Placement) -> Tensor:
        nonlocal count
        count += 1
        return trace.declare(f"in{count}", Tensor(*shape, placement=placement))

    values = [fresh((m, k), rng.choice((Replicate(), Shard(0), Shard(1), Partial())))]
    for _ in range(ops):
        shifted = rng.choice(values) if queues and rng.random() < 0.4 else None
        if shifted is not None and isinstance(shifted.placement, Shard):
            values.append(tilelink.send_recv(shifted, rng.choice((1, -1))))
            continue
        values.append(_step(rng, rng.choice(values), fresh, rng.choice((n, k, m))))
    last = values[-1]
    if isinstance(last.placement, Partial):
        last = tilelink.reduce_scatter(last, rng.choice((0, 1))) if rng.random() < 0.6 else tilelink.all_reduce(last)
    outputs = [last.name]
    computed = {node.output.name for node in trace.nodes}
    for value in values[:-1]:
        if value.name in computed and not isinstance(value.placement, Partial) and rng.random() < 0.2:
            outputs.append(value.name)
    if last.name not in computed:
        return None
    return Spec(
        name="random_spec",
        inputs=tuple(value for name, value in trace.values.items() if name not in computed),
        nodes=tuple(trace.nodes),
        outputs=tuple(dict.fromkeys(outputs)),
        source=("random",),
        location=here(),
    )


def _step(rng: random.Random, x: Tensor, fresh, columns: int) -> Tensor:  # type: ignore[no-untyped-def]
    cols = int(x.shape[1])
    match x.placement:
        case Partial():
            return rng.choice(
                (
                    lambda: tilelink.reduce_scatter(x, 0),
                    lambda: tilelink.reduce_scatter(x, 1),
                    lambda: tilelink.all_reduce(x),
                    lambda: _times(rng, x, (cols, columns), Replicate(), fresh),
                )
            )()
        case Shard(0):
            return rng.choice(
                (
                    lambda: tilelink.all_gather(x, 0),
                    lambda: _times(rng, x, (cols, columns), Replicate(), fresh),
                    lambda: _pointwise(rng, x, lambda: fresh((cols,), Replicate())),
                )
            )()
        case Shard(1):
            return rng.choice(
                (
                    lambda: tilelink.all_gather(x, 1),
                    lambda: _times(rng, x, (cols, columns), Shard(0), fresh),
                    lambda: _pointwise(rng, x, lambda: fresh((cols,), Shard(0))),
                )
            )()
        case _:
            return rng.choice(
                (
                    lambda: _times(rng, x, (cols, columns), rng.choice((Replicate(), Shard(1))), fresh),
                    lambda: _times(rng, x, (cols, columns), Shard(0), fresh, gathered=True),
                    lambda: _times(rng, x, (cols, columns), Shard(1), fresh, gathered=True),
                    lambda: _pointwise(rng, x, lambda: fresh((cols,), Replicate())),
                    lambda: _pointwise(rng, x, lambda: tilelink.all_gather(fresh((cols,), Shard(0)), 0)),
                )
            )()


def _times(rng: random.Random, x: Tensor, shape, placement, fresh, gathered: bool = False) -> Tensor:  # type: ignore[no-untyped-def]
    """x @ w of a new w of this shape and placement, which now and then lies the other way."""
    transposed = rng.random() < 0.4
    if transposed:
        shape = shape[::-1]
        placement = Shard(1 - placement.dim) if isinstance(placement, Shard) else placement
    w = fresh(shape, placement)
    if gathered:
        w = tilelink.all_gather(w, placement.dim)
    return tilelink.matmul(x, w.T if transposed else w)


def _pointwise(rng: random.Random, x: Tensor, row) -> Tensor:  # type: ignore[no-untyped-def]
    return rng.choice(
        (
            lambda: tilelink.relu(x),
            lambda: tilelink.silu(x),
            lambda: tilelink.gelu(x),
            lambda: x + row(),
            lambda: x * row(),
            lambda: tilelink.silu(x) * x,
        )
    )()
