# Written by python -m tilelink.stubs.write from the API data: do not edit.
from typing import Any
from triton_dist._types import other

class Optional(Any): ...
_wait_eq_hip = _set_signal_hip = barrier_all_on_stream = other
barrier_all_ipc_kernel = barrier_all_ipc_kernel_v2 = barrier_all_kernel = other
barrier_all_kernel_v2 = HIP_CHECK = __syncthreads = _is_cta_master = other
_is_gpu_master = atomic_add = atomic_cas = barrier_on_this_grid = other
cooperative_barrier_on_this_grid = dl = get_shmem_backend = hip = load = other
load_envreg = load_grid_ws_abi_address = mori_shmem_barrier_all_on_stream = other
rocshmem_barrier_all_on_stream = sync_grid = tid = tl = torch = triton = other
triton_dist = unsafe_barrier_on_this_grid = other
