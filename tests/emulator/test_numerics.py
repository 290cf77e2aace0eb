"""Arithmetic of emulated kernels against torch, bit by bit."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

from tests.emulator import kernels
from tilelink.emulator import World

COUNT = 512


def launch(kernel: object, *args: object, **options: object) -> None:
    world = World(1, num_sms=2)
    world.fabrics[0].main().launch(kernel, (1,), *args, **options)
    world.run()


def test_bf16_arithmetic_rounds_to_nearest_even() -> None:
    torch.manual_seed(0)
    a = torch.randn(COUNT).bfloat16()
    b = torch.randn(COUNT).bfloat16()
    out = torch.zeros(10, COUNT, dtype=torch.bfloat16)
    launch(kernels.bf16_arithmetic, a, b, out, N=COUNT)
    counted = (torch.arange(COUNT) * 37).bfloat16()
    wanted = [a + b, a * b, a - b, torch.maximum(a, b), (a.float() * 3).bfloat16(), counted]
    wanted += [a + 1.5, torch.minimum(a, b), a.abs(), -a]
    for row, (got, want) in enumerate(zip(out, wanted, strict=True)):
        assert torch.equal(got, want), f"row {row}"


def test_bf16_special_values_survive() -> None:
    special = torch.tensor([float("inf"), float("-inf"), float("nan"), -0.0, 3.4e38, 1e-40, 65504.0, 1.0])
    a = special.bfloat16()
    out = torch.zeros(10, 8, dtype=torch.bfloat16)
    launch(kernels.bf16_arithmetic, a, torch.ones(8).bfloat16(), out, N=8)
    numbers = ~a.isnan()
    assert torch.equal(out[1][numbers].view(torch.int16), a[numbers].view(torch.int16))
    assert bool(out[1][~numbers].isnan().all())


def test_bf16_reductions() -> None:
    a = torch.randint(-3, 4, (16, 16)).bfloat16()
    out = torch.zeros(33, dtype=torch.bfloat16)
    launch(kernels.bf16_reductions, a, out, N=16)
    assert torch.equal(out[:16], a.sum(1))
    assert torch.equal(out[16:32], a.max(0).values)
    assert torch.equal(out[32], a[0].sum())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_dot_accumulates_in_fp32(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    a, b = (torch.randn(32, 32).to(dtype) for _ in range(2))
    out = torch.zeros(32, 32)
    launch(kernels.dot, a, b, out, N=32)
    assert torch.allclose(out, a.float() @ b.float(), rtol=1e-5, atol=1e-5)


def test_bf16_atomic_add_counts_lanes_that_meet() -> None:
    out = torch.zeros(2, dtype=torch.bfloat16)
    launch(kernels.bf16_atomics, out, N=8)
    assert out.tolist() == [1 + 3 + 5 + 7, 2 + 4 + 6 + 8]


def test_erf() -> None:
    a = torch.linspace(-3, 3, 64)
    out = torch.zeros(64)
    launch(kernels.erf, a, out, N=64)
    assert torch.allclose(out, torch.erf(a), atol=1e-6)


def test_reductions_with_a_combine_function_and_scans() -> None:
    a = torch.randperm(16).float()
    out = torch.zeros(19)
    launch(kernels.combine, a, out, N=16)
    assert out[:3].tolist() == [15.0, float(a.argmax()), float(a.argmax())]
    assert torch.equal(out[3:], a.cumsum(0))


def test_dot_rounds_its_result() -> None:
    torch.manual_seed(2)
    a, b = (torch.randn(16, 16).bfloat16() for _ in range(2))
    out = torch.zeros(16, 16, dtype=torch.bfloat16)
    launch(kernels.dot, a, b, out, N=16, OUT=tl.bfloat16)
    assert torch.allclose(out.float(), (a.float() @ b.float()), rtol=2**-8, atol=1e-6)
