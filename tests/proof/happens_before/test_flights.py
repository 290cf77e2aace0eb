"""Puts over a network: what each transport promises is enough for operators over two levels, and mistakes are found.

Mistakes are found twice: by the proof, and by runs of the same steps in which puts land when they like.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.schedule.network_operators import OPERATORS, QUIET
from tests.schedule.operators import B, Operator, group, mine
from tests.schedule.test_interpreter import differs
from tilelink.ir.enums import Protocol
from tilelink.proof.bug_class import BugClass
from tilelink.proof.happens_before.check import checked
from tilelink.proof.happens_before.flights import FLIGHTS, with_flights
from tilelink.proof.happens_before.refuted import Wrong
from tilelink.schedule.index import Index, rank
from tilelink.schedule.interpreter import NeverEnds
from tilelink.schedule.memory import Region
from tilelink.schedule.network import TRANSPORTS, Strength, Transport
from tilelink.schedule.roles import Phase, Role, Schedule, Sms
from tilelink.schedule.steps import If, Load, Move, Notify, Step, Store, Wait
from tilelink.schedule.walk import mapped, with_bodies, with_phases

MESHES = [(2, 2), (2, 4), (3, 2), (4, 2), (2, 1), (3, 3)]
SIGNAL, NBI = TRANSPORTS["NVSHMEM put_signal"], TRANSPORTS["NVSHMEM put_signal_nbi"]
WEAK, STRONG = TRANSPORTS["GIN put, weak signal"], TRANSPORTS["GIN put, strong signal"]


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("transport", TRANSPORTS.values(), ids=lambda one: one.name)
@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.quick(6)
def test_operators_are_proved(name: str, transport: Transport, mesh: tuple[int, int]) -> None:
    outcome = checked(OPERATORS[name](*mesh, transport).schedule)
    assert outcome.refutation is None, str(outcome)
    assert outcome.call_period == 1  # any number of calls
    assert outcome.rank_period in (1, mesh[1])  # nodes are alike, and ranks of a node may be


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("transport", [NBI, STRONG], ids=lambda one: one.name)
@pytest.mark.parametrize("mesh", MESHES[:4], ids=str)
@pytest.mark.quick(3)
def test_they_compute_what_is_meant_whenever_puts_land(name: str, transport: Transport, mesh: tuple[int, int]) -> None:
    operator = OPERATORS[name](*mesh, transport)
    assert not any(differs(operator, with_flights(operator.schedule), 3, seed, FLIGHTS) for seed in range(3))


def test_a_mesh_without_a_transport_has_no_flights() -> None:
    schedule = OPERATORS["all_gather"](2, 2, SIGNAL).schedule
    plain = replace(schedule, mesh=tuple(replace(axis, transport=None) for axis in schedule.mesh))
    assert with_flights(plain) is plain


@pytest.mark.slow
@pytest.mark.parametrize("transport", [SIGNAL, STRONG], ids=lambda one: one.name)
def test_hundreds_of_ranks(transport: Transport) -> None:
    outcome = checked(OPERATORS["reduce_scatter"](32, 8, transport).schedule)
    assert outcome.proved and outcome.rank_period == 8


# ---- mistakes ----
Edit = Callable[[Schedule], Schedule]


def steps(change: Callable[[Step], tuple[Step, ...]]) -> Edit:
    return lambda schedule: with_bodies(schedule, lambda body: mapped(body, change))


def without(*kinds: Step) -> Edit:
    return steps(lambda step: () if step in kinds else (step,))


def without_wait(signal: str) -> Edit:
    return steps(lambda step: () if isinstance(step, Wait) and step.signal == signal else (step,))


def moves(change: Callable[[Move], tuple[Step, ...]]) -> Edit:
    return steps(lambda step: change(step) if isinstance(step, Move) else (step,))


def apart(move: Move) -> tuple[Step, ...]:
    """The data, and then a signal by itself, with no fence between them."""
    assert move.notify is not None
    return replace(move, notify=None), move.notify


def halves(move: Move) -> tuple[Step, ...]:
    """One signal for two puts."""
    sides = []
    for regions in (move.source, move.target):
        (one,) = regions
        *lead, _, cols = one.extent
        upper = replace(one, extent=(*lead, B // 2, cols))
        sides.append((upper, replace(upper, start=(*one.start[:-2], one.start[-2] + B // 2, one.start[-1]))))
    return (Move(sides[0], sides[1], move.notify),)


def for_both(schedule: Schedule) -> Schedule:
    """Whoever reads waits for the second put only, the first of which has no signal."""

    def change(step: Step) -> tuple[Step, ...]:
        match step:
            case Move(notify=Notify(index=(_, 0))):
                return (replace(step, notify=None),)
            case Wait("arrived", (source, _)):
                return (replace(step, index=(source, 1)),)
            case Notify("arrived", (source, Index())):
                return (If(Index("half"), 0, (), (step,)),)
        return (step,)

    return steps(change)(schedule)


def reset(schedule: Schedule) -> Schedule:
    """Readers set the word back, instead of numbers that grow."""

    def change(step: Step) -> tuple[Step, ...]:
        match step:
            case Move(notify=Notify() as told):
                return (replace(step, notify=replace(told, to=1)),)
            case Wait("far", index, _, covers):
                return Wait("far", index, 1, covers), Notify("far", index, rank, 0)
        return (step,)

    return steps(change)(schedule)


def rail(step: Move) -> tuple[Step, ...]:
    (target,), at = step.target, group * 2 + (mine + 1) % 2
    assert step.notify is not None
    return (replace(step, target=(replace(target, at=at),), notify=replace(step.notify, at=at)),)


def torn(schedule: Schedule) -> Schedule:
    """Words of packets, put in pieces of three elements of 4 bytes, where two are a packet."""
    buffers = tuple(
        replace(one, protocol=Protocol.LAMPORT) if one.name == "in_net" else one for one in schedule.buffers
    )

    def change(step: Move) -> tuple[Step, ...]:
        cut = []
        for first, count in ((0, 3), (3, B - 3)):

            def piece(one: Region, first: int = first, count: int = count) -> Region:
                return replace(one, start=(*one.start[:-1], first), extent=(*one.extent[:-1], count))

            cut.append(Move(tuple(map(piece, step.source)), tuple(map(piece, step.target))))
        return tuple(cut)

    return replace(moves(change)(schedule), buffers=buffers)


def counted(step: Step) -> tuple[Step, ...]:
    """Words that puts add one to."""
    return (replace(step, notify=replace(step.notify, to=None)),) if isinstance(step, Move) and step.notify else (step,)


def inwards(schedule: Schedule) -> Schedule:
    """A node's own rows first, whose sum waits for those of others, in the one program that also puts its own ones."""
    (launch,) = schedule.launches
    scatter, between, add = launch.roles
    own, *ends = add.phases
    both = replace(between, phases=(own, *between.phases, *ends))
    return replace(schedule, launches=(replace(launch, roles=(scatter, both)),))


def stored(step: Move) -> tuple[Step, ...]:
    """Loads and stores, as if the other node's memory were mapped."""
    assert step.notify is not None
    return Load("sent", step.source[0]), Store("sent", step.target[0]), step.notify


def through_sms(schedule: Schedule) -> Schedule:
    (launch,) = schedule.launches
    roles = tuple(replace(one, engine=Sms(1)) if one.name == "between" else one for one in launch.roles)
    return moves(stored)(replace(schedule, launches=(replace(launch, roles=roles),)))


BUGS: dict[str, tuple[str, Transport, Edit, tuple[Wrong, ...]]] = {
    "no fence between data and signal": ("reduce_scatter", NBI, moves(apart), (Wrong.EARLY_READ, Wrong.TOLD_EARLY)),
    "one signal for two puts": ("reduce_scatter", SIGNAL, moves(halves), (Wrong.EARLY_READ, Wrong.TOLD_EARLY)),
    "a weak signal trusted for an earlier put": ("all_gather", WEAK, for_both, (Wrong.EARLY_READ, Wrong.TOLD_EARLY)),
    "a word that is set back": ("reduce_scatter", SIGNAL, reset, (Wrong.EARLY_READ, Wrong.SET_BACK)),
    "the wrong rail": (
        "reduce_scatter",
        SIGNAL,
        moves(rail),
        (Wrong.OVERWRITTEN, Wrong.NEVER_RAISED),
    ),
    "a source that is used again early": ("reduce_scatter", NBI, without(QUIET), (Wrong.OVERWRITTEN,)),
    "a packet torn over two puts": ("reduce_scatter", SIGNAL, torn, (Wrong.TORN,)),
    "a count over a network": ("reduce_scatter", SIGNAL, steps(counted), (Wrong.COUNTED_ACROSS,)),
    "a landing place used a call early": (
        "reduce_scatter",
        SIGNAL,
        without_wait("free"),
        (Wrong.OVERWRITTEN,),
    ),
    "an order of nodes in which they wait for each other": ("reduce_scatter", SIGNAL, inwards, (Wrong.CIRCLE,)),
    "stores to another node": ("reduce_scatter", SIGNAL, through_sms, (Wrong.ACROSS,)),
}


def planted(bug: str, mesh: tuple[int, int] = (3, 2)) -> tuple[Operator, Schedule]:
    name, transport, edit, _ = BUGS[bug]
    operator = OPERATORS[name](*mesh, transport)
    changed = edit(operator.schedule)
    assert changed != operator.schedule
    return operator, changed


@pytest.mark.parametrize("mesh", [(2, 2), (3, 2), (2, 4)], ids=str)
@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.quick(12)
def test_mistakes_are_refuted_with_their_kind_and_step(bug: str, mesh: tuple[int, int]) -> None:
    _, changed = planted(bug, mesh)
    refutation = checked(changed).refutation
    assert refutation is not None and refutation.wrong in BUGS[bug][3], str(refutation)
    assert isinstance(refutation.bug, BugClass) and (refutation.places or refutation.detail)


# no value shows what a link does not have, and calls of these runs do not overlap
_SILENT = (
    *("a packet torn over two puts", "a count over a network", "stores to another node"),
    *("a word that is set back", "a landing place used a call early"),
)


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug not in _SILENT])
@pytest.mark.quick(3)
def test_runs_in_which_puts_land_late_show_them(bug: str) -> None:
    operator, changed = planted(bug)

    def fails(seed: int) -> bool:
        try:
            return differs(operator, with_flights(changed), 4, seed, FLIGHTS)
        except NeverEnds:
            return True

    assert any(map(fails, range(60)))


@pytest.mark.parametrize("bug", ["no fence between data and signal", "one signal for two puts"])
def test_signals_that_tell_of_all_puts_make_them_right(bug: str) -> None:
    name, _, edit, _ = BUGS[bug]
    assert checked(edit(OPERATORS[name](3, 2, STRONG).schedule)).proved
    assert STRONG.strength is Strength.ALL_BEFORE


def test_counts_are_right_where_the_transport_has_them() -> None:
    assert (
        checked(BUGS["a count over a network"][2](OPERATORS["reduce_scatter"](3, 2, WEAK).schedule)).refutation is None
    )


def test_a_put_that_returns_when_its_source_is_free_needs_no_quiet() -> None:
    operator = OPERATORS["reduce_scatter"](3, 2, SIGNAL)
    assert checked(without(QUIET)(operator.schedule)).proved


def test_streams_of_flights_are_nobody_elses() -> None:
    """Whoever is on them may reach other nodes."""
    schedule = OPERATORS["all_gather"](2, 2, SIGNAL).schedule
    (launch,) = schedule.launches
    refutation = checked(replace(schedule, launches=(replace(launch, stream=FLIGHTS[0]),))).refutation
    assert refutation is not None and refutation.wrong is Wrong.MALFORMED


@pytest.mark.parametrize("strange", ["every", "first", "count"])
def test_puts_of_an_unknown_number_are_refused(strange: str) -> None:
    def change(role: Role, phase: Phase) -> Phase:
        if role.name != "rails":
            return phase
        return replace(phase, **{strange: {"every": True, "first": 1, "count": rank + 1}[strange]})  # type: ignore[arg-type]

    refutation = checked(with_phases(OPERATORS["all_gather"](2, 2, SIGNAL).schedule, change)).refutation
    assert refutation is not None and refutation.wrong is Wrong.MALFORMED


def test_dimensions_with_a_network_come_first() -> None:
    schedule = OPERATORS["all_gather"](2, 2, SIGNAL).schedule
    refutation = checked(replace(schedule, mesh=schedule.mesh[::-1])).refutation
    assert refutation is not None and refutation.wrong is Wrong.MALFORMED
