"""Where a program is: the lines of the emitted file, found by walking its frames."""

from __future__ import annotations

import linecache
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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


@lru_cache(maxsize=1 << 14)
def _chain(lines: tuple[tuple[str, int, str], ...]) -> Place:
    """File, line and function of each frame, from the innermost to the outermost. One chain is one object."""
    place: Place | None = None
    for file, line, function in reversed(lines):
        place = Place(file, line, function, place)
    return place or NOWHERE


# Modules through which host code reaches a stream; `kernel[grid](...)` goes through triton.
_DIALECTS = "tilelink.compat.dialects."
_DIALECTS_FOLDER = Path(__file__).parents[2].joinpath(*_DIALECTS.strip(".").split("."))
_ADAPTERS = ("tilelink.emulator.", _DIALECTS, "tilelink.compat.triton_dist.", "triton.", "torch.", "contextlib")


def is_adapter(module: str) -> bool:
    """Whether code of that module is not the user's, so that a report has to name who called it."""
    return module.startswith(_ADAPTERS)


def is_in_dialects(place: Place) -> bool:
    """Whether a line of a kernel is not the user's: the dialects have kernels of their own."""
    return _DIALECTS_FOLDER in Path(place.file).parents


def host_place(frame: FrameType | None, skip: str) -> Place:
    """The innermost line of host code on the stack below `frame`, not in the file `skip` nor in an adapter."""
    while frame is not None and (
        frame.f_code.co_filename == skip or str(frame.f_globals.get("__name__", "")).startswith(_ADAPTERS)
    ):
        frame = frame.f_back
    return Place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name) if frame else NOWHERE


def host_place_of_traceback(traceback: TracebackType | None) -> Place:
    """The innermost line of host code on the way to an exception, in no adapter; NOWHERE if it was raised by the call itself."""
    place = NOWHERE
    while traceback is not None:
        frame = traceback.tb_frame
        if not str(frame.f_globals.get("__name__", "")).startswith((*_ADAPTERS, "tilelink.adversary.")):
            place = Place(frame.f_code.co_filename, traceback.tb_lineno, frame.f_code.co_name)
        traceback = traceback.tb_next
    return place


def place_of(frame: FrameType | None, launched: Place | None = None) -> Place:
    """The kernel lines on the stack below `frame`, and below them that of host code which `launched` the kernel, if given."""
    lines = []
    while frame is not None:
        # told apart here first: most frames are the interpreter's, and observers ask at every access
        if MARK in frame.f_globals and _is_kernel_code(frame):
            lines.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    if launched is not None:
        lines.append((launched.file, launched.line, launched.function))
    return _chain(tuple(lines))


def place_of_traceback(traceback: TracebackType | None) -> Place:
    """The kernel lines on the way to an exception."""
    lines = []
    while traceback is not None:
        frame = traceback.tb_frame
        if _is_kernel_code(frame):
            lines.append((frame.f_code.co_filename, traceback.tb_lineno, frame.f_code.co_name))
        traceback = traceback.tb_next
    return _chain(tuple(reversed(lines)))
