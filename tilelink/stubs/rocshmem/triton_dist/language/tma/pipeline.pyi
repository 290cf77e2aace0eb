# Written by python -m tilelink.stubs.write from the API data: do not edit.
from typing import Any
from triton_dist._types import other

class PipelineState(Any): ...
class SharedMemoryDesc(Any): ...
class TmaPipeline(Any): ...
cp_async_bulk_commit_group = cp_async_bulk_wait_group = jit = other
mbarrier_arrive = mbarrier_expect_tx = mbarrier_init = mbarrier_invalidate = other
mbarrier_wait_parity = smem_get_ptr = smem_index = store_and_wait = tl = tlc = other
tma_load_2d = tma_store_2d = triton = other
