"""Tile ops and references that take constants, other names of libraries and helpers from their module: the text that an emitted
file gets is complete, and means the same."""

from __future__ import annotations

import math
import math as mathematics

import pytest
import torch
import torch.nn.functional as F
import triton
import triton.language as L
import triton.language as tl
from triton.language import exp as exponential

import lowering
import tilelink
from tests.errors.blame import blamed_line
from tilelink import Overlap, Shard, Tensor, dims
from tilelink.errors import BadUserOp
from tilelink.runtime.aot import compile_launch, record
from tilelink.runtime.load import load_source
from tilelink.runtime.run import run_emulated

M, N, K = dims("M N K")
m, n = tilelink.axes("m n")
EPS = 1e-6
SCALE = tl.constexpr(2.5)
LIMIT = float("inf")
WIDTHS = (1, 2)


@triton.jit  # type: ignore[untyped-decorator]
def shrink(x, SHARE: tl.constexpr = EPS):  # type: ignore[no-untyped-def]
    return x * SCALE - SHARE


smaller = shrink


def by_hand(x: torch.Tensor) -> torch.Tensor:
    return x * 2.5 - EPS


def made(power: float) -> Overlap:
    """An operator whose op takes from its module, from here, and from Triton under other names."""

    def meaning(x):  # type: ignore[no-untyped-def]
        """What it means; `F`, `EPS`, `power`, `by_hand` and `mathematics` are from outside."""
        soft = F.softplus(x.float() / (power + EPS))
        return by_hand(torch.minimum(soft, torch.tensor(LIMIT))) * mathematics.pi

    @tilelink.op(reads={"x": (m, n)}, writes=(m, n), tiled=(m, n), reference=meaning)
    @triton.jit  # type: ignore[untyped-decorator]
    def op(x, m, n, num_m, num_n, TILE_M: L.constexpr, TILE_N: L.constexpr):  # type: ignore[no-untyped-def]
        """Softplus."""
        rows, cols = m + L.arange(0, TILE_M), n + tl.arange(0, TILE_N)
        inside = (rows < num_m)[:, None] & (cols < num_n)[None, :]
        tile = L.load(x + rows[:, None] * num_n + cols[None, :], mask=inside, other=0.0).to(L.float32)
        soft = tl.minimum(tl.log(1 + exponential(tile / (power + EPS))), LIMIT)
        return smaller(soft) * math.pi

    @tilelink.overlap
    def f(x: Tensor(M, K, placement=Shard(0)), w: Tensor(K, N, placement=Shard(1))):  # type: ignore[no-untyped-def,valid-type]
        return tilelink.matmul(op(tilelink.all_gather(x, dim=0)), w)

    return f


def test_what_is_taken_from_outside_comes_along() -> None:
    schedule = made(2.0).plan("laptop-switch", 2, M=64, K=32, N=48)
    source = lowering.emit(schedule)
    for line in ("EPS: tl.constexpr = 1e-06", "power: tl.constexpr = 2.0", 'LIMIT: tl.constexpr = float("inf")'):
        assert f"    {line}\n" in source
    assert "tl.exp(" in source and "exponential" not in source and "L." not in source
    assert "SHARE: tl.constexpr = 1e-06" in source
    assert "import math as mathematics\n" in source and "torch.nn.functional.softplus" in source
    result = run_emulated(schedule, source, calls=1)
    assert result.equal, result.lines()


@pytest.mark.slow
def test_it_compiles() -> None:
    schedule = made(2.0).plan("h200-nvswitch", 2, M=512, K=256, N=512)
    launches = record(load_source(lowering.emit(schedule), "captured"), schedule.num_ranks)
    assert launches
    assert all("cubin" in compile_launch(launch, "sm_90").asm for launch in launches)


def test_each_operator_has_its_own_values() -> None:
    one, other = (made(power).spec.nodes[1].operation for power in (2.0, 3.0))
    assert one != other


@triton.jit  # type: ignore[untyped-decorator]
def takes_a_tuple(x, m, TILE_M: tl.constexpr):  # type: ignore[no-untyped-def]
    return tl.load(x + m + tl.arange(0, TILE_M)) * WIDTHS[1]


@triton.jit  # type: ignore[untyped-decorator]
def takes_what_is_not_there(x, m, TILE_M: tl.constexpr):  # type: ignore[no-untyped-def]
    return tl.load(x + m + tl.arange(0, TILE_M)) * NOWHERE  # type: ignore[name-defined] # noqa: F821


@triton.jit  # type: ignore[untyped-decorator]
def takes_a_module(x, m, TILE_M: tl.constexpr):  # type: ignore[no-untyped-def]
    return pytest.approx(tl.load(x + m + tl.arange(0, TILE_M)))


def takes_a_class(x):  # type: ignore[no-untyped-def]
    return x * Overlap(x)  # type: ignore[call-arg]


@triton.jit  # type: ignore[untyped-decorator]
def plain(x, m, TILE_M: tl.constexpr):  # type: ignore[no-untyped-def]
    return tl.load(x + m + tl.arange(0, TILE_M))


@pytest.mark.parametrize(
    ("body", "reference", "reason", "line"),
    [
        (takes_a_tuple, None, "it uses 'WIDTHS' of your file, a tuple", "WIDTHS[1]"),
        (takes_what_is_not_there, None, "it uses 'NOWHERE', which is not defined", "NOWHERE"),
        (takes_a_module, None, "it uses 'pytest' of your file, the module pytest", "pytest.approx"),
        (plain, takes_a_class, "it uses 'Overlap' of your file", "return x * Overlap(x)"),
    ],
)
def test_what_cannot_come_along_is_refused_at_its_line(body: object, reference: object, reason: str, line: str) -> None:
    with pytest.raises(BadUserOp) as caught:
        tilelink.op(reads={"x": (m,)}, writes=(m,), reference=reference)(body)  # type: ignore[arg-type]
    assert reason in str(caught.value.facts["reason"])
    assert line in blamed_line(caught.value, __file__)
