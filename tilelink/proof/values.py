"""Values: what a step takes has been made before in the same tile, and tensors have the types and shapes of the spec."""

from __future__ import annotations

from collections.abc import Iterator

from tilelink.ir.graph import Copy, TileGraph, TileOp
from tilelink.ir.nodes import Kernel, Memory
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import Elementwise, Matmul
from tilelink.ir.steps import (
    Apply,
    AwaitPlaces,
    IfOwn,
    Load,
    MatmulBody,
    Notify,
    SlotNotify,
    SlotWait,
    Step,
    Store,
    SumParts,
    SumWords,
    UserBody,
    Wait,
)
from tilelink.ir.user_op import UserOp
from tilelink.proof.bug_class import BugClass
from tilelink.proof.findings import Finding


def values(schedule: Schedule, graph: TileGraph) -> Iterator[Finding]:
    yield from _tensors(schedule, graph)
    for index, launch in enumerate(schedule.launches):
        if not isinstance(launch, Kernel) or launch.compute is None:
            continue
        where = f"launch {index}, role {launch.compute.name}"
        yield from _made_before_used(where, launch.compute.body, set())


def _tensors(schedule: Schedule, graph: TileGraph) -> Iterator[Finding]:
    """Buffers that are values of the spec have their dtypes; inputs and outputs their shapes as well."""
    for buffer in schedule.buffers:
        value = graph.values.get(buffer.name)
        given = buffer.memory in (Memory.INPUT, Memory.OUTPUT)
        if value is None:
            continue
        if buffer.dtype != value.dtype or (given and buffer.shape != value.shape):
            fact = f"it is {list(buffer.shape)} {buffer.dtype}, and {value.name} is {list(value.shape)} {value.dtype}"
            yield Finding(BugClass.WRONG_PLACE, f"buffer {buffer.name}", fact)
    for exchange in schedule.exchanges:
        wanted = graph.values[exchange.name].dtype
        for name in (exchange.source, exchange.target):
            if name and schedule.buffer(name).dtype != wanted:
                fact = f"buffer {name} is {schedule.buffer(name).dtype}, and {exchange.name} is {wanted}"
                yield Finding(BugClass.WRONG_PLACE, f"exchange {exchange.name}", fact)


def _made_before_used(where: str, steps: tuple[Step, ...], made: set[str]) -> Iterator[Finding]:
    """`made` holds the values at this point and is extended; what a branch makes is known in that branch only."""
    for step in steps:
        used: tuple[str, ...] = ()
        match step:
            case Apply(arguments=arguments):
                used = arguments
            case Store(value=value):
                used = (value,)
            case SumWords(value=value):
                used = (value,)
            case SumParts(onto=onto):
                used = (onto,) if onto else ()
            case IfOwn(_, own, others):
                yield from _made_before_used(where, own, set(made))
                yield from _made_before_used(where, others, set(made))
            case Wait() | MatmulBody() | UserBody() | Load() | Notify() | SlotWait() | SlotNotify() | AwaitPlaces():
                pass
        for name in used:
            if name not in made:
                yield Finding(BugClass.WRONG_PLACE, where, f"{type(step).__name__} takes {name}, which is made later")
        if isinstance(step, Apply | SumParts | SumWords | MatmulBody | UserBody | Load):
            made.add(step.result)


def same_function(op: TileOp, step: Step) -> bool:
    """Whether the step computes what the operation says."""
    match op.operation, step:
        case Matmul(), MatmulBody(axis=axis):
            return axis == op.axes[2].name
        case UserOp(name=name), UserBody(function=function):
            return name == function
        case Elementwise(), Apply():
            written, made = op.operation, step
            return (written.function, written.left, written.right) == (made.function, made.left, made.right)
        case Copy(), Apply(function=function):
            return function == "copy"
    return isinstance(step, SumParts)
