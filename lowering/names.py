"""Names in emitted code: derived from the schedule's, never counters."""

from __future__ import annotations

import keyword
from collections.abc import Iterable

from tilelink.ir.dtype import DTYPES

TORCH = {name: f"torch.{row.torch}" for name, row in DTYPES.items()}
TRITON = {name: f"tl.{row.triton}" for name, row in DTYPES.items()}
INT32_LIMIT = 2**31

_TAKEN = {
    "rank",
    "program",
    "tile",
    "half",
    "call",
    "epoch",
    "counts",
    "signals",
    "part",
    "peer",
    "chunk",
    "tl",
    "triton",
    "torch",
}
_WORDS = ("epoch", "counts", "signals", "signal_peers", "rank", "call")  # of the signal protocol


def value_name(name: str) -> str:
    """Variable of a value in a kernel."""
    taken = name in _TAKEN or keyword.iskeyword(name) or len(name) == 1
    return f"{name}_value" if taken else name


def pointer(buffer: str) -> str:
    return f"{buffer}_ptr"


def places(buffer: str) -> str:
    """Parameter with the addresses of all places of a pool."""
    return f"{buffer}_places"


def place(buffer: str) -> str:
    """Parameter with the place that a call has taken in a pool."""
    return f"{buffer}_place"


def class_name(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def element_bytes(dtype: str) -> int:
    return DTYPES[dtype].bytes


def in_order(parameters: Iterable[str]) -> list[str]:
    """Parameters of a function: tensors first, then the words of the signal protocol, the number of the call last."""
    names = dict.fromkeys(parameters)
    last = [*(name for name in names if name.endswith("_place")), *(name for name in _WORDS if name in names)]
    return [*(name for name in names if name not in last), *last]


def plus(*terms: str) -> str:
    """Sum of the terms that are not zero."""
    kept = [term for term in terms if term not in ("0", "")]
    return " + ".join(kept) if kept else "0"


def times(factor: str, size: str) -> str:
    if size == "1" or factor == "0":
        return factor
    simple = factor.endswith(("[:, None]", "[None, :]")) or " " not in factor or factor.startswith("(")
    return f"{factor} * {size}" if simple else f"({factor}) * {size}"


def is_wide(elements: int) -> bool:
    """Whether offsets up to `elements` do not fit the 32 bits that integers of kernels have."""
    return elements >= INT32_LIMIT


def element(index: str, size: str, elements: int) -> str:
    """Offset of the `index`-th run of `size` elements in a buffer of `elements`; in 64 bits where 32 are too few."""
    # a cast, not a method: the index of an unrolled loop is no tensor
    return f"tl.cast({index}, tl.int64) * {size}" if is_wide(elements) else f"{index} * {size}"
