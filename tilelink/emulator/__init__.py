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
    IllegalAttention,
    IllegalCapture,
    IllegalCopy,
    IllegalLaunch,
    IllegalMatmul,
    IllegalWord,
    IllegalWorld,
    KernelError,
    LateSetup,
    NarrowScope,
    NoPeerAtomics,
    OutOfBounds,
    Race,
    StepLimit,
    SymmetricMismatch,
    UnknownInlineAsm,
    UnknownPolicy,
    WorldBusy,
)
from tilelink.emulator.events import Event, Observer
from tilelink.emulator.policies import RandomPolicy, policy_by_name, standard_policies
from tilelink.emulator.protocols import Difference, Enqueuing, first_difference
from tilelink.emulator.races import RaceDetector, Rules, Touch, Trace
from tilelink.emulator.recording import Recording
from tilelink.emulator.scheduler import Policy
from tilelink.emulator.streams import EmulatedStream
from tilelink.emulator.task import Task
from tilelink.emulator.world import EmulatedFabric, EmulatedSymmetric, World

__all__ = [
    "BadCollective",
    "CollectiveMismatch",
    "Deadlock",
    "Difference",
    "EmulatedFabric",
    "EmulatedStream",
    "EmulatedSymmetric",
    "EmulationError",
    "Enqueuing",
    "Event",
    "ForeignStream",
    "IllegalAttention",
    "IllegalCapture",
    "IllegalCopy",
    "IllegalLaunch",
    "IllegalMatmul",
    "IllegalWord",
    "IllegalWorld",
    "KernelError",
    "LateSetup",
    "NarrowScope",
    "NoPeerAtomics",
    "Observer",
    "OutOfBounds",
    "Policy",
    "Race",
    "RaceDetector",
    "RandomPolicy",
    "Recording",
    "Rules",
    "StepLimit",
    "SymmetricMismatch",
    "Task",
    "Touch",
    "Trace",
    "UnknownInlineAsm",
    "UnknownPolicy",
    "World",
    "WorldBusy",
    "first_difference",
    "policy_by_name",
    "standard_policies",
]
