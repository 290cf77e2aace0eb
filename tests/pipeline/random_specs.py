"""Random specs over all operations: grown value by value, keeping only what is legal; each with its definition in torch."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch.nn import functional

import tilelink
from tests.pipeline import user_ops
from tilelink import Partial, Replicate, Shard, Tensor
from tilelink.ir.location import here
from tilelink.ir.placement import Placement
from tilelink.ir.spec import BoundSpec, Spec, bind
from tilelink.ir.trace import Trace

DTYPES = ("bf16", "fp16", "fp32")
_SIZES = (1, 3, 5, 8, 16, 17, 20)  # of a part


class Program:
    """Operations as they are written down, in tilelink and in torch on whole tensors. Torch knows nothing of placements."""

    def __init__(self, num_ranks: int) -> None:
        self.trace = Trace()
        self._num_ranks = num_ranks
        self._definitions: dict[str, tuple[Callable[..., torch.Tensor], tuple[str, ...]]] = {}

    def fresh(self, shape: tuple[int, ...], placement: Placement) -> Tensor:
        """A new input."""
        inputs = len(self.trace.values) - len(self._definitions)
        return self.trace.declare(f"in{inputs + 1}", Tensor(*shape, placement=placement))

    def __call__(self, result: Tensor, definition: Callable[..., torch.Tensor], *operands: Tensor) -> Tensor:
        """Note that `result` is `definition(*operands)`. A slice that is the whole axis is its operand, and is noted already."""
        if result.name in {operand.name for operand in operands}:
            return result
        self._definitions[result.name] = (definition, tuple(operand.name for operand in operands))
        return result

    def in_torch(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Every value, from whole inputs."""
        values = dict(inputs)
        for name, (definition, operands) in self._definitions.items():
            values[name] = definition(*(values[operand] for operand in operands))
        return values

    def all_gather(self, x: Tensor, dim: int) -> Tensor:
        return self(tilelink.all_gather(x, dim), lambda x: x, x)

    def reduce_scatter(self, x: Tensor, dim: int) -> Tensor:
        return self(tilelink.reduce_scatter(x, dim), lambda x: x, x)

    def all_reduce(self, x: Tensor) -> Tensor:
        return self(tilelink.all_reduce(x), lambda x: x, x)

    def send_recv(self, x: Tensor, by: int) -> Tensor:
        assert isinstance(x.placement, Shard)
        dim = x.placement.dim
        return self(tilelink.send_recv(x, by), lambda x: torch.roll(x, by * (x.shape[dim] // self._num_ranks), dim), x)

    def matmul(self, x: Tensor, w: Tensor, transposed: bool) -> Tensor:
        result = tilelink.matmul(x, w.T if transposed else w)
        return self(result, lambda x, w: torch.einsum("mk,nk->mn" if transposed else "mk,kn->mn", x, w), x, w)

    def silu(self, x: Tensor) -> Tensor:
        return self(tilelink.silu(x), functional.silu, x)

    def gelu(self, x: Tensor) -> Tensor:
        return self(tilelink.gelu(x), functional.gelu, x)

    def relu(self, x: Tensor) -> Tensor:
        return self(tilelink.relu(x), functional.relu, x)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return self(x + y, torch.add, x, y)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        return self(x * y, torch.mul, x, y)

    def neg(self, x: Tensor) -> Tensor:
        return self(-x, torch.neg, x)

    def sub(self, x: Tensor, y: Tensor) -> Tensor:
        return self(x - y, torch.sub, x, y)

    def with_number(self, x: Tensor, function: Callable[..., object]) -> Tensor:
        """`function` of one operand, which it combines with numbers."""
        result = function(x)
        assert isinstance(result, Tensor)
        return self(result, function, x)  # type: ignore[arg-type]

    def piece(self, x: Tensor, dim: int, start: int, stop: int) -> Tensor:
        result = x[start:stop] if dim == 0 else x[:, start:stop]
        return self(result, lambda x: torch.index_select(x, dim, torch.arange(start, stop)), x)

    def by_user(self, name: str, *operands: Tensor) -> Tensor:
        """A tile op of `user_ops`."""
        return self(user_ops.OPS[name](*operands), user_ops.DEFINITIONS[name], *operands)


def random_spec(rng: random.Random, num_ranks: int, max_ops: int = 4, *, queues: bool = False) -> BoundSpec:
    """A bound spec of up to `max_ops` operations, with ragged sizes, whose outputs are no summands; with `queues` some
    values go to the next rank, or to the one before."""
    return random_program(rng, num_ranks, max_ops, queues=queues)[0]


def random_program(
    rng: random.Random,
    num_ranks: int,
    max_ops: int = 4,
    *,
    queues: bool = False,
    everything: bool = False,
    sizes: tuple[int, ...] = _SIZES,
) -> tuple[BoundSpec, Program]:
    """A random spec and what it means; with `everything` it may have numbers, slices and tile
    ops of the user's."""
    while True:
        program = Program(num_ranks)
        spec = _grow(rng, program, num_ranks, rng.randint(1, max_ops), queues, everything, sizes)
        if spec is not None:
            return bind(spec, {}, num_ranks, rng.choice(DTYPES)), program


def _grow(
    rng: random.Random, p: Program, num_ranks: int, ops: int, queues: bool, everything: bool, sizes: tuple[int, ...]
) -> Spec | None:
    m, n, k = (num_ranks * rng.choice(sizes) for _ in range(3))
    values = [p.fresh((m, k), rng.choice((Replicate(), Shard(0), Shard(1), Partial())))]
    for _ in range(ops):
        shifted = rng.choice(values) if queues and rng.random() < 0.4 else None
        if shifted is not None and isinstance(shifted.placement, Shard):
            values.append(p.send_recv(shifted, rng.choice((1, -1))))
            continue
        x, columns, kind = rng.choice(values), rng.choice((n, k, m)), rng.random() if everything else 1.0
        if kind < 0.35:
            values.append(_by_user(rng, p, x, columns))
        elif kind < 0.6:
            values.append(_in_torchs_words(rng, p, x, num_ranks))
        else:
            values.append(_step(rng, p, x, columns))
    last = values[-1]
    if isinstance(last.placement, Partial):
        last = p.reduce_scatter(last, rng.choice((0, 1))) if rng.random() < 0.6 else p.all_reduce(last)
    outputs = [last.name]
    computed = {node.output.name for node in p.trace.nodes}
    for value in values[:-1]:
        if value.name in computed and not isinstance(value.placement, Partial) and rng.random() < 0.2:
            outputs.append(value.name)
    if last.name not in computed:
        return None
    return Spec(
        name="random_spec",
        inputs=tuple(value for name, value in p.trace.values.items() if name not in computed),
        nodes=tuple(p.trace.nodes),
        outputs=tuple(dict.fromkeys(outputs)),
        source=("random",),
        location=here(),
    )


def _in_torchs_words(rng: random.Random, p: Program, x: Tensor, num_ranks: int) -> Tensor:
    """Numbers, columns and slices."""
    rows, cols = map(int, x.shape)
    column = Shard(0) if x.placement == Shard(0) else Replicate()
    if cols == 1 and x.placement == Shard(1):
        column = x.placement  # it is no column then, but a tensor of the same shape
    ways = [
        lambda: p.neg(x),
        lambda: p.with_number(x, lambda x: x * 0.5),
        lambda: p.with_number(x, lambda x: x / 3),
        lambda: p.mul(x, p.fresh((rows, 1), column)),
        lambda: p.sub(x, p.with_number(x, lambda x: 0.25 * x)),
    ]
    if x.placement != Partial():
        ways += [lambda: p.with_number(x, lambda x: 2 - x), lambda: p.with_number(x, lambda x: x + 1)]
        ways += [lambda: p.sub(x, p.fresh((rows, 1), column))]
    for dim, extent in enumerate((rows, cols)):
        parts = extent // num_ranks
        if x.placement != Shard(dim) and parts > 1:
            first, last = sorted(rng.sample(range(parts + 1), 2))
            ways.append(partial(p.piece, x, dim, num_ranks * first, num_ranks * last))
    return rng.choice(ways)()


def _by_user(rng: random.Random, p: Program, x: Tensor, columns: int) -> Tensor:
    """A tile op of the user's that may read `x` as it lies, or as it lies once it is gathered."""
    rows, cols = map(int, x.shape)
    name = rng.choice(
        ("squared_relu", "squared_relu_matmul", "product", "softmax", "scale_rows", "by_position", "turned")
    )
    match x.placement, name:
        case Shard(1), "softmax" | "squared_relu_matmul":
            x = p.all_gather(x, 1)
        case Shard(0), "by_position":
            x = p.all_gather(x, 0)
        case Partial(), "squared_relu" | "softmax" | "squared_relu_matmul":
            x = p.reduce_scatter(x, 0) if rng.random() < 0.5 else p.all_reduce(x)
    match name:
        case "squared_relu_matmul" | "product":
            placement: Placement = Shard(0) if x.placement == Shard(1) else Replicate()
            if x.placement == Replicate() and rng.random() < 0.5:
                placement = Shard(1)
            return p.by_user(name, x, p.fresh((cols, columns), placement))
        case "scale_rows":
            if rng.random() < 0.5:
                sums = p.by_user("row_sums", x)
                if x.placement == Shard(1):
                    sums = p.all_reduce(sums)
                if sums.placement != Partial():
                    return p.by_user(name, x, sums)
            return p.by_user(name, x, p.fresh((rows,), Shard(0) if x.placement == Shard(0) else Replicate()))
        case _:
            return p.by_user(name, x)


def _step(rng: random.Random, p: Program, x: Tensor, columns: int) -> Tensor:
    fresh = p.fresh
    cols = int(x.shape[1])
    match x.placement:
        case Partial():
            return rng.choice(
                (
                    lambda: p.reduce_scatter(x, 0),
                    lambda: p.reduce_scatter(x, 1),
                    lambda: p.all_reduce(x),
                    lambda: _times(rng, p, x, (cols, columns), Replicate()),
                )
            )()
        case Shard(0):
            return rng.choice(
                (
                    lambda: p.all_gather(x, 0),
                    lambda: _times(rng, p, x, (cols, columns), Replicate()),
                    lambda: _pointwise(rng, p, x, lambda: fresh((cols,), Replicate())),
                )
            )()
        case Shard(1):
            return rng.choice(
                (
                    lambda: p.all_gather(x, 1),
                    lambda: _times(rng, p, x, (cols, columns), Shard(0)),
                    lambda: _pointwise(rng, p, x, lambda: fresh((cols,), Shard(0))),
                )
            )()
        case _:
            return rng.choice(
                (
                    lambda: _times(rng, p, x, (cols, columns), rng.choice((Replicate(), Shard(1)))),
                    lambda: _times(rng, p, x, (cols, columns), Shard(0), gathered=True),
                    lambda: _times(rng, p, x, (cols, columns), Shard(1), gathered=True),
                    lambda: _pointwise(rng, p, x, lambda: fresh((cols,), Replicate())),
                    lambda: _pointwise(rng, p, x, lambda: p.all_gather(fresh((cols,), Shard(0)), 0)),
                )
            )()


def _times(
    rng: random.Random, p: Program, x: Tensor, shape: tuple[int, ...], placement: Placement, gathered: bool = False
) -> Tensor:
    """x @ w of a new w of this shape and placement, which now and then lies the other way."""
    transposed = rng.random() < 0.4
    if transposed:
        shape = shape[::-1]
        placement = Shard(1 - placement.dim) if isinstance(placement, Shard) else placement
    w = p.fresh(shape, placement)
    if gathered and isinstance(placement, Shard):
        w = p.all_gather(w, placement.dim)
    return p.matmul(x, w, transposed)


def _pointwise(rng: random.Random, p: Program, x: Tensor, row: Callable[[], Tensor]) -> Tensor:
    return rng.choice(
        (
            lambda: p.relu(x),
            lambda: p.silu(x),
            lambda: p.gelu(x),
            lambda: p.add(x, row()),
            lambda: p.mul(x, row()),
            lambda: p.mul(p.silu(x), x),
        )
    )()
