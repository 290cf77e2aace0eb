"""Kernels that are no launches of their own: the programs of the kernel before go on with them."""

from __future__ import annotations

from collections.abc import Iterator

from tilelink.ir.nodes import CopyProgram, Kernel
from tilelink.ir.schedule import Schedule
from tilelink.proof.bug_class import BugClass
from tilelink.proof.findings import Finding


def joining(schedule: Schedule) -> Iterator[Finding]:
    """A joined kernel has a kernel before it, launched in the same way, of which every program computes tiles.

    What it reads is looked at by tilelink.proof.coverage: nothing that the kernel before writes counts as written. That
    programs wait in it for others of their launch is no circle: the wait-for relation has the whole kernel before it.
    """
    before: Kernel | None = None
    for index, launch in enumerate(schedule.launches):
        if isinstance(launch, Kernel):
            if launch.joined:
                yield from _fits(f"launch {index}, {launch.name}", before, launch)
            before = launch
        elif not isinstance(launch, CopyProgram):
            before = None


def _fits(where: str, before: Kernel | None, joined: Kernel) -> Iterator[Finding]:
    if before is None:
        yield Finding(BugClass.WRONG_PLACE, where, "no kernel right before it has programs that could go on with it")
        return
    if before.comm or joined.comm:
        fact = "programs that communicate compute no tiles, and cannot go on with them"
        yield Finding(BugClass.WRONG_PLACE, where, fact)
    if (before.warps, before.per_sm, before.dies) != (joined.warps, joined.per_sm, joined.dies):
        fact = (
            f"its programs have {joined.warps} warps, and those of {before.name} have {before.warps}, or another place"
        )
        yield Finding(BugClass.RESIDENCY, where, fact)
