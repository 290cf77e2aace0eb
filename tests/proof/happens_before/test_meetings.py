"""Sends and receives of a library: what a rank knows behind one, and what it does not know."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lowering.steps.file import lower
from tilelink.proof.happens_before.check import checked
from tilelink.proof.happens_before.refuted import Wrong
from tilelink.schedule.index import Index, Number, call, rank
from tilelink.schedule.interpreter import Interpreter, NeverEnds
from tilelink.schedule.memory import Buffer, Memory, Region, Signal
from tilelink.schedule.network import TRANSPORTS
from tilelink.schedule.printing import printed
from tilelink.schedule.roles import Host, Launch, MeshAxis, Phase, Role, Schedule, Sms, Who
from tilelink.schedule.steps import SEND_RECEIVE, Call, For, Load, Notify, Step, Store, Wait

RANKS, ROWS = 4, 3
TILE = Index("tile")
NEXT, BEFORE = (rank + 1) % RANKS, (rank + RANKS - 1) % RANKS


def whole(buffer: str, at: Number = rank) -> Region:
    return Region(buffer, (0, 0), (ROWS, 1), at)


def meet(to: Number = NEXT, source: Number = BEFORE, result: str = "out", operand: str = "x") -> Call:
    return Call(SEND_RECEIVE, (whole(result),), (whole(operand),), numbers=(to, source))


def schedule(*body: Step, network: bool = False, count: int = 1, programs: int = 1, first: int = 0) -> Schedule:
    """Ranks in a circle. `kept` is memory that peers reach, and `done` counts ends of calls."""
    buffers = (
        Buffer("x", Memory.INPUT, (ROWS, 1), "fp32"),
        Buffer("out", Memory.OUTPUT, (ROWS, 1), "fp32"),
        Buffer("kept", Memory.SYMMETRIC, (ROWS, 1), "fp32"),
        Buffer("mine", Memory.LOCAL, (ROWS, 1), "fp32"),
    )
    mesh = (
        (MeshAxis("nodes", RANKS, TRANSPORTS["NCCL send and stream write"]),)
        if network
        else (MeshAxis("ranks", RANKS),)
    )
    role = Role("circle", Host(programs, 1), (Phase(count, body, first=first),))
    signals = (Signal("gone_on", (1,)), Signal("done", (1,)))
    return Schedule("circle", mesh, buffers, signals, (Launch("main", (role,)),))


def test_a_circle_is_proved_and_sends() -> None:
    for network in (False, True):
        found = schedule(meet(), network=network)
        outcome = checked(found)
        assert outcome.proved and outcome.rank_period == 1
        given = [{"x": np.full((ROWS, 1), float(number))} for number in range(RANKS)]
        run = Interpreter(found)
        for _ in range(3):
            assert [one["out"][0, 0] for one in run.call(given)] == [3.0, 0.0, 1.0, 2.0]
    assert "send_receive(x" in printed(found) and "the library, on 1 SM:" in printed(found)


def test_a_file_asks_for_what_the_proof_counts() -> None:
    """A call that meets other ranks holds an SM, whatever its role says."""
    (launch,) = schedule(meet()).launches
    told = [replace(role, engine=Host(1, sms)) for sms in (0, 2) for role in launch.roles]
    texts = [lower(replace(schedule(meet()), launches=(Launch("main", (one,)),))) for one in told]
    assert ["sms=1" in texts[0], "sms=2" in texts[1]] == [True, True]


def looked_at(at: Number) -> Schedule:
    """A rank loads what another one has stored before it came."""
    stores = (Load("new", whole("x")), Store("new", whole("kept")))
    loads = (Load("found", whole("kept", at)), Store("found", whole("mine")))
    told = For("step", RANKS - 1, (Notify("done", (0,), (rank + 1 + Index("step")) % RANKS),))
    phases = (Phase(1, stores), Phase(1, loads), Phase(1, (told, Wait("done", (0,), call * (RANKS - 1)))))
    store, load, end = (Role(f"role_{number}", Sms(1), (phase,)) for number, phase in enumerate(phases))
    (meeting,) = schedule(meet()).launches[0].roles
    launches = tuple(Launch("main", (role,)) for role in (store, meeting, load, end))
    return replace(schedule(meet()), launches=launches)


def test_a_rank_knows_what_its_sender_did() -> None:
    assert checked(looked_at(BEFORE)).proved


def test_a_rank_knows_nothing_of_its_receiver() -> None:
    """A small message leaves before it is received."""
    refutation = checked(looked_at(NEXT)).refutation
    assert refutation is not None and refutation.wrong is Wrong.NOT_AWAITED


def test_each_may_wait_for_the_other() -> None:
    """A rank that sends holds up whoever it sends to, and the other way round."""
    late = replace(schedule(Wait("gone_on", (0,), call), meet()), launches=())
    waits = Role("waits", Host(1, 1), (Phase(1, (Wait("gone_on", (0,), call), meet())),))
    tells = Role("tells", Sms(1), (Phase(1, (Notify("gone_on", (0,), BEFORE, call),)),))
    fine = replace(late, launches=(Launch("side", (waits,)), Launch("main", (tells,))))
    assert checked(fine).proved
    behind = replace(late, launches=(Launch("main", (waits,)), Launch("main", (tells,))))
    refutation = checked(behind).refutation
    assert refutation is not None and refutation.wrong in (Wrong.CIRCLE, Wrong.NEVER_RAISED)
    with pytest.raises(NeverEnds):
        Interpreter(behind).call([{"x": np.zeros((ROWS, 1))}] * RANKS)


def test_ranks_that_do_not_meet_wait_for_ever() -> None:
    for to, source in ((NEXT, NEXT), (BEFORE, BEFORE), (NEXT, rank)):
        found = schedule(meet(to, source))
        refutation = checked(found).refutation
        assert refutation is not None and refutation.wrong in (Wrong.CIRCLE, Wrong.NEVER_RAISED)
        with pytest.raises(NeverEnds):
            Interpreter(found).call([{"x": np.zeros((ROWS, 1))}] * RANKS)


MALFORMED = {
    "in a loop": schedule(For("step", 2, (meet(),))),
    "twice in a position": schedule(meet(), meet(result="mine")),
    "by two programs": schedule(meet(), programs=2),
    "from another position on": schedule(meet(), count=2, first=1),
    "to nobody": schedule(replace(meet(), numbers=(NEXT,))),
    "two regions": schedule(replace(meet(), results=(whole("out"), whole("mine")))),
    "by each program": replace(
        schedule(meet()), launches=(Launch("main", (Role("circle", Host(1, 1), (Phase(1, (meet(),), every=True),)),)),)
    ),
    "by the first program": replace(
        schedule(meet()),
        launches=(Launch("main", (Role("circle", Host(1, 1), (Phase(1, (meet(),), who=Who.LAST),)),)),),
    ),
}


@pytest.mark.parametrize("how", MALFORMED)
def test_what_has_no_meaning(how: str) -> None:
    refutation = checked(MALFORMED[how]).refutation
    assert refutation is not None and refutation.wrong is Wrong.MALFORMED, str(refutation)
