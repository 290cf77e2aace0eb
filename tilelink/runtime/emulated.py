"""The operator of emitted source on emulated ranks: calls with inputs of their own, and what they returned."""

from __future__ import annotations

from collections.abc import Callable

import torch

from lowering.selfcheck.compare import poison as poison_memory
from tilelink.emulator import World
from tilelink.ir.schedule import Schedule
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.reference import kept, make_inputs, poison

Inputs = list[dict[str, torch.Tensor]]  # by rank, then by name


class EmulatedRun:
    """All ranks of `source` in this process. Equal schedules, sources, seeds and calls give equal runs.

    Memory holds nan before the first call, and outputs before each. Raises the errors of tilelink.emulator.
    """

    def __init__(self, schedule: Schedule, source: str, seed: int) -> None:
        machine = schedule.machine
        build: Callable[[object], Callable[..., object]] = operator_class(load_source(source, schedule.name))
        self._world = World(
            machine.num_ranks,
            num_sms=machine.num_sms,
            seed=seed,
            lazy_loading=True,
            peer_atomics=machine.peer_atomics,
        )
        self._schedule = schedule
        self._seed = seed
        self.operators = [build(fabric) for fabric in self._world.fabrics]
        for fabric, operator in zip(self._world.fabrics, self.operators, strict=True):
            poison_memory(operator, fabric.barrier)
        self.calls: list[tuple[Inputs, list[tuple[torch.Tensor, ...]]]] = []  # inputs and outputs, which `finish` fills

    def call(self) -> None:
        """Enqueue a call on every rank, behind those before it."""
        inputs = make_inputs(self._schedule.spec, 1000 * self._seed + len(self.calls))
        results = []
        for fabric, operator, parts in zip(self._world.fabrics, self.operators, inputs, strict=True):
            result = operator(*parts.values())
            outputs = result if isinstance(result, tuple) else (result,)
            poison(outputs)
            results.append(kept(fabric.main(), outputs))
        self.calls.append((inputs, results))

    def finish(self) -> None:
        """Run all that is enqueued."""
        self._world.run()
