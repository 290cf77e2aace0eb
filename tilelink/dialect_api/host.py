"""The host runtime: set-up, symmetric tensors, stream waits and writes, barriers on streams and of grids."""

from __future__ import annotations

from tilelink.dialect_api.model import AMD, EVERY, Effect, Function, Place, Reach, Unsaid, Vendor
from tilelink.dialect_api.notation import signature

UTILS = "triton_dist.utils"
OPS = "triton_dist.kernels.common_ops"
CUDA_OPS = "triton_dist.kernels.nvidia.common_ops"
HIP_OPS = "triton_dist.kernels.amd.common_ops"
PYROCSHMEM = "pyrocshmem"
_SOURCE = "4"
_NVIDIA = (Vendor.NVIDIA,)

Row = tuple[str, str, Effect, str, str]

_UTILS: tuple[Row, ...] = (
    (
        "initialize_distributed",
        "seed:value=None initialize_shmem:value=True",
        Effect.NONE,
        "process group and SHMEM from RANK, LOCAL_RANK, WORLD_SIZE and LOCAL_WORLD_SIZE (8 if not set)",
        "ProcessGroup",
    ),
    ("init_nvshmem_by_torch_process_group", "pg:open", Effect.NONE, "starts SHMEM on a process group", ""),
    (
        "nvshmem_create_tensor",
        "shape:open dtype:dtype",
        Effect.ALLOCATE,
        "a symmetric tensor, not zeroed; fp8 as int8; synchronises the device",
        "Tensor",
    ),
    (
        "nvshmem_create_tensors",
        "shape:open dtype:dtype rank:rank local_world_size:value",
        Effect.ALLOCATE,
        "the symmetric tensors of all ranks of the node, by local rank",
        "list of Tensor",
    ),
    ("nvshmem_free_tensor_sync", "t:tensor", Effect.NONE, "frees a symmetric tensor", ""),
    ("nvshmem_barrier_all_on_stream", "stream:stream=None", Effect.NONE, "all ranks meet on a stream", ""),
    ("finalize_distributed", "", Effect.NONE, "ends SHMEM and the process group", ""),
    ("launch_cooperative_grid_options", "", Effect.NONE, "launch options for a grid that is resident at once", "dict"),
    ("is_nvshmem_multimem_supported", "", Effect.NONE, "whether multicast addresses exist", "bool"),
    ("supports_p2p_native_atomic", "", Effect.NONE, "whether links carry atomics", "bool"),
    ("has_tma", "", Effect.NONE, "whether the GPU has TMA", "bool"),
    ("has_fullmesh_nvlink", "", Effect.NONE, "whether every pair of GPUs has NVLink", "bool"),
    ("get_numa_node_count_in_group", "pg:open", Effect.NONE, "NUMA nodes of a group", "int"),
    ("get_group_numa_world_size", "pg:open", Effect.NONE, "ranks of a group in this NUMA node", "int"),
)
_CUDA_HOST: tuple[Row, ...] = (
    (
        "_wait_eq_cuda",
        "signal_tensor:signal_tensor signal:value stream:stream=None",
        Effect.NONE,
        "the stream waits until the word equals signal",
        "",
    ),
    (
        "_set_signal_cuda",
        "signal_tensor:signal_tensor signal:value stream:stream=None",
        Effect.NONE,
        "the stream writes the word",
        "",
    ),
    (
        "_memcpy_async_cuda",
        "dst:tensor src:tensor nbytes:bytes stream:stream=None",
        Effect.NONE,
        "the stream copies bytes",
        "",
    ),
    ("BarrierAllContext", "is_intra_node:value", Effect.NONE, "words of a barrier on a stream", "context"),
    (
        "barrier_all_on_stream",
        "ctx:open stream:stream=None",
        Effect.NONE,
        "all ranks meet; inside a node the stream is ignored and the non-atomic path does not replay in a graph",
        "",
    ),
)
_CUDA_KERNELS: tuple[Row, ...] = (
    ("barrier_on_this_grid", "ptr:open use_cooperative:value", Effect.BARRIER, "all programs of the launch meet", ""),
    (
        "barrier_all_intra_node_atomic_cas_block",
        "local_rank:rank rank:rank local_world_size:value symm_flag_ptr:pointer",
        Effect.BARRIER,
        "the ranks of the node meet by compare and swap 0, 1, 0; resets itself",
        "",
    ),
    (
        "barrier_all_intra_node_non_atomic",
        "local_rank:rank rank:rank num_ranks:value symm_flags:word32 target_value:value use_cooperative:value",
        Effect.BARRIER,
        "the ranks of the node meet through 2 num_ranks + 1 words; target_value grows from call to call",
        "",
    ),
    (
        "barrier_all_intra_node_non_atomic_block",
        "local_rank:rank rank:rank num_ranks:value symm_flags:word32 target_value:value",
        Effect.BARRIER,
        "the ranks of the node meet through 2 num_ranks words; target_value grows from call to call",
        "",
    ),
)
_HIP_HOST = (
    ("_wait_eq_hip", "the stream waits until the word equals a value"),
    ("_set_signal_hip", "the stream writes the word"),
    ("barrier_all_on_stream", "all ranks meet on a stream"),
)
_HIP_KERNELS = ("barrier_all_ipc_kernel", "barrier_all_ipc_kernel_v2", "barrier_all_kernel", "barrier_all_kernel_v2")
_PORTABLE = (
    ("wait_eq", Place.HOST, "the stream waits until the word equals a value"),
    ("set_signal", Place.HOST, "the stream writes the word"),
)
_PORTABLE_DEVICE = (
    ("fence", Effect.FENCE, "a fence"),
    ("globaltimer", Effect.NONE, "nanoseconds"),
    ("pack_b32_v2", Effect.NONE, "two 32-bit values as one of 64 bits"),
)


def _known(rows: tuple[Row, ...], module: str, vendors: tuple[Vendor, ...], place: Place) -> tuple[Function, ...]:
    return tuple(
        Function(
            name,
            (module,),
            signature(text),
            vendors,
            place,
            effect,
            meaning,
            _SOURCE,
            returns,
            Reach.GROUP if effect is Effect.ALLOCATE else Reach.PROGRAM if place is Place.KERNEL else Reach.OPEN,
        )
        for name, text, effect, meaning, returns in rows
    )


def _named(name: str, module: str, vendors: tuple[Vendor, ...], place: Place, effect: Effect, meaning: str) -> Function:
    return Function(name, (module,), Unsaid(), vendors, place, effect, meaning, _SOURCE, unsaid="the parameters")


FUNCTIONS = (
    *_known(_UTILS, UTILS, EVERY, Place.HOST),
    _named(
        "has_nvshmemi_bc_built", UTILS, EVERY, Place.HOST, Effect.NONE, "whether the bitcode of putmem_rma was built"
    ),
    _named("NVSHMEMLazyAllocator", UTILS, EVERY, Place.HOST, Effect.NONE, "allocates symmetric tensors when asked"),
    *_known(_CUDA_HOST, CUDA_OPS, _NVIDIA, Place.HOST),
    *_known(_CUDA_KERNELS, CUDA_OPS, _NVIDIA, Place.KERNEL),
    *(_named(name, HIP_OPS, AMD, Place.HOST, Effect.NONE, meaning) for name, meaning in _HIP_HOST),
    *(_named(name, HIP_OPS, AMD, Place.KERNEL, Effect.BARRIER, "the ranks of the node meet") for name in _HIP_KERNELS),
    *(_named(name, OPS, EVERY, place, Effect.NONE, meaning) for name, place, meaning in _PORTABLE),
    *(_named(name, OPS, EVERY, Place.DEVICE, effect, meaning) for name, effect, meaning in _PORTABLE_DEVICE),
    *_known(
        (
            (
                "rocshmem_create_tensor_list_intra_node",
                "shape:open dtype:dtype",
                Effect.ALLOCATE,
                "the symmetric tensors of all ranks of the node",
                "list of Tensor",
            ),
        ),
        PYROCSHMEM,
        (Vendor.ROCSHMEM,),
        Place.HOST,
    ),
)
NAMES = ((UTILS, "NVSHMEM_SIGNAL_DTYPE"),)  # values that are no functions
