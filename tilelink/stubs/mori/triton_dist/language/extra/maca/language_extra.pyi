# Written by python -m tilelink.stubs.write from the API data: do not edit.
from triton_dist._types import other

__syncthreads = core = tid = tl = other
