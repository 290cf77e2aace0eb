# Written by python -m tilelink.stubs.write from the API data: do not edit.
from triton_dist._types import other

barrier_all = barrier_all_vec = core = extern_call = int_p = my_pe = n_pes = other
pi_u64_t = remote_ptr = tl = void_ptr = other
