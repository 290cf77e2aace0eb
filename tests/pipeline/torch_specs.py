"""Specs written as one writes torch: each is a function of what it calls (tilelink, or torch on whole tensors), of sizes
(symbols, or numbers) and of its tensors, so that the same text is the spec and what it should give."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

import tilelink
from tilelink import Partial, Replicate, Shard, Tensor, dims
from tilelink.declaration import Overlap

M, N, K, F = dims("M N K F")
SYMBOLS = SimpleNamespace(M=M, N=N, K=K, F=F)
R, S0, S1, P = Replicate(), Shard(0), Shard(1), Partial()


def _same(x: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
    """A collective, to who has whole tensors."""
    return x


TORCH = SimpleNamespace(
    matmul=torch.matmul,
    silu=torch.nn.functional.silu,
    gelu=torch.nn.functional.gelu,
    relu=torch.relu,
    all_gather=_same,
    reduce_scatter=_same,
    all_reduce=_same,
)


@dataclass(frozen=True)
class Written:
    """A spec: what its parameters declare, and its body of (library, sizes, *tensors)."""

    declared: tuple[Tensor, ...]
    body: Callable[..., Any]

    def overlap(self) -> Overlap:
        parameters = ", ".join(f"in{number}" for number in range(len(self.declared)))
        scope: dict[str, Any] = {"body": lambda *tensors: self.body(tilelink, SYMBOLS, *tensors)}
        exec(f"def written({parameters}): return body({parameters})", scope)
        written = scope["written"]
        written.__annotations__ = {f"in{number}": one for number, one in enumerate(self.declared)}
        return Overlap(written, {})

    def on_whole_tensors(self, sizes: dict[str, int], whole: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        found = self.body(TORCH, SimpleNamespace(**sizes), *whole)
        return found if isinstance(found, tuple) else (found,)


def _t(*shape: Any, at: Any = R) -> Tensor:
    return Tensor(*shape, placement=at)


def _gated(act: Callable[[Any], Any], pieces: Any) -> Any:
    gate, up = pieces
    return act(gate) * up


X_ROWS, X_COLS, W_ROWS = _t(M, K, at=S0), _t(M, K, at=S1), _t(K, N, at=S0)
WRITTEN = {
    "a fused gate and up": Written(
        (X_ROWS, _t(K, 2 * F)), lambda t, d, x, w: _gated(t.silu, t.matmul(t.all_gather(x, 0), w).chunk(2, dim=-1))
    ),
    "numbers": Written(
        (X_ROWS, _t(K, N)),
        lambda t, d, x, w: -((2 * (t.all_gather(x, -2) @ w) - 1) / 8 + np.float32(0.25)) * np.int64(3),
    ),
    "a column of scales": Written((X_ROWS, _t(K, N), _t(M, 1, at=S0)), lambda t, d, x, w, s: (x @ w) * s),
    "summands": Written((X_COLS, W_ROWS), lambda t, d, x, w: t.reduce_scatter(-(x @ w) / 2 - 0.25 * (x @ w), 0) - 1),
    "slices of a result that is returned": Written(
        (_t(M, K), _t(K, 2 * F)), lambda t, d, x, w: (lambda y: (y, t.silu(y[:, : d.F]) * y[:, d.F :]))(x @ w)
    ),
    "slices of columns of what is gathered": Written(
        (_t(M, 2 * K, at=S0), _t(K, N)), lambda t, d, x, w: t.all_gather(x, 0)[:, d.K :] @ w
    ),
    "numbers on the left": Written((X_COLS, W_ROWS), lambda t, d, x, w: 1 - t.reduce_scatter(0.5 * (x @ w), -1)),
    "a number over a tensor": Written((_t(M, K),), lambda t, d, x: 1 / (t.relu(x) + 2)),
    "sizes as numbers": Written((X_COLS, W_ROWS), lambda t, d, x, w: t.all_reduce((x @ w) / d.K) + 1 / d.M),
    "summands by a replicated column": Written(
        (X_COLS, W_ROWS, _t(M, 1)), lambda t, d, x, w, s: t.all_reduce((x @ w) / (t.relu(s) + 1))
    ),
    "a gathered column": Written(
        (X_ROWS, _t(K, N, at=S1), _t(M, 1, at=S0)),
        lambda t, d, x, w, s: t.all_gather(x, 0) @ w * t.all_gather(s, 0),
    ),
    "a column times what is scattered": Written(
        (X_COLS, W_ROWS, _t(M, 1, at=S0)), lambda t, d, x, w, s: t.reduce_scatter(x @ w, 0) * s
    ),
    "a column by sharded columns": Written((_t(M, K), _t(K, N, at=S1), _t(M, 1)), lambda t, d, x, w, s: s * (x @ w)),
    "a column and a row": Written((_t(M, 1), _t(1, N)), lambda t, d, a, b: a * b - b),
    "one element": Written((_t(M, N), _t(1, 1)), lambda t, d, a, b: a / (t.relu(b) + 1)),
    "weights that lie as of Linear": Written(
        (X_ROWS, _t(2 * F, K)), lambda t, d, x, w: _gated(t.silu, (t.all_gather(x, 0) @ w.t()).chunk(2, dim=-1))
    ),
    "pieces returned": Written((_t(M, K), _t(K, 3 * F)), lambda t, d, x, w: tuple((x @ w).chunk(3, 1))),
    "pieces of summands": Written(
        (X_COLS, _t(K, N + 2 * F, at=S0)),
        lambda t, d, x, w: (lambda a, b, c: t.all_reduce(b - 2 * c))(*(x @ w).split([d.N, d.F, d.F], -1)),
    ),
    "rows": Written((_t(M, K), _t(K, N, at=S1)), lambda t, d, x, w: (x @ w)[: d.M // 2]),
    "half of what is contracted": Written((_t(M, 2 * K), _t(K, N, at=S1)), lambda t, d, x, w: x[:, d.K :] @ w),
    "rows of what is gathered": Written((X_ROWS, _t(K, N)), lambda t, d, x, w: t.all_gather(x, 0)[2 : d.M - 1] @ w),
    "rows of what is gathered by columns": Written(
        (X_COLS, _t(K, N)), lambda t, d, x, w: t.all_gather(x, 1)[2 : d.M - 1] @ w
    ),
    "pieces of what is scattered": Written(
        (X_COLS, _t(K, 2 * F, at=S0)), lambda t, d, x, w: _gated(t.gelu, t.reduce_scatter(x @ w, 0).chunk(2, 1))
    ),
    "pieces of what is summed": Written(
        (X_COLS, _t(K, 2 * F, at=S0)), lambda t, d, x, w: _gated(t.gelu, t.all_reduce(x @ w).chunk(2, 1))
    ),
    "a piece is scattered": Written(
        (X_COLS, _t(K, 2 * F, at=S0)), lambda t, d, x, w: t.reduce_scatter((x @ w)[:, d.F :], 0)
    ),
    "a piece is gathered": Written(
        (_t(M, 2 * K, at=S0), _t(K, N)), lambda t, d, x, w: t.all_gather(x[:, : d.K], 0) @ w
    ),
    "pieces of an epilogue": Written(
        (_t(M, K), _t(K, 2 * F), _t(2 * F), _t(M, 1)),
        lambda t, d, x, w, b, s: _gated(t.silu, t.relu((x @ w + b) * s).chunk(2, 1)),
    ),
    "rows and columns": Written((_t(M, K), _t(K, 2 * F)), lambda t, d, x, w: (x @ w)[1 : d.M - 2, 3 : d.F + 3]),
    "from an odd column on": Written((_t(M, K), _t(K, N)), lambda t, d, x, w: t.silu((x @ w)[:, 5:])),
    "a slice of a slice": Written((_t(M, 4 * F),), lambda t, d, x: x[:, d.F :][:, d.F : 2 * d.F] * 2),
    "slices of a parameter": Written((_t(M, 2 * F),), lambda t, d, x: t.silu(x[..., : d.F]) * x[:, -d.F :]),
    "a value twice in a slice": Written(
        (_t(M, K), _t(K, 2 * F)), lambda t, d, x, w: (lambda y: (y * y)[:, : d.F])(x @ w)
    ),
    "vectors": Written((_t(2 * F),), lambda t, d, b: b[: d.F] * b[d.F :] + 1),
    "a whole MLP": Written(
        (X_ROWS, _t(K, 2 * F), _t(F, K)), lambda t, d, x, w, v: _gated(t.silu, (x @ w).split(d.F, dim=1)) @ v
    ),
}


def sizes(spec: Overlap, num_ranks: int) -> dict[str, int]:
    """Small ones, ragged, of which the ranks divide those that are sharded somewhere."""
    rows = {"M": 18, "K": 24, "N": 20}
    return {name: rows[name] * num_ranks if name in rows else 12 for name in spec.spec.symbols()}


def random_written(rng: random.Random) -> Written:
    """A matmul, and some of all that may stand behind it, in an order that placements allow."""
    start = rng.choice(("gather", "rows", "columns", "summands"))
    x, w = {
        "gather": (_t(M, K, at=S0), _t(K, 4 * F)),
        "rows": (_t(M, K, at=S0), _t(K, 4 * F)),
        "columns": (_t(M, K), _t(K, 4 * F, at=S1)),
        "summands": (_t(M, K, at=S1), _t(K, 4 * F, at=S0)),
    }[start]
    end = rng.choice(("reduce", "scatter", "scatter columns"))
    linear = [rng.choice(_LINEAR) for _ in range(rng.randint(0, 3))]
    cuts = [rng.choice(_CUTS[start]) for _ in range(rng.randint(0, 2))]
    behind = [rng.choice(_ANY) for _ in range(rng.randint(0, 3))]
    early = rng.random() < 0.5

    def body(t: Any, d: Any, x: Any, w: Any) -> Any:
        y = (t.all_gather(x, 0) if start == "gather" else x) @ w
        for step in [*linear, *(cuts if early else ())]:
            y = step(t, d, y)
        if start == "summands":
            y = t.all_reduce(y) if end == "reduce" else t.reduce_scatter(y, 0 if end == "scatter" else 1)
        late = () if early or (start == "summands" and end == "scatter columns") else cuts
        for step in [*behind, *late]:
            y = step(t, d, y)
        return y

    return Written((x, w), body)


_LINEAR: list[Callable[[Any, Any, Any], Any]] = [
    lambda t, d, y: y * 0.5,
    lambda t, d, y: -y,
    lambda t, d, y: y / 4 - y,
    lambda t, d, y: 2 * y + y,
]
_ANY: list[Callable[[Any, Any, Any], Any]] = [
    *_LINEAR,
    lambda t, d, y: t.silu(y) * y,
    lambda t, d, y: 1 - y,
    lambda t, d, y: 1 / (t.relu(y) + 2),
    lambda t, d, y: y + 0.25,
]


def _halves(dim: int) -> Callable[[Any, Any, Any], Any]:
    def gated(t: Any, d: Any, y: Any) -> Any:
        left, right = y.chunk(2, dim)
        return left - right

    return gated


_COLUMNS = [_halves(1), _halves(-1), lambda t, d, y: y[:, y.shape[1] // 4 : y.shape[1] // 2]]
_ROWS = [_halves(0), lambda t, d, y: y[y.shape[0] // 4 :]]
_CUTS: dict[str, list[Callable[[Any, Any, Any], Any]]] = {
    "gather": [*_COLUMNS, *_ROWS],
    "rows": _COLUMNS,
    "columns": _ROWS,
    "summands": _COLUMNS,
}
