"""Enums of the IR print as they are written, so that the repr of a schedule can be pasted back."""

from __future__ import annotations

from enum import Enum


class Word(Enum):
    """A choice without data. `repr(Transfer.PUSH)` is `Transfer.PUSH`."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


WORD_BYTES = 8


class Protocol(Word):
    """How a word of 8 bytes, which is stored and loaded in one piece, says that it has arrived."""

    LL = "ll"  # 4 bytes of data and 4 that number the call (NCCL's name)
    LAMPORT = "lamport"  # 8 bytes of data, and it is not empty; who has read it empties it (TensorRT-LLM's name)

    @property
    def data_bytes(self) -> int:
        """Of data in a word."""
        return 4 if self is Protocol.LL else 8
