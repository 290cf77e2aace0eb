"""The API data: what the facts say of functions, vendors and constants, by their own words."""

from __future__ import annotations

import pytest

from tilelink.dialect_api import CONSTANTS, FUNCTIONS, Function, Vendor, find, of_vendor
from tilelink.stubs.functions import MODULES, constants_of, exists, names_of
from tilelink.stubs.model import Effect, Exact, Place, Reach, Symbol, Unsaid

SHMEM = "triton_dist.language.extra.libshmem_device"


def known(path: str) -> Function:
    function = find(path)
    assert function is not None, path
    return function


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "triton_dist.language.wait",
            "wait(barrierPtrs, numBarriers, scope, semantic, waitValue=1) -> int32 token",
        ),
        ("triton_dist.language.consume_token", "consume_token(value, token) -> value"),
        ("triton_dist.language.notify", 'notify(ptr, rank, signal=1, sig_op="set", comm_scope="inter_node")'),
        ("triton_dist.language.symm_at", "symm_at(ptr, rank) -> pointer"),
        ("triton_dist.language.num_ranks", "num_ranks(axis=-1) -> int32"),
        (
            f"{SHMEM}.putmem_signal_nbi_warp",
            "putmem_signal_nbi_warp(dest, source, bytes, sig_addr, signal, sig_op, pe)",
        ),
        (f"{SHMEM}.signal_wait_until", "signal_wait_until(sig_addr, cmp_, cmp_val)"),
        (f"{SHMEM}.remote_mc_ptr", "remote_mc_ptr(team, ptr) -> pointer"),
        ("triton_dist.language.extra.language_extra.st", 'st(ptr, val, scope="gpu", semantic="relaxed")'),
        ("triton_dist.language.extra.cuda.language_extra.red_release", 'red_release(ptr, value, scope="gpu")'),
        (
            "triton_dist.utils.nvshmem_create_tensors",
            "nvshmem_create_tensors(shape, dtype, rank, local_world_size) -> list of Tensor",
        ),
        (
            "triton_dist.kernels.nvidia.common_ops._memcpy_async_cuda",
            "_memcpy_async_cuda(dst, src, nbytes, stream=None)",
        ),
    ],
)
def test_signatures(path: str, text: str) -> None:
    assert known(path).text() == text


def test_the_same_function_by_another_path() -> None:
    portable = known("triton_dist.language.extra.language_extra.ld")
    assert known("triton_dist.language.extra.cuda.language_extra.ld") is portable
    assert known("triton_dist.language.extra.hip.language_extra.ld") is portable
    assert known("triton_dist.language.extra.cuda.libnvshmem_device.my_pe") is known(f"{SHMEM}.my_pe")
    assert find("triton_dist.language.waits") is None


def test_names_are_unique_in_their_module() -> None:
    paths = [f"{path}.{function.name}" for function in FUNCTIONS for path in function.import_paths]
    assert len(paths) == len(set(paths)) > 180
    assert len({constant.name for constant in CONSTANTS}) == len(CONSTANTS)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.path)
def test_every_entry_is_whole(function: Function) -> None:
    assert function.meaning and function.vendors and function.source in "1234"
    assert function.import_paths[0] in {module.path for module in MODULES}
    if isinstance(function.signature, Unsaid) and function.name != "jit":
        assert function.unsaid, "an open signature says that it is"
    if isinstance(function.signature, Exact):
        required = [parameter.required for parameter in function.signature.parameters]
        assert required == sorted(required, reverse=True), "defaults come last"


def test_collective_variants() -> None:
    puts = {function.name for function in FUNCTIONS if function.name.startswith("putmem_signal_nbi")}
    assert puts == {f"putmem_signal_nbi{suffix}" for suffix in ("", "_warp", "_block", "_wave", "_wg")}
    assert known(f"{SHMEM}.getmem_block").reach is Reach.BLOCK
    assert exists(f"{SHMEM}.team_sync_warp") and not exists(f"{SHMEM}.team_sync")


def test_what_amd_does_not_have() -> None:
    roc = {function.name for function in of_vendor(Vendor.ROCSHMEM)}
    mori = {function.name for function in of_vendor(Vendor.MORI)}
    assert not roc & {"quiet", "signal_op", "remote_mc_ptr", "notify", "putmem_block", "putmem_nbi_warp", "red_release"}
    assert {"putmem_nbi_wg", "putmem_signal_wg", "putmem_signal_wave", "wait"} <= roc
    assert {"quiet", "signal_op", "putmem_nbi_signal", "putmem_signal_nbi_block"} <= mori
    assert not mori & {"notify", "remote_mc_ptr", "putmem_wg"}
    assert known(f"{SHMEM}.putmem_nbi").text(Vendor.MORI) == "putmem_nbi(dest, source, bytes, pe, qp_id=0)"
    assert known(f"{SHMEM}.putmem_nbi").text(Vendor.NVIDIA) == "putmem_nbi(dest, source, bytes, pe)"


def test_constants_differ_between_vendors() -> None:
    values = {constant.name: constant.value for constant in CONSTANTS}
    compare = [values[f"NVSHMEM_CMP_{name}"] for name in ("EQ", "NE", "GT", "LE", "LT", "GE")]
    assert compare == [0, 1, 2, 3, 4, 5]
    assert [values[f"ROCSHMEM_CMP_{name}"] for name in ("GE", "LT", "LE")] == [3, 4, 5]
    operations = {vendor: [constant.value for constant in constants_of(Symbol.SIGNAL_OP, vendor)] for vendor in Vendor}
    assert operations == {Vendor.NVIDIA: [9, 10], Vendor.ROCSHMEM: [0, 1], Vendor.MORI: [9, 10]}


def test_places_and_effects() -> None:
    assert known("triton_dist.utils.finalize_distributed").place is Place.HOST
    assert known("triton_dist.language.rank").place is Place.DEVICE
    assert known("triton_dist.kernels.nvidia.common_ops.barrier_on_this_grid").place is Place.KERNEL
    assert known("triton_dist.utils.nvshmem_create_tensor").effect is Effect.ALLOCATE
    assert known("triton_dist.language.extra.cuda.language_extra.arrive_inc").effect is Effect.BARRIER


def test_modules_list_their_names() -> None:
    assert {"wait", "notify", "tma"} <= set(names_of("triton_dist.language"))
    assert {"NVSHMEM_SIGNAL_ADD", "putmem"} <= set(names_of("triton_dist.language.extra.cuda.libnvshmem_device"))
    assert "NVSHMEM_SIGNAL_DTYPE" in names_of("triton_dist.utils")
