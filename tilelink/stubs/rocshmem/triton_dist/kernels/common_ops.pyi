# Written by python -m tilelink.stubs.write from the API data: do not edit.
from triton_dist._types import other

wait_eq = set_signal = fence = globaltimer = pack_b32_v2 = _to_rocm_scope = other
_to_rocm_semantic = core = cuda_globaltimer = cuda_globaltimer_lo = fence_amd = other
fence_nv = globaltimer_lo = is_cuda = is_hip = is_maca = pack_b32_v2_amd = other
pack_b32_v2_nv = smid = tl = triton = wallclock = other
