"""Values: what a step takes has been made before in the same tile, tensors have the types and shapes of the spec, and
descriptors are used only where the hardware can."""

from __future__ import annotations

from collections.abc import Iterator

from tilelink.ir.graph import Copy, TileGraph, TileOp
from tilelink.ir.nodes import ComputeRole, Kernel, Memory
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import DTYPE_BYTES, Elementwise, Matmul
from tilelink.ir.steps import (
    Access,
    Apply,
    AwaitPlaces,
    IfOwn,
    Load,
    MatmulBody,
    Notify,
    Operand,
    SlotNotify,
    SlotWait,
    Step,
    Store,
    SumParts,
    SumWords,
    UserBody,
    Wait,
    cut_axes,
)
from tilelink.ir.user_op import UserOp
from tilelink.proof.bug_class import BugClass
from tilelink.proof.findings import Finding
from tilelink.proof.walk import points, reads


def values(schedule: Schedule, graph: TileGraph) -> Iterator[Finding]:
    yield from _tensors(schedule, graph)
    for index, launch in enumerate(schedule.launches):
        if not isinstance(launch, Kernel) or launch.compute is None:
            continue
        where = f"launch {index}, role {launch.compute.name}"
        yield from _made_before_used(where, launch.compute.body, set())
        yield from _beside(where, launch.compute.body)
        for at, step in points(index, launch.compute):
            for operand in [
                *(operand for operand, _ in reads(step)),
                *([step.operand] if isinstance(step, Store) else []),
            ]:
                yield from _descriptor(schedule, at.role, operand, str(at))


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


def _beside(where: str, steps: tuple[Step, ...]) -> Iterator[Finding]:
    """A matmul in the loop of another one comes right behind it, or behind others there, and has its left operand and axis."""
    first: MatmulBody | None = None
    for step in steps:
        if isinstance(step, IfOwn):
            yield from _beside(where, step.own)
            yield from _beside(where, step.others)
        if not isinstance(step, MatmulBody):
            first = None
        elif not step.beside:
            first = step
        elif first is None or first.result != step.beside:
            fact = f"{step.result} runs in the loop of {step.beside}, which does not come right before it"
            yield Finding(BugClass.WRONG_PLACE, where, fact)
        elif (first.left, first.axis) != (step.left, step.axis):
            fact = f"{step.result} takes the tiles that {first.result} loads, which are not those of its left operand"
            yield Finding(BugClass.WRONG_PLACE, where, fact)
        elif first.waits != step.waits:
            fact = f"{step.result} counts on other waits than there are in the loop of {first.result}"
            yield Finding(BugClass.WRONG_PLACE, where, fact)


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


def _descriptor(schedule: Schedule, role: ComputeRole, operand: Operand, where: str) -> Iterator[Finding]:
    """Rows at multiples of 16 bytes, and no tile that runs over the end of a part into the next one."""
    if operand.access is not Access.DESCRIPTOR:
        return
    buffer = schedule.buffer(operand.buffer)
    row_bytes = buffer.shape[-1] * DTYPE_BYTES[buffer.dtype]
    reason = ""
    if not schedule.machine.tensor_descriptors:
        reason = "the machine has no tensor descriptors"
    elif len(operand.index) != 2 or not all(operand.index) or row_bytes % 16:
        reason = f"rows of {row_bytes} bytes cannot be described"
    else:
        for name in operand.index:
            axis = role.axis(name)
            if axis.segments > 1 and axis.tile and axis.extent % axis.tile:
                reason = f"tiles of {axis.tile} along {name} run over the end of a segment of {axis.extent}"
        for name in cut_axes(operand.index, buffer.shape[-2:], operand.window):
            axis = role.axis(name)
            if axis.tile and axis.extent % axis.tile:
                reason = f"tiles of {axis.tile} along {name} run over the end of the window {list(operand.window)}"
    if reason:
        yield Finding(BugClass.WRONG_PLACE, f"{where}, descriptor of {operand.buffer}", reason)
