# Written by python -m tilelink.stubs.write from the API data: do not edit.
from triton_dist._types import other

ELEM_BF16 = ELEM_F32 = FILL_NONE = INTERLEAVE_NONE = SWIZZLE_128B = SWIZZLE_NONE = other
TMAP_RANK_2D = _BOX0 = _BOX1 = _ES0 = _ES1 = _GD0 = _GD1 = _GS0 = __syncthreads = other
_tensormap_build_publish_2d = bar_warp_sync = create_tmap_2d = other
cvta_global_to_generic_u64 = fence_proxy_tensormap_acquire = other
get_smem_shared_address_u32 = jit = tensormap_cp_fenceproxy = other
tensormap_replace_box_dim = tensormap_replace_element_stride = other
tensormap_replace_elemtype = tensormap_replace_fill_mode = other
tensormap_replace_global_address = tensormap_replace_global_dim = other
tensormap_replace_global_stride = tensormap_replace_interleave_layout = other
tensormap_replace_rank = tensormap_replace_swizzle_mode = other
tensormap_smem_zero_first_warp = tid = tl = tmap_update_address = other
