"""The operator of emitted source on emulated ranks: calls with inputs of their own, and what they returned."""

from __future__ import annotations

from collections.abc import Callable

import torch

from lowering.selfcheck.compare import poison as poison_memory
from tilelink.emulator import World
from tilelink.ir.schedule import Schedule
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.reference import kept, make_inputs, poison
from tilelink.runtime.tables import tables_of, wrong_table

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
            multicast=machine.multicast,
            ranks_per_node=getattr(build, "RANKS_PER_NODE", 0),
        )
        self._schedule = schedule
        self._seed = seed
        self.operators = [build(fabric) for fabric in self._world.fabrics]
        for fabric, operator in zip(self._world.fabrics, self.operators, strict=True):
            poison_memory(operator, fabric.barrier)
        self.calls: list[tuple[Inputs, list[tuple[torch.Tensor, ...]]]] = []  # inputs and outputs, which `finish` fills
        self.tables: list[Inputs] = []  # those that the index programs of each call have made
        self._tables = tables_of(schedule)

    def call(self) -> None:
        """Enqueue a call on every rank, behind those before it."""
        inputs = make_inputs(self._schedule.spec, 1000 * self._seed + len(self.calls))
        results, tables = [], list[dict[str, torch.Tensor]]()
        for fabric, operator, parts in zip(self._world.fabrics, self.operators, inputs, strict=True):
            result = operator(*parts.values())
            outputs = result if isinstance(result, tuple) else (result,)
            poison(outputs)
            results.append(kept(fabric.main(), outputs))
            made = kept(fabric.main(), (getattr(operator, name) for name in self._tables))
            tables.append(dict(zip(self._tables, made, strict=True)))
        self.calls.append((inputs, results))
        self.tables.append(tables)

    def finish(self) -> None:
        """Run all that is enqueued."""
        self._world.run()

    def wrong_table(self) -> str:
        """Where a call, after `finish`, has made a table that is not that of its inputs; empty if none has."""
        for call, ((inputs, _), tables) in enumerate(zip(self.calls, self.tables, strict=True)):
            if wrong := wrong_table(self._schedule, inputs, tables):
                return f"call {call}: {wrong}"
        return ""
