# Written by python -m tilelink.stubs.write from the API data: do not edit.
from typing import Any
from triton_dist._types import other

class Version(Any): ...
jit = TORCH_VERSION = apply_triton340_inductor_patch = require_patched_torch = other
torch = triton = triton_version = other
