"""Which line an error blames."""

from __future__ import annotations

import linecache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilelink import TileLinkError


def blamed_line(error: TileLinkError, file: str) -> str:
    """Text of the line that `error.location` names; it must be one of `file`, and open the message."""
    named, _, line = error.location.rpartition(":")
    assert named == file
    assert str(error).startswith(f"{error.location}: ")
    return linecache.getline(named, int(line)).strip()
