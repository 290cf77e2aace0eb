"""Names in emitted code."""

from __future__ import annotations

from tilelink.ir.dtype import DTYPES

TORCH = {name: f"torch.{row.torch}" for name, row in DTYPES.items()}
INT32_LIMIT = 2**31


def class_name(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))
