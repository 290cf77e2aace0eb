"""What a kernel may use of the language, and that the same process can compile before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.emulator import ag_gemm_source, kernels
from tilelink.emulator import World

if TYPE_CHECKING:
    from pathlib import Path


def launch(kernel: object, *args: object, **options: object) -> None:
    world = World(1, num_sms=2)
    world.fabrics[0].main().launch(kernel, (1,), *args, **options)
    world.run()


def test_constants_of_the_module_are_integers() -> None:
    out = torch.zeros(64, dtype=torch.int32)
    launch(kernels.sizes, out, (1, 2, 3, 4), num_warps=4)
    total = 2 * (16 + 32 + 48) + 10 + 3
    assert torch.equal(out, total + torch.arange(64, dtype=torch.int32) * 32)


@pytest.mark.parametrize("address", [64, 2**31 - 64, 2**31, 2**40])
def test_addresses_may_be_low(address: int) -> None:
    """Such that fit int32, which a heap below 4 GiB has."""
    out = torch.zeros(1, dtype=torch.int64)
    launch(kernels.address_of_words, out, address)
    assert out.item() == address


def test_integer_division_truncates_as_on_the_gpu() -> None:
    out = torch.zeros(5, dtype=torch.int32)
    launch(kernels.truncation, out, 6)
    # the last one is computed by the compiler, with Python's rules
    assert out.tolist() == [-2, -1, -1, -1, -2]


@pytest.mark.parametrize("pick", [0, 1])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_descriptor_chosen_by_if(pick: int, dtype: torch.dtype) -> None:
    tensors = [torch.randn(16, 16).to(dtype) for _ in range(2)]
    out = torch.zeros(16, 16, dtype=dtype)
    described = [TensorDescriptor(x, list(x.shape), list(x.stride()), [16, 8]) for x in tensors]
    launch(kernels.descriptors, *described, out, pick, SIDE=16)
    assert torch.equal(out, tensors[pick])


def test_atomics_return_what_was_there() -> None:
    words = torch.tensor([1, 2, 3, 4], dtype=torch.int32)
    old = torch.zeros(4, dtype=torch.int32)
    launch(kernels.atomics, words, old)
    assert old.tolist() == [1, 2, 3, 4]
    assert words.tolist() == [6, 8, 9, 8]


def test_known_inline_assembly() -> None:
    out = torch.zeros(1, dtype=torch.int32)
    launch(kernels.known_asm, out)
    assert out.item() == 7


@pytest.mark.slow
def test_compiles_before_and_after_an_emulation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_ALWAYS_COMPILE", "1")
    first = compiled_text()
    assert "ld.global.sys.acquire" in first
    before = {name: vars(tl)[name] for name in ("load", "range", "arange", "reduce")}
    a = torch.ones(16, 16).bfloat16()
    launch(kernels.dot, a, a, torch.zeros(16, 16), N=16)
    world = World(2, num_sms=5)
    for fabric in world.fabrics:
        ag_gemm_source.AgGemm(fabric, "SMs")(torch.ones(128, 64).bfloat16(), torch.ones(64, 64).bfloat16())
    world.run()
    assert {name: vars(tl)[name] for name in before} == before
    assert compiled_text() == first


def test_a_failed_run_restores_the_language_too() -> None:
    before = vars(tl)["load"]
    with pytest.raises(Exception, match="fails"):
        launch(kernels.fails, torch.zeros(64))
    assert vars(tl)["load"] is before


def compiled_text() -> str:
    """PTX of the emulated AllGather + GEMM kernel: waits, module constants, a loop over tiles."""
    pointers = dict.fromkeys(("x", "full", "w", "out"), "*bf16") | dict.fromkeys(("epoch", "signal"), "*i32")
    signature = {**pointers, "rank": "i32", "num_ranks": "constexpr"}
    source: Any = ASTSource(ag_gemm_source.gemm, signature, {"num_ranks": 4})
    return str(triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"])
