# Written by python -m tilelink.stubs.write from the API data: do not edit.
from typing import Any
from triton_dist._types import other

class SharedMemDescType(Any): ...
class SharedMemoryDesc(Any): ...
SMEM_GENERIC_POINTER_ADDR_SPACE = _memdesc_handle_and_element_ty = other
_smem_generic_ptr_ty = _to_ir_index = _to_ir_stored_scalar = allocate_smem = other
builtin = constexpr = get_smem_shared_address_u32 = math = smem_dealloc = other
smem_get_ptr = smem_index = smem_load = smem_store = tl = tlc = other
