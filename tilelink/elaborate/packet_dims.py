"""Names of the sizes of blocks that travel in packets."""

from __future__ import annotations

import typing

from tilelink.elaborate.packets import Blocks
from tilelink.ir.enums import Protocol
from tilelink.schedule.index import Number
from tilelink.schedule.known import Known, origin


class Names(typing.Protocol):
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
            lines = blocks.launch.protocol is Protocol.LL128 and kind == "columns"
            wide = f"whole lines, of {blocks.in_packet} each" if lines else "a power of two"
            names.choice(
                block.index.op, int(block), f"{kind} of a block of {out} that a program {does} at a time; {wide}"
            )
            if extent % block == 0:
                names.rule(extent, block)
