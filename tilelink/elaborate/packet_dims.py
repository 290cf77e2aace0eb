"""Names of the sizes of blocks that travel in packets."""

from __future__ import annotations

from typing import Protocol

from tilelink.elaborate.packets import Blocks
from tilelink.schedule.index import Number
from tilelink.schedule.known import Known, origin


class Names(Protocol):
    """What a schedule calls its sizes."""

    def following(self, name: str, value: int, follows: Number, title: str) -> int: ...

    def choice(self, name: str, value: int, title: str) -> int: ...

    def rule(self, size: int, by: int) -> None: ...


def name_blocks(names: Names, blocks: Blocks, does: str) -> None:
    """`does`: what a program does with a block."""
    out = blocks.launch.out
    for whole, extent, block in zip(blocks.shape, blocks.part_shape, blocks.sizes, strict=True):
        if isinstance(extent, Known) and isinstance(block, Known) and extent is not whole:
            kind = {"ROWS": "rows", "COLS": "columns"}.get(block.index.op.rpartition("_")[2], "planes")
            names.following(extent.index.op, int(extent), origin(whole), f"{kind} of what a rank sends of {out}")
            title = f"{kind} of a block of {out} that a program {does} at a time; a power of two"
            names.choice(block.index.op, int(block), title)
            if extent % block == 0:
                names.rule(extent, block)
