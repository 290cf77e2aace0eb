# Written by python -m tilelink.stubs.write from the API data: do not edit.
from triton_dist._types import other

MXSHMEM_CMP_EQ = MXSHMEM_CMP_GE = MXSHMEM_CMP_GT = MXSHMEM_CMP_LE = other
MXSHMEM_CMP_LT = MXSHMEM_CMP_NE = MXSHMEM_CMP_SENTINEL = MXSHMEM_SIGNAL_ADD = other
MXSHMEM_SIGNAL_SET = _barrier_all_impl = _putmem_impl = _putmem_signal_impl = other
barrier_all = barrier_all_block = barrier_all_warp = core = extern_call = fence = other
int_p = my_pe = n_pes = pi_u64_t = putmem_block = putmem_nbi_block = other
putmem_nbi_warp = putmem_signal_block = putmem_signal_nbi_block = other
putmem_signal_nbi_warp = putmem_signal_warp = putmem_warp = remote_ptr = other
signal_op = signal_wait_until = sys = tl = void_ptr = other
