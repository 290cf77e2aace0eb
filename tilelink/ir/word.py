"""Enums of the IR print as they are written, so that the repr of a schedule can be pasted back."""

from __future__ import annotations

from enum import Enum


class Word(Enum):
    """A choice without data. `repr(Transfer.PUSH)` is `Transfer.PUSH`."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"
