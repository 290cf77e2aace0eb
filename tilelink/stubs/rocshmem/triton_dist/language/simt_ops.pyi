# Written by python -m tilelink.stubs.write from the API data: do not edit.
from typing import Any
from triton_dist._types import other

class List(Any): ...
class Optional(Any): ...
class Sequence(Any): ...
base_type = builtin = builtins = constexpr = dtype = extract = fill_vector = other
get_int_dtype = insert = ir = make_vector = simt_exec_region = tl = tlc = triton = other
vector = vector_add = vector_binOp = vector_mul = vector_sub = vector_type = other
zeros_vector = other
