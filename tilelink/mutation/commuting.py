"""Which steps and launches may be done twice in a row, and which neighbours may change places."""

from __future__ import annotations

from tilelink.ir.calls import Collective, LibraryGemm
from tilelink.ir.nodes import (
    AwaitPeers,
    CopyEngine,
    CopyOwn,
    CopyProgram,
    Finish,
    Kernel,
    Memory,
    Publish,
    TellPlace,
    Transfer,
)
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import (
    Apply,
    AwaitPlaces,
    IfOwn,
    Load,
    MatmulBody,
    Operand,
    Place,
    SlotWait,
    Step,
    Store,
    SumParts,
    UserBody,
    Wait,
)
from tilelink.mutation.progress import notifies_of

Compute = MatmulBody | UserBody | SumParts | Load | Apply


def idempotent(schedule: Schedule, node: object) -> bool:
    """Whether doing `node` twice in a row does what doing it once does."""
    match node:
        case Wait() | SlotWait() | AwaitPeers() | AwaitPlaces() | TellPlace():
            return True
        case MatmulBody(beside=beside):
            return not beside  # twice in one loop it adds twice
        case Store() | CopyOwn() | Finish() | UserBody() | Load():
            return True
        case SumParts(result=result, onto=onto):
            return result != onto
        case Apply(result=result, arguments=arguments):
            return result not in arguments
        case Publish(copy_from=copy_from):
            return not copy_from
        case LibraryGemm(out=out, left=left, right=right, count=count):
            return not count and out.buffer not in (left.buffer, right.buffer)
        case Collective(out=out, operand=operand):
            return out != operand
        case Kernel():
            return _kernel_is_idempotent(node) and not schedule.within(node)
        case _:
            return False


def _kernel_is_idempotent(kernel: Kernel) -> bool:
    """It counts nothing, moves nothing, stores nowhere but here, and reads nothing that it stores."""
    role = kernel.compute
    if kernel.comm or role is None or any(notifies_of(role.body)):
        return False
    stores = _stores(role.body)
    written = {store.operand.buffer for store in stores}
    return all(store.place in (Place.HERE, Place.OWN) for store in stores) and not written & _read(role.body)


def commute(schedule: Schedule, one: object, other: object) -> bool:
    """Whether two neighbours do the same in either order."""
    match one, other:
        case (Wait(), Wait()):
            return True  # both must be over before what follows, and neither changes anything
        case (Store(), Store()):
            return one.operand.buffer != other.operand.buffer
        case (Wait(), (MatmulBody() | UserBody() | Load() | Apply()) as step):
            return _reads_inputs_only(schedule, step)
        case ((MatmulBody() | UserBody() | Load() | Apply()) as step, Wait()):
            return _reads_inputs_only(schedule, step)
        case ((MatmulBody() | UserBody() | Load() | Apply()), (MatmulBody() | UserBody() | Load() | Apply())):
            return _independent(one, other)
        case (CopyProgram() as copies, launch) | (launch, CopyProgram() as copies):
            return _elsewhere(schedule, copies, launch)
        case _:
            return False


def _independent(one: Compute, other: Compute) -> bool:
    """Neither uses the other's result; both only read memory, and none is bound to the loop of another one."""
    values = (one.result, *_values(one)), (other.result, *_values(other))
    bound = any(isinstance(step, MatmulBody) and (step.waits or step.beside) for step in (one, other))
    return one.result not in values[1] and other.result not in values[0] and not bound


def _reads_inputs_only(schedule: Schedule, step: Compute) -> bool:
    if isinstance(step, MatmulBody) and step.waits:
        return False
    return all(schedule.buffer(name).memory is Memory.INPUT for name in _read((step,)))


def _elsewhere(schedule: Schedule, copies: CopyProgram, launch: object) -> bool:
    """The copies stand on a stream that was forked at `begin` and hold no SM; the launch is on the compute stream."""
    exchange = schedule.exchange(copies.exchange)
    counted = schedule.has_signal(f"{exchange.name}_count") and not schedule.machine.stream_waits
    holds_none = isinstance(exchange.mover, CopyEngine) and exchange.transfer is Transfer.PUSH and not counted
    return not copies.after_source and holds_none and isinstance(launch, Kernel | CopyOwn | LibraryGemm)


def _values(step: Compute) -> tuple[str, ...]:
    match step:
        case Apply(arguments=arguments):
            return arguments
        case SumParts(onto=onto):
            return (onto,)
        case MatmulBody() | UserBody() | Load():
            return ()


def _stores(steps: tuple[Step, ...]) -> list[Store]:
    found = [step for step in steps if isinstance(step, Store)]
    for step in steps:
        if isinstance(step, IfOwn):
            found += _stores((*step.own, *step.others))
    return found


def _read(steps: tuple[Step, ...]) -> set[str]:
    """Buffers that the steps load from."""
    found: set[str] = set()
    for step in steps:
        operands: tuple[Operand, ...] = ()
        match step:
            case MatmulBody(left=left, right=right):
                operands = (left, right)
            case UserBody(operands=pairs):
                operands = tuple(operand for _, operand in pairs)
            case SumParts(operand=operand) | Load(operand=operand):
                operands = (operand,)
            case IfOwn(own=own, others=others):
                found |= _read((*own, *others))
            case _:
                pass
        found |= {name for operand in operands for name in (operand.buffer, operand.own) if name}
    return found
