"""Element types of buffers: those of specs, and the integers of tables and packets."""

from __future__ import annotations

from tilelink.ir.dtype import DTYPES, Dtype, dtype_name
from tilelink.schedule.memory import Buffer, Protocol

_PACKETS = Dtype("int64", 8, "int64", "int64", tensor_cores=False)
_ELEMENTS = {**DTYPES, "int32": Dtype("int32", 4, "int32", "int32", tensor_cores=False)}
ACCUMULATED = DTYPES["fp32"]
DESCRIPTOR_BYTES = 16  # rows of what a descriptor describes begin at a multiple of so many


def element(buffer: Buffer) -> Dtype:
    return _ELEMENTS[dtype_name(buffer.dtype)]


def stored(buffer: Buffer) -> Dtype:
    """What lies in memory: an element, or a word that holds it together with the fact of its arrival."""
    return element(buffer) if buffer.protocol is Protocol.SIMPLE else _PACKETS
