"""Atomics of one word are indivisible to each other only if the scope of each includes the other's program."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from tests.emulator import race_kernels as kernels
from tests.emulator.race_scenarios import INT, SEEDS, clean, find, racy, symmetric, zeros
from tilelink.emulator import NarrowScope, World
from tilelink.emulator.events import Kind, Scope, Via

if TYPE_CHECKING:
    from tests.emulator.race_scenarios import Scenario

SYSTEM = "sys"


def counting(*scopes: str, ranks: tuple[int, ...] = (0, 1), vector: bool = False) -> Scenario:
    """A program for each of `ranks` adds to one word of rank 0, at these scopes; nobody waits for anything."""

    def scenario(world: World) -> None:
        _, words = symmetric(world, 64, 2)
        for number, (rank, scope) in enumerate(zip(ranks, scopes, strict=True)):
            stream = world.fabrics[rank].stream(f"{number}")
            stream.launch(kernels.count, (1,), words[0], 1 + number, SCOPE=scope, VECTOR=vector)

    return scenario


def narrow(scenario: Scenario) -> NarrowScope:
    """Every seed shows a scope that is too narrow, and nothing is wrong if there is but one scope."""
    race = racy(scenario, "scopes")
    assert isinstance(race, NarrowScope)
    assert all(isinstance(find(scenario, seed=seed), NarrowScope) for seed in SEEDS)
    return race


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("scope", ["gpu", "cta"])
def test_between_ranks_only_system_scope_is_indivisible(scope: str, vector: bool) -> None:
    race = narrow(counting(scope, scope, vector=vector))
    assert {race.first.rank, race.second.rank} == {0, 1}
    assert race.first.kind is race.second.kind is Kind.ATOMIC
    assert race.first.what == "signals[0] of rank 0"
    assert "tl.atomic_add(word" in race.narrow.place.text
    assert f"{scope} scope does not include other" in str(race)
    clean(counting(SYSTEM, SYSTEM, vector=vector))


@pytest.mark.parametrize("scope", ["gpu", "cta"])
@pytest.mark.parametrize("narrow_rank", [0, 1])
def test_one_narrow_scope_is_enough_and_is_the_one_named(scope: str, narrow_rank: int) -> None:
    scopes = (scope, SYSTEM) if narrow_rank == 0 else (SYSTEM, scope)
    race = narrow(counting(*scopes))
    assert (race.narrow.rank, race.narrow.scope) == (narrow_rank, Scope(scope))
    assert {race.first.scope, race.second.scope} == {Scope(scope), Scope.SYSTEM}


@pytest.mark.parametrize("other", ["cta", "gpu", SYSTEM])
def test_between_programs_of_one_rank_gpu_scope_is_indivisible(other: str) -> None:
    race = narrow(counting("cta", other, ranks=(1, 1)))
    assert race.narrow.scope is Scope.CTA
    if other != "cta":
        clean(counting("gpu", other, ranks=(1, 1)))


def test_programs_of_one_launch_count_at_gpu_scope() -> None:
    def scenario(world: World, scope: str) -> None:
        world.fabrics[1].main().launch(kernels.count, (3,), zeros(1), 1, SCOPE=scope)

    clean(lambda world: scenario(world, "gpu"))
    race = narrow(lambda world: scenario(world, "cta"))
    assert race.first.program != race.second.program


def test_a_program_on_its_own_may_use_any_scope() -> None:
    def scenario(world: World) -> None:
        world.fabrics[0].main().launch(kernels.count_at_every_scope, (1,), zeros(4))

    clean(scenario)


def test_a_poll_has_a_scope_too() -> None:
    """An atomic that leaves the word as it is, beside one that raises it."""

    def scenario(world: World, count: str, look: str, lookers: int = 1) -> None:
        _, words = symmetric(world, 64, 1)
        if count:
            world.fabrics[1].main().launch(kernels.count, (1,), words[0], 1, SCOPE=count)
        for looker in range(lookers):
            world.fabrics[0].stream(f"{looker}").launch(kernels.look, (1,), words[0], zeros(1), SCOPE=look)

    clean(lambda world: scenario(world, SYSTEM, SYSTEM))
    race = narrow(lambda world: scenario(world, SYSTEM, "gpu"))
    assert (race.narrow.rank, race.narrow.changed, race.narrow.verb) == (0, False, "read by an atomic")
    assert narrow(lambda world: scenario(world, "gpu", SYSTEM)).narrow.verb == "changed by an atomic"
    clean(lambda world: scenario(world, "", "cta", lookers=2))  # what nobody changes, nobody can see in part


def test_volatile_loads_have_system_scope() -> None:
    def scenario(world: World, count: str, rank: int) -> None:
        _, words = symmetric(world, 64, 1)
        world.fabrics[rank].stream("count").launch(kernels.count, (1,), words[0], 1, SCOPE=count)
        world.fabrics[0].main().launch(kernels.look_volatile, (1,), words[0], zeros(1))

    clean(lambda world: scenario(world, SYSTEM, 1))
    clean(lambda world: scenario(world, "gpu", 0))
    assert narrow(lambda world: scenario(world, "gpu", 1)).narrow.scope is Scope.GPU


@pytest.mark.parametrize("by", ["write", "copy"])
def test_streams_belong_to_the_gpu_of_their_rank(by: str) -> None:
    def scenario(world: World, count: str, rank: int = 0) -> None:
        _, words = symmetric(world, 64, 1)
        stream = world.fabrics[rank].stream("notify")
        if by == "write":
            stream.write(words[0], 7)
        else:
            stream.copy(words[0], torch.ones(1, dtype=INT))
        world.fabrics[0].main().launch(kernels.count, (1,), words[0], 1, SCOPE=count)

    clean(lambda world: scenario(world, "gpu"))
    race = narrow(lambda world: scenario(world, "cta"))
    assert race.narrow.via is Via.ATOMIC
    if by == "copy":
        clean(lambda world: scenario(world, SYSTEM, rank=1))
        assert narrow(lambda world: scenario(world, "gpu", rank=1)).narrow.rank == 0


def test_what_is_ordered_needs_no_scope() -> None:
    """A message at system scope between two additions at CTA scope, and kernels that follow each other."""

    def scenario(world: World, ordered: bool = True) -> None:
        buffers, words = symmetric(world, 64, 2)
        send, take = world.fabrics[0].main(), world.fabrics[1].main()
        send.launch(kernels.count, (1,), words[0], 1, SCOPE="cta")
        send.launch(kernels.count, (1,), words[0], 1, SCOPE="cta")
        send.launch(kernels.push, (1,), buffers[1], words[1][1:], 5)
        if ordered:
            take.launch(kernels.take, (1,), buffers[1], words[1][1:], 5, zeros())
        take.launch(kernels.count, (1,), words[0], 1, SCOPE="cta")

    clean(scenario)
    narrow(lambda world: scenario(world, ordered=False))


@pytest.mark.parametrize(
    ("early", "late", "rank"),
    [
        # of two ranks: the second one is within GPU scope of the third task, the first one is not
        (("sys", 0), ("sys", 1), 1),
        # of one rank: the second one is indivisible to all, the first one is not
        (("gpu", 0), ("sys", 0), 1),
        (("cta", 1), ("gpu", 1), 1),
    ],
)
def test_an_access_stays_on_record_behind_one_with_which_less_is_in_conflict(
    early: tuple[str, int], late: tuple[str, int], rank: int
) -> None:
    """A second access comes after the first one; a third one, which comes last, is ordered with neither."""

    def scenario(world: World, first: str, third: str) -> None:
        buffers, words = symmetric(world, 64, 2)
        flag = zeros(1)
        one, other = world.fabrics[early[1]].main(), world.fabrics[late[1]].stream("late")
        one.launch(kernels.count, (1,), words[0], 1, SCOPE=first)
        one.launch(kernels.push, (1,), buffers[1], words[1][1:], 5)
        other.launch(kernels.take, (1,), buffers[1], words[1][1:], 5, zeros())
        other.launch(kernels.count, (1,), words[0], 1, SCOPE=late[0])
        other.launch(kernels.count, (1,), flag, 1, SCOPE=SYSTEM)
        world.fabrics[rank].stream("third").launch(kernels.count_behind, (1,), flag, words[0], SCOPE=third)

    narrow_third = early[1] != late[1]
    clean(lambda world: scenario(world, SYSTEM, SYSTEM))
    # without the rule of semantics the flag orders them
    race = racy(lambda world: scenario(world, early[0], "gpu" if narrow_third else SYSTEM), "semantics", "scopes")
    assert isinstance(race, NarrowScope)
    assert (race.first.rank, race.second.rank, race.second.task) == (early[1], rank, "count_behind(0, 0, 0)")
    assert race.narrow is (race.second if narrow_third else race.first)


def test_two_scopes_from_one_line_are_told_apart() -> None:
    def scenario(world: World) -> None:
        _, words = symmetric(world, 64, 2)
        world.fabrics[0].main().launch(kernels.count_twice, (1,), words[0])
        world.fabrics[1].main().launch(kernels.count, (1,), words[0][1:], 1, SCOPE=SYSTEM)

    assert narrow(scenario).first.what == "signals[1] of rank 0"
