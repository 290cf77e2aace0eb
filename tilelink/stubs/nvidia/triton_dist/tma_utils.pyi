# Written by python -m tilelink.stubs.write from the API data: do not edit.
from typing import Any
from triton_dist._types import other

class CUdeviceptr(Any): ...
class CUresult(Any): ...
class CUtensorMap(Any): ...
class Tuple(Any): ...
CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = CU_TENSOR_MAP_DATA_TYPE_FLOAT32 = other
CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = CU_TENSOR_MAP_INTERLEAVE_NONE = other
CU_TENSOR_MAP_L2_PROMOTION_L2_256B = CU_TENSOR_MAP_SWIZZLE_128B = other
CU_TENSOR_MAP_SWIZZLE_NONE = TENSORMAP_SIZE_BYTES = _cuda_driver = _libcuda = other
_tensor_map_dtype = create_tensormap_2d = create_tmap_scratch = ctypes = other
cuuint32_t = cuuint64_t = sys = torch = other
