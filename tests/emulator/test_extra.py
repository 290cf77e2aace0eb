"""`triton.language.extra` and functions that a kernel knows by names of their own."""

# mypy: ignore-errors

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from triton.language import program_id
from triton.language.extra import libdevice
from triton.language.extra.cuda import gdc_wait, globaltimer, num_threads, smid

from tilelink.emulator import World
from tilelink.emulator.errors import UnknownOperation


@triton.jit
def registers(out):
    gdc_wait()
    tl.store(out, num_threads())
    tl.store(out + 1, tl.extra.cuda.num_warps())
    tl.store(out + 2 + program_id(0), smid() + 1)
    begin = globaltimer()
    while globaltimer() < begin + 5:
        pass


@triton.jit
def functions(x, out):
    value = tl.load(x + tl.arange(0, 16))
    tl.store(out + tl.arange(0, 16), libdevice.tanh(value) + libdevice.pow(value, value) + tl.math.rsqrt(value))


@triton.jit
def unknown(x, out):
    tl.store(out, libdevice.j1(tl.load(x)))


def test_special_registers() -> None:
    out = torch.zeros(5, dtype=torch.int32)
    world = World(1, num_sms=2)
    world.fabrics[0].main().launch(registers, (3,), out, num_warps=8)
    world.run()
    assert out.tolist() == [256, 8, 1, 2, 1]


def test_functions_of_libdevice() -> None:
    x, out = torch.rand(16) + 0.1, torch.zeros(16)
    world = World(1)
    world.fabrics[0].main().launch(functions, (1,), x, out)
    world.run()
    torch.testing.assert_close(out, torch.tanh(x) + x**x + torch.rsqrt(x))


def test_a_function_that_is_not_known() -> None:
    world = World(1)
    world.fabrics[0].main().launch(unknown, (1,), torch.ones(1), torch.ones(1))
    with pytest.raises(UnknownOperation, match="__nv_j1f of libdevice"):
        world.run()
