"""Running small hazards under the race detector."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

import torch

from tilelink.emulator import Race, World
from tilelink.emulator.races import RaceDetector, Rules

if TYPE_CHECKING:
    from collections.abc import Callable

    Scenario = Callable[[World], None]

INT = torch.int32
SEEDS = range(3)


def zeros(size: int = 64) -> torch.Tensor:
    return torch.zeros(size, dtype=INT)


def symmetric(world: World, size: int, words: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """A buffer of `size` int32 and signals of `words` int32 on each rank; every rank can address all of them."""
    buffers, all_signals = [], []
    for fabric in world.fabrics:
        buffer = fabric.symmetric((size,), INT)
        signals = fabric.symmetric((words,), INT)
        buffers.append(buffer.local)
        all_signals.append(signals.local)
    return buffers, all_signals


def find(scenario: Scenario, rules: Rules = Rules(), seed: int = 0, num_ranks: int = 2) -> Race | None:  # noqa: B008
    """The race of one run; the world runs as often as the scenario made it, and once more."""
    world = World(num_ranks, num_sms=8, seed=seed, observers=[RaceDetector(num_ranks, rules)])
    try:
        scenario(world)
        world.run()
    except Race as race:
        return race
    return None


def clean(scenario: Scenario, num_ranks: int = 2) -> None:
    """No seed shows a race."""
    for seed in SEEDS:
        assert find(scenario, seed=seed, num_ranks=num_ranks) is None


def racy(scenario: Scenario, *lifted: str, num_ranks: int = 2) -> Race:
    """Every seed shows a race, which each of the rules `lifted` takes away, and no other; returns that of seed 0."""
    for seed in SEEDS:
        assert isinstance(find(scenario, seed=seed, num_ranks=num_ranks), Race)
        causes = [
            rule.name
            for rule in fields(Rules)
            if find(scenario, replace(Rules(), **{rule.name: False}), seed, num_ranks) is None
        ]
        assert causes == list(lifted)
    race = find(scenario, num_ranks=num_ranks)
    assert race is not None
    return race
