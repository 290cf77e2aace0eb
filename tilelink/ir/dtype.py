"""Element types: a row each. Products and sums of all of them are accumulated in fp32, elementwise functions computed in it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dtype:
    """`name` is that of specs and descriptors, `torch` and `triton` are those of the two libraries, `spelled` are others that a
    user may write. `tensor_cores`: whether tensor cores multiply it as it is, with nothing rounded before. `integer`: of
    numbers that say what is done, not of what is computed.
    """

    name: str
    bytes: int
    torch: str
    triton: str
    tensor_cores: bool = True
    integer: bool = False
    spelled: tuple[str, ...] = ()


_ROWS = (
    Dtype("bf16", 2, "bfloat16", "bfloat16"),
    Dtype("fp16", 2, "float16", "float16", spelled=("half",)),
    Dtype("fp32", 4, "float32", "float32", tensor_cores=False, spelled=("float",)),
    Dtype("int32", 4, "int32", "int32", tensor_cores=False, integer=True, spelled=("int",)),
)
DTYPES = {row.name: row for row in _ROWS}
FLOATS = tuple(row.name for row in _ROWS if not row.integer)
DTYPE_BYTES = {row.name: row.bytes for row in _ROWS}
_SPELLED = {spelled: row.name for row in _ROWS for spelled in (row.name, row.torch, *row.spelled)}


def is_torch_dtype(value: object) -> bool:
    """Whether `value` is a `torch.dtype`, told without torch."""
    return type(value).__name__ == "dtype" and type(value).__module__ == "torch"


def dtype_name(dtype: object) -> str:
    """`bf16` for `torch.bfloat16`, `"bfloat16"` or `"torch.bfloat16"`; what is not known comes back as text, for `bind` to
    refuse."""
    return _SPELLED.get(str(dtype).removeprefix("torch."), str(dtype))
