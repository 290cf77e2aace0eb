"""Where a program is: the lines of the emitted file, found by walking its frames."""

from __future__ import annotations

import linecache
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType, TracebackType

# The globals of a rewritten function hold this name: so its frames are told from those of the interpreter.
MARK = "__tilelink_emulated__"


@dataclass(frozen=True, slots=True)
class Place:
    """A source line, innermost call first. `line` is 0 where there is no source (a stream operation)."""

    file: str
    line: int
    function: str
    caller: Place | None = None

    @property
    def text(self) -> str:
        """The source line itself, stripped; empty when the file cannot be read."""
        return linecache.getline(self.file, self.line).strip() if self.line else ""

    def __str__(self) -> str:
        here = f"{Path(self.file).name}:{self.line} in {self.function}" if self.line else self.function
        return f"{here}, called from {self.caller}" if self.caller else here


NOWHERE = Place("", 0, "an unknown place")


def _is_kernel_code(frame: FrameType) -> bool:
    names = frame.f_globals
    return MARK in names and not str(names.get("__name__", "")).startswith("triton.")


def _chain(frames: Iterator[tuple[FrameType, int]]) -> Place:
    """Frames from the outermost to the innermost."""
    place: Place | None = None
    for frame, line in frames:
        if _is_kernel_code(frame):
            place = Place(frame.f_code.co_filename, line, frame.f_code.co_name, place)
    return place or NOWHERE


def host_place(frame: FrameType | None, skip: str) -> Place:
    """The innermost line of host code on the stack below `frame` that is not in the file `skip`."""
    while frame is not None and frame.f_code.co_filename == skip:
        frame = frame.f_back
    return Place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name) if frame else NOWHERE


def place_of(frame: FrameType | None) -> Place:
    """The kernel lines on the stack below `frame`."""
    frames: list[tuple[FrameType, int]] = []
    while frame is not None:
        frames.append((frame, frame.f_lineno))
        frame = frame.f_back
    return _chain(iter(reversed(frames)))


def place_of_traceback(traceback: TracebackType | None) -> Place:
    """The kernel lines on the way to an exception."""

    def frames() -> Iterator[tuple[FrameType, int]]:
        entry = traceback
        while entry is not None:
            yield entry.tb_frame, entry.tb_lineno
            entry = entry.tb_next

    return _chain(frames())
