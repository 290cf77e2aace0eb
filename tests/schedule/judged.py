"""A schedule judged by what is printed of it: lowered, run on emulated ranks under the race detector, compared with torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from typing import Literal

import torch

from lowering.steps.dtypes import element
from lowering.steps.file import lower
from tests.schedule.operators import OPERATORS, Operator
from tilelink.emulator import Deadlock, Policy, Race, RaceDetector, StepLimit, World
from tilelink.emulator.policies import Newest, Oldest, StarveRank
from tilelink.runtime.load import load_source, operator_class
from tilelink.schedule.memory import Memory
from tilelink.schedule.roles import Schedule

Outcome = Literal["right", "race", "deadlock", "wrong"]
CALLS, NUM_SMS = 3, 8
HALVED = ("flash_decode", "ring_attention")  # of which sums are rounded: a softmax


def outcome(schedule: Schedule, tables: dict[str, torch.Tensor], seeds: Iterable[int] = range(6)) -> Outcome:
    """What `schedule`, one of `OPERATORS` or a mutant of one, does on emulated ranks: the worst of some `seeds`."""
    return judged(replace(original(schedule), schedule=schedule, tables=lambda: tables), seeds)


def judged(operator: Operator, seeds: Iterable[int], sms: int = NUM_SMS) -> Outcome:
    """The first that goes wrong in runs of `CALLS` calls each. Raises what lowering raises."""
    module = printed_module(operator.schedule)
    for seed in seeds:
        try:
            differs = emulated(operator, module, seed, sms=sms)
        except Race:
            return "race"
        except (Deadlock, StepLimit):
            return "deadlock"
        if differs:
            return "wrong"
    return "right"


def original(schedule: Schedule) -> Operator:
    """The operator that `schedule` is a mutant of: of the same name, on as many ranks."""
    sizes = [axis.size for axis in schedule.mesh]
    return (
        next(found for make in OPERATORS.values() if (found := make(*sizes)).schedule.name == schedule.name)
        if (len(sizes) > 1)
        else next(
            found
            for make in OPERATORS.values()
            if make.__name__ != "two_level_rs" and (found := make(*sizes)).schedule.name == schedule.name
        )
    )


def printed_module(schedule: Schedule) -> ModuleType:
    return load_source(lower(schedule), schedule.name)


def hostile(seed: int, ranks: int) -> Policy | None:
    """Even seeds choose who runs next at random, odd ones starve a rank, or all but the newest or the oldest."""
    return (Newest(), Oldest(), StarveRank(0), StarveRank(ranks - 1))[seed // 2 % 4] if seed % 2 else None


def drawn(operator: Operator, generator: torch.Generator) -> dict[str, list[torch.Tensor]]:
    """Inputs of each rank: small integers, so that sums are exact; quarters of them for a softmax."""
    schedule, found = operator.schedule, {}
    for buffer in schedule.buffers:
        if buffer.memory is Memory.INPUT:
            shape = schedule.shapes[buffer.name]
            dtype = getattr(torch, element(buffer))
            draw = [torch.randint(-3, 4, shape, generator=generator).to(dtype) for _ in range(schedule.num_ranks)]
            draw = draw[:1] * schedule.num_ranks if buffer.name in operator.replicated else draw
            found[buffer.name] = [one / 4 for one in draw] if schedule.name in HALVED else draw
    return found


def emulated(
    operator: Operator, module: ModuleType, seed: int, calls: int = CALLS, captured: bool = False, sms: int = NUM_SMS
) -> bool:
    """Whether a result of `calls` calls differs from torch on whole tensors. `captured`: one call is recorded, and replayed
    with other inputs in the same memory. Raises what the emulator and the race detector raise."""
    ranks = operator.schedule.num_ranks
    world = World(ranks, num_sms=sms, seed=seed, policy=hostile(seed, ranks), observers=[RaceDetector(ranks)])
    tables = list(operator.tables().values())
    generator = torch.Generator().manual_seed(seed)
    pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
    with poisoned():
        operators = [operator_class(module)(fabric) for fabric in world.fabrics]
        inputs = drawn(operator, generator)
        for buffer in operator.schedule.buffers:
            if buffer.for_caller:
                for one in operators:
                    getattr(one, buffer.name).local.fill_(torch.nan)
        if captured:
            with world.capture() as recording:
                outs = [one(*_of_rank(inputs, r), *tables) for r, one in enumerate(operators)]
        for _ in range(calls):
            new = drawn(operator, generator)
            wanted = [one.clone() for one in operator.reference(**new)]
            if captured:
                for name, parts in inputs.items():
                    for r, part in enumerate(parts):
                        world.fabrics[r].main().copy(part, new[name][r])
                world.replay(recording)
            else:
                outs = [one(*_of_rank(new, r), *tables) for r, one in enumerate(operators)]
            for r, out in enumerate(outs):
                kept = torch.empty_like(out)
                world.fabrics[r].main().copy(kept, out)  # the caller reads it in stream order
                pairs.append((kept, wanted[r]))
        world.run()
    return any(_differs(operator, found, right) for found, right in pairs)


def _of_rank(inputs: dict[str, list[torch.Tensor]], rank: int) -> Sequence[torch.Tensor]:
    return [parts[rank] for parts in inputs.values()]


def _differs(operator: Operator, found: torch.Tensor, right: torch.Tensor) -> bool:
    if operator.schedule.name in HALVED:
        return not torch.allclose(found, right, atol=1e-5)
    return not torch.equal(found, right)


@contextmanager
def poisoned() -> Iterator[None]:
    """Inside, tensors that are not initialised hold NaN."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
