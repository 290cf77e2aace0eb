# Written by python -m tilelink.stubs.write from the API data: do not edit.
from triton_dist._types import other

_label_counter = _ptr_to_shared_u32 = bar_warp_sync = builtin = core = other
cp_async_bulk_commit_group = cp_async_bulk_global_to_shared = other
cp_async_bulk_shared_to_global = cp_async_bulk_wait_group = other
cvta_generic_to_shared = cvta_global_to_generic_u64 = elect_one_sync = other
fence_async_shared = fence_proxy_async = fence_proxy_tensormap_acquire = other
get_dynamic_smem_pointer = itertools = mbarrier_arrive = other
mbarrier_arrive_expect_tx = mbarrier_expect_transaction = other
mbarrier_expect_tx = mbarrier_init = mbarrier_invalidate = other
mbarrier_try_wait_parity = mbarrier_wait_parity = named_barrier_arrive = other
named_barrier_sync = prefetch_tensor_2d_l2 = prefetch_tensormap = other
tensormap_cp_fenceproxy = tensormap_replace_box_dim = other
tensormap_replace_element_stride = tensormap_replace_elemtype = other
tensormap_replace_fill_mode = tensormap_replace_global_address = other
tensormap_replace_global_dim = tensormap_replace_global_stride = other
tensormap_replace_interleave_layout = tensormap_replace_rank = other
tensormap_replace_swizzle_mode = tensormap_smem_zero_first_warp = tl = other
tma_load_2d = tma_load_2d_pred = tma_store_2d = warp_idx = other
