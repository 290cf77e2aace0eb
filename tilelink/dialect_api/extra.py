"""`language_extra`: threads, barriers, scoped loads, stores and atomics; the portable module, CUDA's and HIP's."""

from __future__ import annotations

from tilelink.dialect_api.model import AMD, EVERY, Effect, Function, Place, Reach, Unsaid, Vendor
from tilelink.dialect_api.notation import signature

EXTRA = "triton_dist.language.extra.language_extra"
CUDA = "triton_dist.language.extra.cuda.language_extra"
HIP = "triton_dist.language.extra.hip.language_extra"
_SOURCE = "3"
_NVIDIA = (Vendor.NVIDIA,)
_SHUFFLE = "the parameters, but for those of __shfl_sync_i32"

Row = tuple[str, str, Effect, str, str]

_PORTABLE: tuple[Row, ...] = (
    ("tid", "axis:value", Effect.NONE, "index of the thread in the program", "int32"),
    (
        "atomic_cas",
        "ptr:pointer cmp_val:value target_val:value scope:scope semantic:atomic_semantic",
        Effect.ATOMIC,
        "compare and swap, by each thread that comes by",
        "old value",
    ),
    (
        "atomic_add",
        'ptr:pointer val:value scope:scope="gpu" semantic:atomic_semantic="relaxed"',
        Effect.ATOMIC,
        "fetch and add, by each thread that comes by",
        "old value",
    ),
    ("__syncthreads", "", Effect.BARRIER, "all threads of the program meet", ""),
    ("ld", 'ptr:pointer scope:scope="gpu" semantic:load_semantic="relaxed"', Effect.LOAD, "a scoped load", "value"),
    (
        "st",
        'ptr:pointer val:value scope:scope="gpu" semantic:store_semantic="relaxed"',
        Effect.STORE,
        "a scoped store; with release it is a signal",
        "",
    ),
    (
        "ld_vector",
        "ptr:pointer vec_size:value scope:scope semantic:load_semantic",
        Effect.LOAD,
        "a vector load of one thread",
        "vector",
    ),
    (
        "st_vector",
        "ptr:pointer vec:value scope:scope semantic:store_semantic",
        Effect.STORE,
        "a vector store of one thread",
        "",
    ),
    ("pack", "src:value dst_type:dtype", Effect.NONE, "several narrow values as one wide", "value"),
    ("unpack", "src:value dst_type:dtype", Effect.NONE, "one wide value as several narrow", "vector"),
    ("threads_per_warp", "", Effect.NONE, "32, on AMD 64", "constexpr"),
    ("num_threads", "", Effect.NONE, "threads of the program", "constexpr"),
    ("num_warps", "", Effect.NONE, "warps of the program", "constexpr"),
)

_CUDA_ROWS: tuple[Row, ...] = (
    ("ntid", "axis:value", Effect.NONE, "threads of the program", "int32"),
    ("laneid", "", Effect.NONE, "index of the thread in its warp", "int32"),
    (
        "wait_eq",
        "ptr:pointer thread_idx:value value:value scope:scope",
        Effect.WAIT,
        "spins until the word equals value",
        "",
    ),
    (
        "arrive_inc",
        "ptr:word32 thread_idx:value value:value scope:scope",
        Effect.BARRIER,
        "__syncthreads, then thread 0 adds value with release",
        "",
    ),
    ("red_release", 'ptr:word32 value:value scope:scope="gpu"', Effect.RAISE, "adds to an int32 word with release", ""),
    ("ld_acquire", 'ptr:pointer scope:scope="gpu"', Effect.LOAD, "an acquiring load", "value"),
    (
        "atomic_add_per_warp",
        "ptr:pointer value:value scope:scope semantic:atomic_semantic",
        Effect.ATOMIC,
        "fetch and add, once a warp",
        "old value",
    ),
    ("__shfl_sync_i32", "mask:value val:value lane:value", Effect.NONE, "the value of another lane", "int32"),
    ("__ballot_sync", "mask:value pred:value", Effect.NONE, "which lanes hold true", "uint32"),
    ("load_v4_u32", "ptr:pointer", Effect.LOAD, "a 16-byte load", "4 x u32"),
    (
        "load_v4_b32",
        'ptr:pointer scope:maybe_scope="" semantic:maybe_load=""',
        Effect.LOAD,
        "a 16-byte load",
        "4 x b32",
    ),
    ("load_v4_s32", "ptr:pointer", Effect.LOAD, "a 16-byte load", "4 x s32"),
    ("load_v2_b64", "ptr:pointer", Effect.LOAD, "a 16-byte load", "2 x b64"),
    ("st_v4_u32", "ptr:pointer val0:value val1:value val2:value val3:value", Effect.STORE, "a 16-byte store", ""),
    (
        "st_v4_b32",
        'ptr:pointer val0:value val1:value val2:value val3:value scope:maybe_scope="" semantic:maybe_store=""',
        Effect.STORE,
        "a 16-byte store",
        "",
    ),
    ("st_v2_u32", "ptr:pointer val0:value val1:value", Effect.STORE, "an 8-byte store", ""),
    ("multimem_st_b64", "ptr:pointer v:value", Effect.STORE, "8 bytes to all ranks through the switch", ""),
    ("multimem_st_b32", "ptr:pointer v:value", Effect.STORE, "4 bytes to all ranks through the switch", ""),
    ("multimem_st_v2", "ptr:pointer v0:value v1:value", Effect.STORE, "8 bytes to all ranks through the switch", ""),
    (
        "multimem_st_v4",
        "ptr:pointer v0:value v1:value v2:value v3:value",
        Effect.STORE,
        "16 bytes to all ranks through the switch",
        "",
    ),
    (
        "multimem_st_p_b32",
        "ptr:pointer val:value mask:value",
        Effect.STORE,
        "a predicated multimem store; broken by its own comment",
        "",
    ),
    (
        "multimem_ld_reduce_v4",
        "ptr:pointer acc_dtype:dtype=None",
        Effect.LOAD,
        "16 bytes added up over all ranks by the switch; bf16 and fp16 in fp32",
        "4 x b32",
    ),
    ("pack_b32_v2", "v0:value v1:value", Effect.NONE, "two 32-bit values as one of 64 bits", "b64"),
    ("smid", "", Effect.NONE, "index of the SM", "int32"),
    ("membar", 'scope:open="cta"', Effect.FENCE, "a fence", ""),
    ("fence", "semantic:open scope:open", Effect.FENCE, "a fence", ""),
    ("tma_sync", "N:value=0", Effect.FENCE, "waits for all but N bulk copies of this thread", ""),
)
_CUDA_NAMES = (
    ("__shfl_up_sync_i32", Effect.NONE, "the value of a lower lane", _SHUFFLE),
    ("__shfl_down_sync_i32", Effect.NONE, "the value of a higher lane", _SHUFFLE),
    ("__shfl_xor_sync_i32", Effect.NONE, "the value of another lane", _SHUFFLE),
    ("ld_b32", Effect.LOAD, "a 4-byte load", "the parameters"),
    ("st_b32", Effect.STORE, "a 4-byte store", "the parameters"),
    ("multimem_ld_reduce_p_v4", Effect.LOAD, "a predicated multimem load; broken by its own comment", "the parameters"),
    ("globaltimer", Effect.NONE, "nanoseconds", "the parameters"),
    ("globaltimer_lo", Effect.NONE, "low half of the nanoseconds", "the parameters"),
    ("globaltimer_hi", Effect.NONE, "high half of the nanoseconds", "the parameters"),
)
_HIP_NAMES = (
    ("sync_grid", Effect.BARRIER, "all programs of the launch meet"),
    ("smid", Effect.NONE, "index of the compute unit"),
    ("seid", Effect.NONE, "index of the shader engine"),
    ("cuid", Effect.NONE, "index of the compute unit in its engine"),
    ("xccid", Effect.NONE, "index of the die"),
    ("wallclock", Effect.NONE, "clock ticks"),
    ("fence", Effect.FENCE, "a fence"),
    ("__shfl_sync_i32", Effect.NONE, "the value of another lane"),
    ("__shfl_up_sync_i32", Effect.NONE, "the value of a lower lane"),
    ("__shfl_down_sync_i32", Effect.NONE, "the value of a higher lane"),
    ("__shfl_xor_sync_i32", Effect.NONE, "the value of another lane"),
)


def _known(rows: tuple[Row, ...], paths: tuple[str, ...], vendors: tuple[Vendor, ...]) -> tuple[Function, ...]:
    return tuple(
        Function(
            name,
            paths,
            signature(text),
            vendors,
            Place.DEVICE,
            effect,
            meaning,
            _SOURCE,
            returns,
            Reach.PROGRAM if effect is Effect.BARRIER else Reach.THREAD,
        )
        for name, text, effect, meaning, returns in rows
    )


FUNCTIONS = (
    *_known(_PORTABLE, (EXTRA, CUDA, HIP), EVERY),
    *_known(_CUDA_ROWS, (CUDA,), _NVIDIA),
    *(
        Function(name, (CUDA,), Unsaid(), _NVIDIA, Place.DEVICE, effect, meaning, _SOURCE, unsaid=unsaid)
        for name, effect, meaning, unsaid in _CUDA_NAMES
    ),
    *(
        Function(name, (HIP,), Unsaid(), AMD, Place.DEVICE, effect, meaning, _SOURCE, unsaid="the parameters")
        for name, effect, meaning in _HIP_NAMES
    ),
)
