"""The last tiles of a loop, whose reductions several programs share.

    k_share = tile % S                                 # S programs have one tile
    y = product of its share of the steps along k
    store y -> y_sums[last_tile, k_share]
    notify y_summed[last_tile] += 1
    if k_share < A:                                    # A of them add a slice of the columns each
      wait y_summed[last_tile] >= call * S
      y = y_sums[last_tile, 0] + y_sums[last_tile, 1] + ...
      all that comes behind the product, of a slice
      notify y_added[last_tile] += 1                   # where tiles are counted
      if k_share == A - 1:
        wait y_added[last_tile] >= call * A
        count the tile

Sums are added in the order of k, whichever program ends first: results are the same bits in each call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilelink.elaborate import signals
from tilelink.elaborate.positions import TILE, lets
from tilelink.elaborate.regions import Tiles
from tilelink.elaborate.tiles import K_SHARE, body, share_of
from tilelink.ir import steps as ir
from tilelink.ir.nodes import ComputeRole, Kernel
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import MatmulBody
from tilelink.schedule.index import Index, Number, call, rank
from tilelink.schedule.memory import Buffer, Memory, Region
from tilelink.schedule.roles import Phase
from tilelink.schedule.steps import Compute, For, If, Load, Notify, Step, Store, Wait

NUMBER = Index("last_tile")  # of a tile among the last ones
_OTHER = Index("other")  # of the shares behind the first one
_LEAST_COLUMNS = 16  # of a slice: rows of 32 bytes of a result
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
            yield Buffer(sums_of(role.name), Memory.LOCAL, (role.split, role.splits, *tile), "fp32")


def phase(planned: Schedule, role: ComputeRole) -> Phase:
    """The last tiles of `role`."""
    tiles = Tiles(planned, role)
    (matmul,) = (step for step in role.body if isinstance(step, MatmulBody))
    at = role.body.index(matmul) + 1
    shared, behind = body(replace(tiles, split=True), role.body[:at]), role.body[at:]
    told = body(tiles, (step for step in behind if isinstance(step, ir.Notify)))
    work = [step for step in behind if not isinstance(step, ir.Notify)]
    slices = adders(role)
    number = K_SHARE if slices == role.splits else K_SHARE % slices  # that shows that it is below
    cut = replace(tiles, cut=(number, slices))
    more = Load("more", _share(cut, _OTHER + 1)), Compute((matmul.result,), "add", (matmul.result, "more"))
    added = Load(matmul.result, _share(cut, 0)), For(_OTHER.op, role.splits - 1, more, unrolled=True)
    word = signals.summed(role.name)
    wait = Wait(word, (NUMBER,), call * role.splits, (sums_of(role.name),))
    adding = (wait, *added, *body(cut, work), *(_counted(role, slices, told) if told else ()))
    steps = (
        *shared,
        Store(share_of(matmul.result), _share(tiles, K_SHARE)),
        Notify(word, (NUMBER,), rank),
        *(adding if slices == role.splits else (If(Index("max", (slices - K_SHARE, 0)), 0, (), adding),)),
    )
    programs = (K_SHARE.op, TILE % role.splits), (NUMBER.op, TILE // role.splits)
    let = (*programs, *lets(role, role.whole + NUMBER))
    return Phase(role.split * role.splits, steps, let, title=TITLE)


def adders(role: ComputeRole) -> int:
    """How many of the programs of a tile add a slice of its columns."""
    cols = [axis.tile for axis in role.axes if not axis.reduction][-1]
    return int(min(1 << (int(role.splits).bit_length() - 1), max(1, cols // _LEAST_COLUMNS)))


def _counted(role: ComputeRole, slices: int, told: tuple[Step, ...]) -> tuple[Step, ...]:
    """The program with the last slice tells of the tile when all slices are stored."""
    word = signals.added(role.name)
    wait = Wait(word, (NUMBER,), call * slices)
    return Notify(word, (NUMBER,), rank), If(K_SHARE, slices - 1, (wait, *told))


def _share(tiles: Tiles, number: Number) -> Region:
    """What one program has summed; of a slice of it, its columns."""
    rows, cols = tiles.written
    width = tiles.width(cols.name)
    start = tiles.cut[0] * width
    extents = tiles.span(rows.name)[1], tiles.span(cols.name)[1]
    return Region(sums_of(tiles.role.name), (NUMBER, number, 0, start), (1, 1, *extents))
