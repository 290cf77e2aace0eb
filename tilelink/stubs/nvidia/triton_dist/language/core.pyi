# Written by python -m tilelink.stubs.write from the API data: do not edit.
from typing import Any
from triton_dist._types import other

class List(Any): ...
builtin = builtins = dispatch = extern_call = extern_elementwise = tensor = tl = other
