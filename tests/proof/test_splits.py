"""Reductions that several programs share: lost shares, shares added twice, and shares that are read too early are refuted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

import pytest

import tilelink
import topologies
from tests.pipeline.operators import AG_GEMM, GEMM_RS
from tests.proof.planted import Change, refuted
from tilelink import Shard, Tensor
from tilelink.bench.operators import linear_rs
from tilelink.declaration import Overlap
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.schedule import Schedule as Planned
from tilelink.proof.verify import verify
from tilelink.schedule.index import Index, Number, call
from tilelink.schedule.instance import instantiated
from tilelink.schedule.memory import Region
from tilelink.schedule.roles import Phase, Schedule
from tilelink.schedule.steps import Compute, For, If, Load, Notify, Step, Store, Wait
from tilelink.schedule.walk import with_phases

TILES = {"compute": "triton", "tile": "16x32x16/4w2s", "tail": "split-k"}
K_SHARE, LAST = Index("k_share"), Index("last_tile")
SUMS = "y_sums"


def planned(operator: Overlap = GEMM_RS, depth: int = 128, **more: object) -> Planned:
    """Of 20 tiles 2 are left, each for three programs, of which two add a slice of it."""
    pins = {**TILES, "sum": "kernel", "algorithm": "direct"} if operator is not AG_GEMM else TILES
    sizes = {"M": 64, "K": depth, "N": 160 if operator is not AG_GEMM else 320}
    return operator.plan_for(topologies.load("laptop-switch", 2), sizes, "bf16", {**pins, **more})


def shared(step: Step) -> bool:
    """The loop over k of a share."""
    return (
        isinstance(step, For) and isinstance(step.count, Index) and any(isinstance(one, Compute) for one in step.body)
    )


def loop(new: Callable[[For], For]) -> Change:
    return lambda step: (new(step),) if isinstance(step, For) and shared(step) else (step,)


def stored(new: Callable[[Region], Region]) -> Change:
    def change(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Store) and step.region.buffer == SUMS:
            return (replace(step, region=new(step.region)),)
        return (step,)

    return change


def loaded(new: Callable[[Region], Region]) -> Change:
    def change(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Load) and step.region.buffer == SUMS:
            return (replace(step, region=new(step.region)),)
        return (step,)

    return change


def at(dim: int, number: Number) -> Callable[[Region], Region]:
    return lambda one: replace(one, start=(*one.start[:dim], number, *one.start[dim + 1 :]))


def adders(new: Callable[[If], Step]) -> Change:
    """Which programs of a tile add a slice of it."""
    found = Index("max", (Index("-", (2, K_SHARE)), 0))
    return lambda step: (new(step),) if isinstance(step, If) and step.left == found else (step,)


def teller(new: Callable[[If], Step]) -> Change:
    """Which program of a tile counts it."""
    return lambda step: (new(step),) if isinstance(step, If) and step.left == K_SHARE else (step,)


def waits(word: str = "y_summed", **new: object) -> Change:
    """The wait for shares, or for slices, is another one, or there is none."""

    def change(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Wait) and step.signal == word:
            return (replace(step, **new),) if new else ()  # type: ignore[arg-type]
        return (step,)

    return change


def tells(word: str = "y_summed", **new: object) -> Change:
    def change(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Notify) and step.signal == word:
            return (replace(step, **new),) if new else ()  # type: ignore[arg-type]
        return (step,)

    return change


BUGS: dict[str, Change] = {
    "a step of each share is lost": loop(lambda one: replace(one, count=one.count - 1)),
    "a step of each share is one of the next": loop(lambda one: replace(one, count=one.count + 1)),
    "all shares begin at the first step": loop(lambda one: replace(one, let=(("k", Index("k_tile") * 16),))),
    "shares are of other steps than are added": loop(
        lambda one: replace(one, let=tuple((name, value + 16) for name, value in one.let))
    ),
    "a share is lost": lambda step: () if isinstance(step, Compute) and step.operands[-1:] == ("more",) else (step,),
    "a share is added twice": lambda step: (
        (step, replace(step, operands=("y", "more")))
        if isinstance(step, Compute) and step.operands[-1:] == ("more",)
        else (step,)
    ),
    "the share of another tile is added": loaded(at(0, (LAST + 1) % 2)),
    "the first share is added for each": loaded(at(1, 0)),
    "shares are stored in one place": stored(at(1, 0)),
    "shares are stored for another tile": stored(at(0, (LAST + 1) % 2)),
    "shares are stored one place further": stored(at(1, K_SHARE + 1)),
    "columns of a share begin later": loaded(lambda one: replace(one, start=(*one.start[:3], 1))),
    "half of a share is stored": stored(lambda one: replace(one, extent=(*one.extent[:2], 8, one.extent[3]))),
    "nobody adds": adders(lambda one: replace(one, others=())),
    "all add": adders(lambda one: replace(one, left=K_SHARE, right=3)),
    "only the last program adds": adders(lambda one: replace(one, right=one.left)),
    "a slice is added by nobody": adders(lambda one: replace(one, left=Index("max", (Index("-", (1, K_SHARE)), 0)))),
    "two slices are the same": loaded(at(3, 0)),
    "nobody waits": waits(),
    "one share is not waited for": waits(until=call * 2 - 1),
    "shares of the call before are waited for": waits(until=(call - 1) * 2),
    "another tile is waited for": waits(index=((LAST + 1) % 2,)),
    "nobody tells": tells(),
    "another tile is told of": tells(index=((LAST + 1) % 2,)),
}


# where the tiles go to the peer
COUNTED: dict[str, Change] = {
    "nobody counts the tile": teller(lambda one: replace(one, body=())),
    "all count the tile": teller(lambda one: replace(one, others=one.body)),
    "the tile is counted before its slices are stored": waits("y_added"),
    "one slice is not waited for": waits("y_added", until=call * 2 - 1),
    "slices of the call before are waited for": waits("y_added", until=(call - 1) * 2),
    "slices of another tile are waited for": waits("y_added", index=((LAST + 2) % 4,)),
    "nobody tells of slices": tells("y_added"),
}


def counted() -> Planned:
    """Two tiles of each rank's part, all of which two programs share. Each of these adds a slice."""
    pins = {**TILES, "sum": "kernel", "algorithm": "direct", "y_parts.mover": "CopyEngine()"}
    return GEMM_RS.plan_for(topologies.load("laptop-switch", 2), {"M": 32, "K": 128, "N": 64}, "bf16", pins)


def test_there_are_several_shares_and_several_tiles() -> None:
    (role,) = [kernel.compute for kernel in planned().kernels() if kernel.compute is not None and kernel.compute.split]
    assert role.split == 2 and role.splits >= 3


@pytest.mark.parametrize("depth", [128, 72, 56])
@pytest.mark.parametrize("operator", [GEMM_RS, AG_GEMM, linear_rs], ids=["gemm_rs", "ag_gemm", "linear_rs"])
def test_schedules_are_proved(operator: Overlap, depth: int) -> None:
    proof = verify(planned(operator, depth))
    assert proof.proved, "\n".join(proof.lines())


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_found(bug: str) -> None:
    assert refuted(planned(), BUGS[bug])


def _split(phase: Phase) -> bool:
    return any(name == K_SHARE.op for name, _ in phase.let)


def other_lets(*new: tuple[str, Number]) -> Callable[[Phase], Phase]:
    """Tiles are counted otherwise."""
    return lambda phase: replace(phase, let=tuple((name, dict(new).get(name, value)) for name, value in phase.let))


PHASES: dict[str, Callable[[Phase], Phase]] = {
    "a tile is left out": lambda phase: replace(phase, count=phase.count - 3),
    "a share is left out": lambda phase: replace(phase, count=phase.count - 1),
    "tiles lie apart otherwise": other_lets(("last_tile", Index("tile") // 2)),
    "shares lie apart otherwise": other_lets(("k_share", Index("tile") // 2)),
}


@pytest.mark.parametrize("bug", PHASES)
def test_positions_that_are_others_are_refuted(bug: str) -> None:
    schedule = planned()
    steps: Schedule = instantiated(elaborated(schedule))
    changed = with_phases(steps, lambda _, phase: PHASES[bug](phase) if _split(phase) else phase)
    assert changed != steps
    assert not verify(schedule, changed).proved


@pytest.mark.parametrize("bug", COUNTED)
def test_a_tile_that_is_counted_wrongly_is_found(bug: str) -> None:
    assert verify(counted()).proved
    assert refuted(counted(), COUNTED[bug])


M, K, L, N = tilelink.dims("M K L N")


@tilelink.overlap
def twice(
    x: Annotated[Tensor, (M, K), Shard(0)],
    v: Annotated[Tensor, (L, K)],
    w: Annotated[Tensor, (L, N)],
) -> Tensor:
    return tilelink.matmul(tilelink.matmul(x, v.T), w)


def test_matmuls_that_are_cut_differently_are_proved() -> None:
    """The first one in shares of 32 along k; the second one has 24 in all, in shares of 16."""
    schedule = twice.plan_for(
        topologies.load("laptop-switch", 2),
        {"M": 2, "K": 64, "L": 24, "N": 64},
        "bf16",
        {"compute": "triton", "matmul_out.tile": "16x32x32/4w2s", "out.tile": "16x16x16/4w2s", "tail": "split-k"},
    )
    assert [kernel.compute.split > 0 for kernel in schedule.kernels() if kernel.compute is not None] == [True, True]
    assert verify(schedule).proved
