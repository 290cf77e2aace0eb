"""Columns of gathered rows, awaited chunk by chunk in the loop over k: what would read a chunk too early, or not at all, is
refuted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import topologies
from tests.pipeline.expert_specs import SPECS
from tests.proof.planted import Change, refuted
from tilelink.elaborate.routed import FIRST_TILES
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.schedule import Schedule as Planned
from tilelink.proof.verify import verify
from tilelink.schedule.index import Index, Number, greatest, least, rank, replaced
from tilelink.schedule.instance import instantiated
from tilelink.schedule.memory import Region
from tilelink.schedule.roles import Phase
from tilelink.schedule.steps import For, Load, Move, Notify, Step, Wait
from tilelink.schedule.walk import steps_in, with_phases

RANKS, CHUNKS = 3, 3
SIZES = {"T": 24, "H": 96, "F": 96, "E": 6, "K": 2}
COLS = SIZES["H"] // CHUNKS
CHUNK, PEER = Index("chunk"), Index("peer")


def planned(name: str = "ag_moe") -> Planned:
    value = "x_full" if name == "ag_moe" else "rows_value"
    pins = {f"{value}.cut": "columns", f"{value}.chunks": str(CHUNKS)}
    pins |= {"out.tile": "16x16x16/4w1s"} if name == "ag_moe" else {}  # more tiles than programs
    sizes = {size: number for size, number in SIZES.items() if size in SPECS[name].spec.symbols()}
    return SPECS[name].plan_for(topologies.load("laptop-switch", RANKS), sizes, "bf16", pins)


def waits(change: Callable[[Wait], tuple[Step, ...]]) -> Change:
    """Waits of tiles for chunks."""
    return lambda step: change(step) if isinstance(step, Wait) and step.signal == "x_full_arrived" else (step,)


def _columns(region: Region, first: Number, count: Number = COLS) -> Region:
    return replace(region, start=(region.start[0], first), extent=(region.extent[0], count))


def moves(change: Callable[[Region, Region], tuple[Region, Region]]) -> Change:
    """Copies to peers."""

    def changed(step: Step) -> tuple[Step, ...]:
        if not isinstance(step, Move) or step.target[0].at == rank:
            return (step,)
        source, target = change(step.source[0], step.target[0])
        return (replace(step, source=(source,), target=(target,)),)

    return changed


def _chunked(step: Step) -> bool:
    """The loop over chunks of a tile."""
    return (
        isinstance(step, For)
        and step.variable == CHUNK.op
        and any(isinstance(one, Load) for one in steps_in(step.body))
    )


def _without_waits(step: Step) -> tuple[Step, ...]:
    found = any(isinstance(one, Wait) and one.signal == "x_full_arrived" for one in steps_in((step,)))
    return () if found and isinstance(step, For | Wait) and not _chunked(step) else (step,)


def loops(change: Callable[[For], Step]) -> Change:
    return lambda step: (change(step),) if isinstance(step, For) and _chunked(step) else (step,)


def _behind(step: For) -> Step:
    """Waits stand behind what they are for."""
    return replace(step, body=(*step.body[1:], step.body[0]))


BUGS: dict[str, Change] = {
    "nobody waits": _without_waits,
    "the first chunk is awaited every time": waits(lambda one: (replace(one, index=(one.index[0], 0)),)),
    "the chunk before is awaited": waits(lambda one: (replace(one, index=(one.index[0], greatest(CHUNK - 1, 0))),)),
    "the own chunk is awaited": waits(lambda one: (replace(one, index=(rank, CHUNK)),)),
    "a chunk of the last call is awaited": waits(lambda one: (replace(one, until=one.until - 1),)),
    "the chunk is awaited behind its columns": loops(_behind),
    "one peer is not awaited": lambda step: (
        (replace(step, count=RANKS - 2),)
        if isinstance(step, For) and step.body and isinstance(step.body[0], Wait) and step.body[0].index[-1] == CHUNK
        else (step,)
    ),
    "a chunk is left out": loops(lambda one: replace(one, count=CHUNKS - 1)),
    "columns of the next chunk": lambda step: (
        (replace(step, let=tuple((name, replaced(one, {"chunk": (CHUNK + 1) % CHUNKS})) for name, one in step.let)),)
        if isinstance(step, For) and step.variable == "k_tile" and any("chunk" in str(one) for _, one in step.let)
        else (step,)
    ),
    "the first chunk is copied every time": moves(lambda a, b: (_columns(a, 0), _columns(b, 0))),
    "columns come to the place of others": moves(lambda a, b: (a, _columns(b, (CHUNK + 1) % CHUNKS * COLS))),
    "columns of others are copied": moves(lambda a, b: (_columns(a, (CHUNK + 1) % CHUNKS * COLS), b)),
    "a chunk has a column less": moves(
        lambda a, b: (_columns(a, CHUNK * COLS, COLS - 1), _columns(b, CHUNK * COLS, COLS - 1))
    ),
    "half of the rows": moves(lambda a, b: (replace(a, extent=(4, a.extent[1])), replace(b, extent=(4, b.extent[1])))),
    "the next chunk is told": lambda step: (
        (replace(step, index=(step.index[0], least(CHUNK + 1, CHUNKS - 1))),)
        if isinstance(step, Notify) and step.signal == "x_full_arrived"
        else (step,)
    ),
}


@pytest.mark.parametrize("name", ["ag_moe", "ep_layer"])
def test_schedules_are_proved(name: str) -> None:
    proof = verify(planned(name))
    assert proof.proved, "\n".join(proof.lines())


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_found(bug: str) -> None:
    assert refuted(planned(), BUGS[bug])


def _later(one: Phase) -> Phase:
    """Tiles are those of the positions behind them."""
    return replace(one, let=tuple((name, replaced(by, {"tile": Index("tile") + 1})) for name, by in one.let))


# which phase, and what is done to it
PHASES: dict[str, tuple[str, Callable[[Phase], Phase]]] = {
    "chunks are told before they are copied": ("copies", lambda one: replace(one, body=one.body[::-1])),
    "a program has no first tile": ("first", lambda one: replace(one, count=one.count - 1)),
    "a program has another first tile": ("first", lambda one: replace(one, first=1)),
    "later tiles begin one too late": ("later", lambda one: replace(one, first=one.first + 1)),
    "a later tile is left out": ("later", lambda one: replace(one, count=one.count - 1)),
    "later tiles are those behind them": ("later", _later),
}


def _which(phase: Phase) -> str:
    steps = list(steps_in(phase.body))
    if phase.title == FIRST_TILES:
        return "first"
    if any(isinstance(one, Load) and one.region.buffer == "x_full" for one in steps):
        return "later"
    return "copies" if any(isinstance(one, Move) and one.target[0].at != rank for one in steps) else ""


@pytest.mark.parametrize("bug", PHASES)
def test_a_bug_of_a_phase_is_found(bug: str) -> None:
    """Later tiles of a program wait for nothing: its first tile has."""
    schedule, (which, change) = planned(), PHASES[bug]
    steps = instantiated(elaborated(schedule))
    found = with_phases(steps, lambda _, phase: change(phase) if _which(phase) == which else phase)
    assert found != steps, "nothing has changed"
    assert not verify(schedule, found).proved
