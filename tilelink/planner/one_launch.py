"""Matmuls in one launch: each program goes on with the tiles of the next one where those of the one before are all taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilelink.ir.calls import PacketCollective
from tilelink.ir.nodes import Kernel, Launch
from tilelink.planner.structure import Structure


def chains(structure: Structure) -> list[tuple[str, ...]]:
    """Groups of matmuls that may run in one launch, one behind the other."""
    found: list[list[str]] = []
    for index, group in enumerate(structure.groups):
        if not structure.goes_on(index):
            found.append([])
        found[-1].append(group.name)
    return [tuple(chain) for chain in found if len(chain) > 1]


def launched_alike(before: Launch | None, kernel: Kernel) -> bool:
    """Whether one launch can be that of both, whose tiles nothing runs beside."""
    if not isinstance(before, Kernel) or before.comm or kernel.comm:
        return False
    if any(one.compute is None or one.compute.warpgroups > 1 for one in (before, kernel)):
        return False
    return (before.warps, before.per_sm, before.dies) == (kernel.warps, kernel.per_sm, kernel.dies)


def may_share(before: Launch | None, kernel: Kernel) -> bool:
    """Whether programs that have done their tiles of the one may take tiles of the other: loops with as many stages, and
    whole tiles."""
    if not launched_alike(before, kernel) or not isinstance(before, Kernel) or before.stages != kernel.stages:
        return False
    return not any(one.compute is None or one.compute.halved or one.compute.split for one in (before, kernel))


def in_one_launch(launches: Sequence[Launch], kernel: Kernel, most: int) -> list[Launch]:
    """`launches`, and behind them `kernel` in the launch of the last ones: of at most so many programs, and no more than there
    are tiles of all together. As many gather what the first of them gathers before its tiles."""
    at = len(launches) - 1
    while isinstance(one := launches[at], Kernel) and one.joined:
        at -= 1
    begin = at
    while begin and isinstance(one := launches[begin - 1], PacketCollective) and one.within:
        begin -= 1
    kernels = [one for one in (*launches[at:], kernel) if isinstance(one, Kernel)]
    tiles = [one.compute.num_tiles for one in kernels if one.compute is not None]
    programs, first, found = min(most, sum(tiles)), 0, list(launches[:begin])
    found += (replace(one, programs=programs) for one in launches[begin:at] if isinstance(one, PacketCollective))
    for one, number in zip(kernels, tiles, strict=True):
        assert one.compute is not None, "a matmul has tiles"
        role = replace(one.compute, programs=programs, first=first)
        found.append(replace(one, compute=role, joined=first > 0))
        first += number
    return found
