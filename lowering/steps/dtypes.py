"""Element types of buffers, a row each."""

from __future__ import annotations

from tilelink.schedule.memory import Buffer, Protocol

NAMES = {
    "float32": "float32",
    "bfloat16": "bfloat16",
    "float16": "float16",
    "int32": "int32",
    "int64": "int64",
    "fp32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
}
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int32": 4, "int64": 8}
DESCRIPTOR_BYTES = 16  # rows of what a descriptor describes begin at a multiple of so many


def element(buffer: Buffer) -> str:
    """The type of an element, as torch and Triton call it."""
    return NAMES[buffer.dtype]


def stored(buffer: Buffer) -> str:
    """What lies in memory: an element, or a word that holds it together with the fact of its arrival."""
    return element(buffer) if buffer.protocol is Protocol.SIMPLE else "int64"
