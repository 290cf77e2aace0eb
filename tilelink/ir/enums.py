"""Enums of the IR print as they are written, so that the repr of a schedule can be pasted back."""

from __future__ import annotations

from enum import Enum


class Choice(Enum):
    """A choice without data. `repr(Transfer.PUSH)` is `Transfer.PUSH`."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class Tail(Choice):
    """What becomes of tiles that are left when all programs have had as many, and are fewer than programs."""

    WHOLE = "whole"
    HALVES = "halves"  # each is two tiles of half the width
    SPLIT_K = "split-k"  # several programs share the reduction of each


PACKET_BYTES = 8
WARP = 32  # threads that run together (CUDA C++ programming guide)


class Protocol(Choice):
    """How a reader knows that data have arrived."""

    SIMPLE = "simple"  # by a signal that is raised behind them
    LL = "ll"  # packets, stored and loaded in one piece, hold 4 bytes of data and 4 that number the call (NCCL's name)
    LAMPORT = (
        "lamport"  # they hold 8 bytes of data, and are not empty; who has read one empties it (TensorRT-LLM's name)
    )

    @property
    def data_bytes(self) -> int:
        """Of data in a packet."""
        return 4 if self is Protocol.LL else PACKET_BYTES
