"""Element types of buffers, a row each."""

from __future__ import annotations

from tilelink.ir.dtype import DTYPES, dtype_name
from tilelink.ir.enums import Protocol
from tilelink.schedule.memory import Buffer

_INTEGERS = {"int32": 4, "int64": 8}  # of tables, words and places
NAMES = {**{name: row.torch for name, row in DTYPES.items()}, **{name: name for name in _INTEGERS}}
BYTES = {**{row.torch: row.bytes for row in DTYPES.values()}, **_INTEGERS}
DESCRIPTOR_BYTES = 16  # rows of what a descriptor describes begin at a multiple of so many


def element(buffer: Buffer) -> str:
    """The type of an element, as torch and Triton call it."""
    return NAMES[dtype_name(buffer.dtype)]


def stored(buffer: Buffer) -> str:
    """What lies in memory: an element, or a word that holds it together with the fact of its arrival."""
    return element(buffer) if buffer.protocol is Protocol.SIMPLE else "int64"
