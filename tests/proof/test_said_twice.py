"""What steps are not made from: a field of a planned node that elaboration does not read is checked by a rule, or listed here.

Each field of each node is changed, one at a time. A change that leaves the steps as they are, and is proved, is one that nobody
notices: it has to be without a meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from enum import Enum

import pytest

from tests.mutation.subjects import SUBJECTS, subject
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.nodes import CommSms
from tilelink.ir.schedule import Schedule
from tilelink.mutation.sites import sites
from tilelink.proof.verify import verify

_NAMES = "names that nobody looks up"
_ONE_SEGMENT = "the order of segments of an axis that has one, or of a mover that is the tiles themselves"
_NO_OTHER_PART = "how an own part lies, of an operand or exchange without one"
_HOW = "how it is computed, not what or when"
_MORE = "more than is needed"
_NOT_TAKEN = (
    "of steps that stand for it alone where a count tells peers nothing, or a library call waits chunk by chunk"
)
UNREAD = {
    "ComputeRole.name": _NAMES,
    "Kernel.name": _NAMES,
    "Axis.name": _NAMES,
    "RankOrder.direction": _ONE_SEGMENT,
    "RankOrder.first": _ONE_SEGMENT,
    "RankOrder.first_node": _ONE_SEGMENT,
    "RankOrder.num_ranks": _ONE_SEGMENT,
    "RankOrder.ranks_per_node": _ONE_SEGMENT,
    "ChunkOrder.nest": _ONE_SEGMENT,
    "Exchange.chunks": _ONE_SEGMENT,
    "Exchange.slots": _ONE_SEGMENT,
    "Operand.own_slots": _NO_OTHER_PART,
    "Operand.cut": _NO_OTHER_PART,
    "Exchange.own_copied": _NO_OTHER_PART,
    "ComputeRole.programs": _HOW,  # of a joined kernel: programs of the launch are those of the largest
    "Kernel.stages": _HOW,
    "Die.count": _HOW,
    "Die.xcds": _HOW,
    "IfOwn.slices": _HOW,
    "Axis.tile": _HOW,  # of an axis that is not tiled
    "Signal.slots": _MORE,
    "Wait.fence": _MORE,
    "Notify.place": _NOT_TAKEN,
    "Operand.slot": _NOT_TAKEN,
    "Wait.rows": _NOT_TAKEN,
    "Wait.slot": _NOT_TAKEN,
    "Wait.every": _NOT_TAKEN,
    "Wait.own": _NOT_TAKEN,
}


def _changed(schedule: Schedule) -> Iterator[tuple[str, Schedule]]:
    """(field, schedule with another value there): the other value of a bool, all others of an enum, one more and one less."""
    for site in sites(schedule, object):
        if site.path[0] not in ("buffers", "signals", "exchanges", "launches") or not is_dataclass(site.node):
            continue
        for field in fields(site.node):
            value = getattr(site.node, field.name)
            others: tuple[object, ...] = ()
            if isinstance(value, bool):
                others = (not value,)
            elif isinstance(value, Enum):
                others = tuple(other for other in type(value) if other is not value)
            elif isinstance(value, int):
                others = (value + 1, value - 1)
            elif isinstance(value, str):
                others = ("nothing of this name",)
            for other in others:
                new = replace(site.node, **{field.name: other})  # type: ignore[type-var]
                yield f"{type(site.node).__name__}.{field.name}", site.put(new)


def unnoticed(schedule: Schedule) -> set[str]:
    steps, found = elaborated(schedule), set()
    for field, other in _changed(schedule):
        if field in found:
            continue
        try:
            same = elaborated(other) == steps
        except Exception:  # of nodes that mean nothing; the proof says so
            same = False
        if same and verify(other).proved:
            found.add(field)
    return found


@pytest.mark.quick(0)
@pytest.mark.parametrize("label", SUBJECTS)
def test_fields_that_steps_are_not_made_from(label: str) -> None:
    assert unnoticed(subject(label)) <= set(UNREAD)


def test_a_mover_that_is_not_there_is_noticed() -> None:
    """A check that cannot fail would be none."""
    schedule = subject("gather, SMs push, halves")
    (site,) = sites(schedule, CommSms)
    assert verify(schedule).proved
    assert any("programs of kernels move it" in one.fact for one in verify(site.put(CommSms(3))).findings)
