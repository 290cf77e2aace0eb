# Written by python -m tilelink.stubs.write from the API data: do not edit.
from typing import Any
from triton_dist._types import other

class PipelineState(Any): ...
class TmaPipeline(Any): ...
ELEM_BF16 = ELEM_F32 = FILL_NONE = INTERLEAVE_NONE = SWIZZLE_128B = SWIZZLE_NONE = other
create_tmap_2d = store_and_wait = tmap_update_address = other
