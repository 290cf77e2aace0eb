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


PACKET_BYTES = 8  # of a word, which one thread stores and loads
LINE_BYTES = 128
_PIECE_BYTES = 16  # the most that a thread stores by one instruction
WARP = 32  # threads that run together (CUDA C++ programming guide)


class Protocol(Choice):
    """How a reader knows that data have arrived."""

    SIMPLE = "simple"  # by a signal that is raised behind them
    LL = "ll"  # packets, stored and loaded in one piece, hold 4 bytes of data and 4 that number the call (NCCL's name)
    LL128 = "ll128"  # packets are lines of 128 bytes: 120 of data, 8 that number the call; a warp stores and loads them whole
    LAMPORT = (
        "lamport"  # they hold 8 bytes of data, and are not empty; who has read one empties it (TensorRT-LLM's name)
    )

    @property
    def packet_bytes(self) -> int:
        """Of a packet."""
        return LINE_BYTES if self is Protocol.LL128 else PACKET_BYTES

    @property
    def data_bytes(self) -> int:
        """Of data in a packet."""
        return {Protocol.LL: 4, Protocol.LL128: LINE_BYTES - PACKET_BYTES}.get(self, PACKET_BYTES)

    @property
    def threads(self) -> int:
        """That store or load a packet: of a line, each has 16 bytes."""
        return LINE_BYTES // _PIECE_BYTES if self is Protocol.LL128 else 1

    @property
    def numbered(self) -> bool:
        """Whether packets number the call, so that nobody empties them."""
        return self in (Protocol.LL, Protocol.LL128)
