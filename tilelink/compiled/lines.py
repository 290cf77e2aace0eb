"""Does a warp store, and load, each line of 128 bytes by one instruction?

Eight threads have a line, 16 bytes each. It comes whole if they are lanes of one warp that follow each other.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilelink.compiled.errors import CannotFollow
from tilelink.compiled.layouts import Assembly, assembly_in, bases, numbers
from tilelink.ir.enums import Protocol

_PIECES = Protocol.LL128.threads
PIECE = ".relaxed.sys.global.v2.b64"  # of accesses of lines: packets of other protocols are words


def torn(ttgir: str) -> Iterator[Assembly]:
    """Each access of lines in `ttgir` that several instructions make of a line. Raises CannotFollow for an unknown layout."""
    for one in assembly_in(ttgir):
        if PIECE in one.text and not _is_whole(one.layout, one.shape):
            yield one


def _is_whole(layout: str, shape: tuple[int, ...]) -> bool:
    last = len(shape) - 1
    if shape[last] % _PIECES:
        return False
    if layout.startswith("#ttg.blocked"):
        each, lanes = (numbers(layout, name)[last] for name in ("sizePerThread", "threadsPerWarp"))
        return numbers(layout, "order")[0] == last and each == 1 and lanes >= _PIECES
    if layout.startswith("#ttg.linear"):
        wanted = [tuple(step * (dim == last) for dim in range(len(shape))) for step in (1, 2, 4)]
        return bases(layout, "lane")[: len(wanted)] == wanted
    raise CannotFollow(what="a layout", text=layout)
