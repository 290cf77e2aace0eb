"""The last tiles of a loop, whose reductions several programs share.

    k_share = tile % S                                           # S programs have one tile
    y = product of its share of the steps along k
    if k_share == S - 1:                                         else:
      wait y_summed[last_tile] >= call * (S - 1)                   store y -> y_sums[last_tile, k_share]
      y = y_sums[last_tile, 0] + y_sums[last_tile, 1] + ... + y    notify y_summed[last_tile] += 1
      all that comes behind the product

The last share is the one that waits: all others come before it in the order of programs. Sums are added in one order, whichever
program ends first: results are the same bits in each call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilelink.elaborate import signals
from tilelink.elaborate.positions import TILE, lets
from tilelink.elaborate.regions import Tiles
from tilelink.elaborate.slices import in_slices
from tilelink.elaborate.tiles import K_SHARE, body, share_of
from tilelink.ir import steps as ir
from tilelink.ir.nodes import ComputeRole, Kernel
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import MatmulBody
from tilelink.schedule.index import Index, call, rank
from tilelink.schedule.memory import Buffer, Memory, Region
from tilelink.schedule.roles import Phase
from tilelink.schedule.steps import Compute, If, Load, Notify, Step, Store, Wait

NUMBER = Index("last_tile")  # of a tile among the last ones
_SLICE = 64  # columns that are added at a time: registers hold them beside the sums of a tile
TITLE = "the last tiles, each by several programs along k"


def sums_of(loop: str) -> str:
    """The buffer of what programs have summed."""
    return f"{loop}_sums"


def buffers(planned: Schedule) -> Iterator[Buffer]:
    """Those of all loops whose last tiles programs share."""
    for launch in planned.launches:
        if isinstance(launch, Kernel) and launch.compute is not None and launch.compute.split:
            role = launch.compute
            tile = tuple(axis.tile for axis in role.axes if not axis.reduction)
            yield Buffer(sums_of(role.name), Memory.LOCAL, (role.split, role.splits - 1, *tile), "fp32")


def phase(planned: Schedule, role: ComputeRole) -> Phase:
    """The last tiles of `role`."""
    tiles = Tiles(planned, role)
    (matmul,) = (step for step in role.body if isinstance(step, MatmulBody))
    at = role.body.index(matmul) + 1
    shared, behind = body(replace(tiles, split=True), role.body[:at]), role.body[at:]
    word, value, others = signals.summed(role.name), share_of(matmul.result), role.splits - 1
    wait = Wait(word, (NUMBER,), call * others, (sums_of(role.name),))
    told = body(tiles, (step for step in behind if isinstance(step, ir.Notify)))
    work = [step for step in behind if not isinstance(step, ir.Notify)]

    def of_slice(cut: Tiles, name: str) -> tuple[Step, ...]:
        added: list[Step] = [Load("sum", _share(cut, 0))]
        total = "sum"
        for other in range(1, others):
            added += Load("more", _share(cut, other)), Compute((matmul.result,), "add", (total, "more"))
            total = matmul.result
        return (*added, Compute((matmul.result,), "add", (total, name)), *body(cut, work))

    slices = max(1, int(tiles.width(tiles.columns)) // _SLICE)
    first = (wait, *in_slices(tiles, value, slices, of_slice), *told)
    rest = (Store(value, _share(tiles, K_SHARE)), Notify(word, (NUMBER,), rank))
    programs = (K_SHARE.op, TILE % role.splits), (NUMBER.op, TILE // role.splits)
    let = (*programs, *lets(role, role.whole + NUMBER))
    return Phase(role.split * role.splits, (*shared, If(K_SHARE, role.splits - 1, first, rest)), let, title=TITLE)


def _share(tiles: Tiles, number: int | Index) -> Region:
    """What one program has summed; of a slice of it, its columns."""
    rows, cols = tiles.written
    width = tiles.width(cols.name)
    start = tiles.cut[0] * width
    extents = tiles.span(rows.name)[1], tiles.span(cols.name)[1]
    return Region(sums_of(tiles.role.name), (NUMBER, number, 0, start), (1, 1, *extents))
