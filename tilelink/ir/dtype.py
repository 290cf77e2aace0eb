"""Element types by the names that specs use; those of torch are other spellings of the same."""

from __future__ import annotations

DTYPES = ("bf16", "fp16", "fp32")
_SPELLED = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}


def is_torch_dtype(value: object) -> bool:
    """Whether `value` is a `torch.dtype`, told without torch."""
    return type(value).__name__ == "dtype" and type(value).__module__ == "torch"


def dtype_name(dtype: object) -> str:
    """`bf16` for `torch.bfloat16`, `"bfloat16"` or `"torch.bfloat16"`; what is not known comes back as text, for `bind` to
    refuse."""
    name = str(dtype).removeprefix("torch.")
    return _SPELLED.get(name, name if name in DTYPES else str(dtype))
