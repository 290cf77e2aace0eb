"""Matmuls in one launch: each program goes on with the tiles of the next one where those of the one before are all taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tilelink.ir.nodes import ComputeRole, Kernel, Launch


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
    return not any(one.compute is None or one.compute.halved for one in (before, kernel))


def in_one_launch(before: Sequence[Kernel], kernel: Kernel, most: int) -> Iterator[Kernel]:
    """All of them in one launch of at most so many programs: no more than there are tiles of all together."""
    roles = [_role(one) for one in (*before, kernel)]
    programs, first = min(most, sum(role.num_tiles for role in roles)), 0
    for one, role in zip((*before, kernel), roles, strict=True):
        yield replace(one, compute=replace(role, programs=programs, first=first), joined=first > 0)
        first += role.num_tiles


def _role(kernel: Kernel) -> ComputeRole:
    assert kernel.compute is not None, "a matmul has tiles"
    return kernel.compute
