"""Where in the user's file something was written."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

_OURS = str(Path(__file__).resolve().parents[1]) + os.sep  # a folder beside it may be called tilelink-specs
_AS_USERS_WRITE = (_OURS + "demo.py", _OURS + os.path.join("bench", "operators.py"))


@dataclass(frozen=True, slots=True)
class Location:
    """A line of the user's source; `file` is as Python knows it."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def here() -> Location:
    """The innermost frame of the call stack that is of no file of this package, or of one written as users write theirs.

    Frames of torch do not count: `torch.nn.functional.silu(x)` calls back into this package.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame):
        frame = frame.f_back
    return Location(frame.f_code.co_filename, frame.f_lineno)


def _is_ours(frame: FrameType) -> bool:
    file, module = frame.f_code.co_filename, str(frame.f_globals.get("__name__", ""))
    return (file.startswith(_OURS) and file not in _AS_USERS_WRITE) or module.partition(".")[0] == "torch"
