"""Every device function compiles for sm_90 on stock Triton, with the orders and scopes that it has in the dialect."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.errors import CompilationError
from triton.runtime.jit import MockTensor

from tests.compat.triton_dist.shimmed import load
from tilelink.compat.triton_dist import install
from tilelink.compat.triton_dist.device.meetings import meet_on_stream
from tilelink.compat.triton_dist.kernels import EXTERN_LIBS, DeviceFunction, Kernel

FILE = Path(__file__).with_name("compile_kernels.py")
DATA = {"data": "*fp32", "signal": "*i64", "word": "*i32", "size": "i32"}
WORDS = {"narrow": "*i32", "wide": "*i64"}


@cache
def kernels() -> Any:
    assert install()
    return load(FILE, "dialect_kernels_to_compile")


def ptx(kernel: Any, signature: dict[str, str], stage: str = "ptx", **constants: Any) -> str:
    """PTX, or the text of an earlier stage, of a kernel whose pointers are aligned; the binary is made as well."""
    types = {**signature, **dict.fromkeys(constants, "constexpr")}
    aligned = {
        (i,): [["tt.divisibility", 16]] for i, kind in enumerate(types.values()) if kind[0] == "*" or kind == "i32"
    }
    source = ASTSource(fn=kernel, signature=types, constexprs=constants, attrs=aligned)
    libraries = EXTERN_LIBS if isinstance(kernel, Kernel) else {}
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"extern_libs": libraries})
    assert compiled.asm["cubin"]
    text: str = compiled.asm[stage]
    return text


def in_order(text: str, *patterns: str) -> None:
    """Each pattern is found behind the one before."""
    at = 0
    for pattern in patterns:
        match = re.compile(pattern).search(text, at)
        assert match is not None, f"no {pattern} behind {text[max(0, at - 200) : at]}"
        at = match.end()


def test_wait_polls_in_every_warp_and_its_loads_follow() -> None:
    text = ptx(
        kernels().waits, {"x": "*fp32", "signals": "*i64", "narrow": "*i32", "out": "*fp32", "count": "i32"}, N=512
    )
    in_order(
        text,
        r"mov\.u32 %lane, %laneid",
        r"ld\.acquire\.sys\.global\.b64 %found",
        r"setp\.ne\.b64",
        r"bar\.warp\.sync 0xffffffff",
        r"ld\.global\.v4",
        r"st\.global\.v4",
        r"ld\.relaxed\.gpu\.global\.b32 %found",
    )
    assert not re.search(r"bar(rier)?\.sync", text)


def test_a_pipelined_loop_loads_behind_each_wait() -> None:
    signature = {"a": "*bf16", "b": "*bf16", "out": "*fp32", "signals": "*i64", "K": "i32"}
    kernel = kernels().gemm_that_waits_for_each_slice
    text = ptx(kernel, signature, M=64, N=64, BLOCK_K=64)
    in_order(text, *[r"ld\.acquire\.sys", r"cp\.async\.cg\.shared\.global \[[^\n]*0x10"] * 2, r"wgmma")
    # blocks of PTX stand in any order, those of Triton's IR as they are run
    loop = ptx(kernel, signature, "ttgir", M=64, N=64, BLOCK_K=64).split("scf.for")[1]
    in_order(loop, r"ld\.acquire\.sys", r"and\.b32 \$0, \$1, 0", r"async_copy_global_to_local")


def test_descriptor_loads_are_behind_the_wait_and_a_proxy_fence() -> None:
    signature = {"a": "tensordesc<bf16[64, 64]>", "b": "*bf16", "out": "*fp32", "signals": "*i64", "K": "i32"}
    kernel = kernels().gemm_by_descriptor
    loop = ptx(kernel, signature, "ttgir", M=64, N=64, BLOCK_K=64).split("scf.for")[1]
    in_order(loop, r"ld\.acquire\.sys", r"fence\.proxy\.async\.global", r"async_tma_copy_global_to_local")
    text = ptx(kernel, signature, M=64, N=64, BLOCK_K=64)
    in_order(text, r"ld\.acquire\.sys", r"fence\.proxy\.async\.global", r"cp\.async\.bulk\.tensor")


@pytest.mark.parametrize(
    ("scope", "fence", "reach"), [("gpu", "gl", "gpu"), ("intra_node", "sys", "sys"), ("inter_node", "sys", "sys")]
)
@pytest.mark.parametrize(
    ("op", "operation"), [("set", r"st\.relaxed\.{}\.global\.b64"), ("add", r"red\.relaxed\.{}\.global\.add\.u64")]
)
def test_notify_fences_in_one_thread(scope: str, fence: str, reach: str, op: str, operation: str) -> None:
    text = ptx(kernels().notifies, {"data": "*fp32", "signal": "*i64"}, N=512, OP=op, SCOPE=scope)
    in_order(
        text,
        r"ld\.global\.b64[^\n]*tilelink_triton_dist_state_d",
        r"st\.global\.v4",
        r"barrier\.sync 0",
        r"mov\.u32 %thread, %tid\.x",
        rf"@%first membar\.{fence}",
        rf"@%first {operation.format(reach)}",
    )


def test_words() -> None:
    in_order(
        ptx(kernels().words, WORDS),
        r"st\.release\.sys\.global\.b32",
        r"st\.relaxed\.gpu\.global\.b64",
        r"atom\.acq_rel\.sys\.global\.add\.u32",
        r"atom\.acquire\.gpu\.global\.cas\.b64",
        r"red\.release\.sys\.global\.add\.s32",
        r"red\.release\.gpu\.global\.add\.u64",
        r"ld\.acquire\.sys\.global\.b32 %found",  # wait_eq
        r"barrier\.sync 0",
        r"barrier\.sync 0",  # arrive_inc
        r"@%first red\.release\.gpu\.global\.add\.s32",
        r"ld\.acquire\.sys\.global\.b32",
        r"ld\.acquire\.gpu\.global\.b32",
        r"fence\.acq_rel\.sys",
        r"membar\.gl",
        r"cp\.async\.bulk\.wait_group 0",
    )


def test_vectors_and_threads() -> None:
    in_order(
        ptx(kernels().vectors, WORDS),
        r"ld\.relaxed\.sys\.global\.v4\.b32",
        r"st\.relaxed\.sys\.global\.v4\.b32",
        r"st\.relaxed\.sys\.global\.v2\.b32",
        r"st\.release\.sys\.global\.v4\.b32",
        r"ld\.acquire\.gpu\.global\.v4\.b32",
        r"ld\.relaxed\.sys\.global\.v2\.b64",
        r"mov\.b64",
    )
    text = ptx(kernels().threads, WORDS)
    for found in (
        r"shfl\.sync\.idx",
        r"shfl\.sync\.up",
        r"shfl\.sync\.down",
        r"shfl\.sync\.bfly",
        r"vote\.sync\.ballot",
    ):
        assert re.search(found, text)


def test_puts_copy_sixteen_bytes_a_thread_and_signal_behind_a_barrier() -> None:
    text = ptx(kernels().puts, DATA)
    in_order(text, r"ld\.global\.v2\.b64", r"st\.global\.v2\.b64", r"ld\.global\.b8", r"st\.global\.b8")
    in_order(
        text, r"st\.global\.b8", r"barrier\.sync 0", r"@%first membar\.sys", r"@%first st\.relaxed\.sys\.global\.b64"
    )
    in_order(text, r"red\.relaxed\.sys\.global\.add\.u64", r"ld\.acquire\.sys\.global\.b64", r"setp\.ge\.u64")
    in_order(text, r"st\.relaxed\.sys\.global\.b32", r"membar\.sys", r"membar\.sys")


@pytest.mark.parametrize("name", ["gets", "collectives", "gathers"])
def test_transfers(name: str) -> None:
    text = ptx(getattr(kernels(), name), {"data": "*fp32", "size": "i32"})
    in_order(text, r"ld\.global\.v2\.b64", r"st\.global\.v2\.b64")
    assert "barrier.sync 0" in text


@pytest.mark.parametrize("name", ["ranks_meet", "teams_meet"])
def test_ranks_meet(name: str) -> None:
    one = [
        r"barrier\.sync 0",
        r"@%first membar\.sys",
        r"@%first st\.relaxed\.sys",
        r"ld\.acquire\.sys",
        r"barrier\.sync 0",
    ]
    in_order(ptx(getattr(kernels(), name), {}), *one, *one)


def test_the_host_meeting_compiles() -> None:
    in_order(ptx(meet_on_stream, {}), r"@%first st\.relaxed\.sys", r"ld\.acquire\.sys")


def test_barriers_of_common_ops() -> None:
    signature = {"words": "*i32", "flags": "*i32", "rank": "i32", "num_ranks": "i32", "target": "i32"}
    in_order(
        ptx(kernels().grid_and_ranks_meet, signature),
        r"barrier\.sync 0",
        r"atom\.global\.gpu\.acq_rel\.add",
        r"atom\.global\.release\.sys\.cas",
        r"atom\.global\.acquire\.sys\.cas",
        r"atom\.global\.sys\.release\.exch",
    )


def test_multimem_compiles() -> None:
    in_order(
        ptx(kernels().multicasts, {"data": "*bf16", "wide": "*i64"}),
        r"multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f32\.v4\.bf16x2",
        r"multimem\.st\.relaxed\.sys\.global\.v4\.f32",
        r"multimem\.st\.relaxed\.sys\.global\.v2\.f32",
        r"multimem\.st\.relaxed\.sys\.global\.b32",
        r"multimem\.st\.relaxed\.sys\.global\.b64",
        r"@%p multimem\.st\.relaxed\.sys\.global\.b32",
        r"multimem\.ld_reduce\.relaxed\.sys\.global\.add\.v4\.bf16x2",
    )


@pytest.mark.parametrize(
    ("name", "signature", "reason"),
    [
        ("bad_scope", {"narrow": "*i32"}, "Legal: 'gpu', 'sys'"),
        ("bad_width", {"short": "*i16"}, "Legal: 32, 64"),
        ("too_many_words", {"wide": "*i64"}, "at most 32 words"),
    ],
)
def test_what_is_illegal_is_refused(
    name: str, signature: dict[str, str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knobs.compilation, "always_compile", True)
    with pytest.raises(CompilationError) as found:
        ptx(getattr(kernels(), name), signature)
    causes, error = [], found.value.__cause__
    while error is not None:
        causes.append(str(error))
        error = error.__cause__
    assert any(reason in text for text in causes)


def test_every_device_function_is_compiled_here() -> None:
    kernels()
    source = FILE.read_text(encoding="utf-8")
    names: dict[int, set[str]] = {}
    for module in [module for name, module in sys.modules.items() if name.startswith("triton_dist.language")]:
        for name, value in vars(module).items():
            if isinstance(value, DeviceFunction):
                names.setdefault(id(value), set()).add(name)
    assert len(names) > 60
    assert [
        sorted(known) for known in names.values() if not any(re.search(rf"\b{one}\(", source) for one in known)
    ] == []


class NoDriver:
    """A machine that compiles for sm_90 and runs nothing."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


def test_the_just_in_time_path_links_the_word_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.runtime.driver, "_active", NoDriver())
    data, signal = MockTensor(torch.float32), MockTensor(torch.int64)
    options = {"N": 512, "OP": "set", "SCOPE": "intra_node", "launch_cooperative_grid": True}
    compiled = kernels().notifies.warmup(data, signal, grid=(1,), **options)
    assert "tilelink_triton_dist_state_d" in compiled.asm["ptx"]
    assert compiled.metadata.launch_cooperative_grid
    again = meet_on_stream.warmup(grid=(1,))
    assert "tilelink_triton_dist_state_d" in again.asm["ptx"]
