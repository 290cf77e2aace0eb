# Written by python -m tilelink.stubs.write from the API data: do not edit.
from triton_dist._types import other

dist_swizzle2d_Nz = gemm_swizzle2d_Nz = tl = triton = other
