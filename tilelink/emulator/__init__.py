"""All ranks, streams, copy engines and programs of emitted source in one CPU process, equal for equal seeds.

world = World(num_ranks=4, num_sms=8, seed=1)
operators = [AgGemm(fabric) for fabric in world.fabrics]
outputs = [operator(x, w) for operator, x, w in zip(operators, xs, ws)]  # only enqueues
world.run()  # executes; raises an EmulationError when the source hangs or leaves its buffers
"""

from __future__ import annotations

from tilelink.emulator.errors import (
    BadCollective,
    CollectiveMismatch,
    Deadlock,
    EmulationError,
    ForeignStream,
    IllegalCopy,
    IllegalLaunch,
    IllegalMatmul,
    IllegalWord,
    IllegalWorld,
    KernelError,
    OutOfBounds,
    StepLimit,
    SymmetricMismatch,
    UnknownInlineAsm,
    WorldBusy,
)
from tilelink.emulator.events import Event, Observer
from tilelink.emulator.scheduler import Policy, RandomPolicy, Task
from tilelink.emulator.streams import EmulatedStream
from tilelink.emulator.world import EmulatedFabric, EmulatedSymmetric, World

__all__ = [
    "BadCollective",
    "CollectiveMismatch",
    "Deadlock",
    "EmulatedFabric",
    "EmulatedStream",
    "EmulatedSymmetric",
    "EmulationError",
    "Event",
    "ForeignStream",
    "IllegalCopy",
    "IllegalLaunch",
    "IllegalMatmul",
    "IllegalWord",
    "IllegalWorld",
    "KernelError",
    "Observer",
    "OutOfBounds",
    "Policy",
    "RandomPolicy",
    "StepLimit",
    "SymmetricMismatch",
    "Task",
    "UnknownInlineAsm",
    "World",
    "WorldBusy",
]
