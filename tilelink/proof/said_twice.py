"""Rules of what nodes say twice, of which steps are made from one. The table is part of `rules`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from tilelink.ir.calls import LibraryGemm
from tilelink.ir.nodes import CommSms, CopyEngine, CopyProgram, Exchange, Fused, Kernel, Memory, Transfer
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import Access, Notify, SlotNotify, SlotWait, Step, Store, SumParts
from tilelink.ir.walk import flat, reads, waits_of
from tilelink.proof.broken import Broken
from tilelink.proof.bug_class import BugClass


def tile_steps(schedule: Schedule) -> Iterator[tuple[str, Step]]:
    """Every step of a loop over tiles, with where it stands; waits of library calls too."""
    for index, launch in enumerate(schedule.launches):
        if isinstance(launch, Kernel):
            for comm in launch.comm:
                around: tuple[Step, ...] = (*comm.before, *comm.after)
                yield from ((f"launch {index}, programs of {comm.exchange}", step) for step in around)
            if launch.compute is not None:
                where = f"launch {index}, role {launch.compute.name}"
                yield from ((where, step) for step in flat(launch.compute.body))
        elif isinstance(launch, LibraryGemm) and launch.wait is not None:
            yield f"launch {index}, library matmul into {launch.out.buffer}", launch.wait


def _movers(schedule: Schedule) -> Iterator[Broken]:
    copies = Counter(one.exchange for one in schedule.launches if isinstance(one, CopyProgram))
    for exchange in schedule.exchanges:
        roles = [one.programs for kernel in schedule.kernels() for one in kernel.comm if one.exchange == exchange.name]
        match exchange.mover:
            case CopyEngine():
                right = (copies[exchange.name], roles) == (1, [])
            case CommSms(num_sms):
                right = (copies[exchange.name], roles) == (0, [num_sms])
            case Fused():
                right = (copies[exchange.name], roles) == (0, [])
        if not right:
            fact = f"{copies[exchange.name]} copy programs and {sum(roles)} programs of kernels move it"
            yield Broken(f"exchange {exchange.name}", f"{fact}, where its mover is {exchange.mover}")


def _directions(schedule: Schedule) -> Iterator[Broken]:
    for exchange in schedule.exchanges:
        if isinstance(exchange.mover, Fused) and (exchange.transfer is Transfer.PULL) == bool(exchange.target):
            fact = f"tiles {exchange.transfer.value} it, and its target is {exchange.target or 'nowhere'}"
            yield Broken(f"exchange {exchange.name}", fact)
        if exchange.slots and exchange.transfer is not Transfer.PUSH:
            yield Broken(f"exchange {exchange.name}", "its items are pulled, and its slots lie at the receiver")


def _in_place(schedule: Schedule) -> Iterator[Broken]:
    for exchange in schedule.exchanges:
        if exchange.met and not _may_be_met(schedule, exchange):
            fact = "its parts are complete when the ranks meet, and no caller reads them where they lie"
            yield Broken(f"exchange {exchange.name}", fact)


def _may_be_met(schedule: Schedule, exchange: Exchange) -> bool:
    pushed = exchange.transfer is Transfer.PUSH and exchange.source in ("", exchange.target)
    return pushed and exchange.target in schedule.spec.outputs


def _words(schedule: Schedule) -> Iterator[Broken]:
    for where, step in tile_steps(schedule):
        match step:
            case Notify(count=count, exchange=exchange, then=then):
                if count != f"{exchange}_count" or (then and then not in (f"{exchange}_arrived", f"{exchange}_ready")):
                    yield Broken(where, f"{count} and {then or 'nothing'} are raised for {exchange}", then or count)
            case SlotWait(signal=signal, exchange=exchange) | SlotNotify(signal=signal, exchange=exchange):
                if signal not in (f"{exchange}_arrived", f"{exchange}_free"):
                    yield Broken(where, f"{signal} tells nothing of {exchange}", signal)
        for wait in waits_of(step):
            if wait.signal not in (f"{wait.exchange}_arrived", f"{wait.exchange}_ready"):
                yield Broken(where, f"{wait.signal} tells nothing of {wait.exchange}", wait.signal)


def _parts(schedule: Schedule) -> Iterator[Broken]:
    for where, step in tile_steps(schedule):
        if isinstance(step, SumParts) and step.wait is not None:
            wait = step.wait
            if wait.slot != step.operand.slot or not wait.every:
                fact = (
                    f"parts along {step.operand.slot} are added, and those along {wait.slot or 'nothing'} are awaited"
                )
                yield Broken(where, fact, wait.signal)
        elif isinstance(step, SlotWait | SlotNotify) and "programs of" in where and step.rows:
            yield Broken(where, f"programs go through items, and {step.rows} is an axis of tiles", step.signal)


def _items(schedule: Schedule) -> Iterator[Broken]:
    bounded = {exchange.target for exchange in schedule.exchanges if exchange.slots}
    for where, step in tile_steps(schedule):
        stored = (step.operand,) if isinstance(step, Store) else ()
        for operand in (*(one for one, _ in reads(step)), *stored):
            if operand.item != (operand.index[0] if operand.buffer in bounded else ""):
                item = operand.item or "no item"
                yield Broken(where, f"a tile of {operand.buffer} lies in the slot of {item}")


def _library(schedule: Schedule) -> Iterator[Broken]:
    for index, launch in enumerate(schedule.launches):
        if isinstance(launch, LibraryGemm):
            for operand in (launch.out, launch.right):
                if operand.own:
                    yield Broken(f"launch {index}, operand {operand.buffer}", "it lies in parts")
            for operand in (launch.out, launch.left, launch.right):
                if operand.remote or operand.item or operand.access is not Access.POINTER:
                    yield Broken(
                        f"launch {index}, operand {operand.buffer}", "it lies at another rank, or is described"
                    )


def _memory(schedule: Schedule) -> Iterator[Broken]:
    inputs = {value.name for value in schedule.spec.inputs}
    for buffer in schedule.buffers:
        given, made = buffer.name in inputs, buffer.name in schedule.spec.outputs
        legal = (
            (Memory.INPUT,)
            if given
            else (Memory.OUTPUT, Memory.SYMMETRIC, Memory.POOL)
            if made
            else (Memory.LOCAL, Memory.SYMMETRIC)
        )
        if buffer.memory not in legal:
            kinds = " or ".join(memory.value for memory in legal)
            yield Broken(f"buffer {buffer.name}", f"it lies in {buffer.memory.value} memory, not in {kinds}")


RULES: tuple[tuple[BugClass, str, Callable[[Schedule], Iterator[Broken]]], ...] = (
    (BugClass.WRONG_PLACE, "one mover carries out an exchange", _movers),
    (BugClass.WRONG_PLACE, "what is pushed has a target, and what is pulled is read where it lies", _directions),
    (BugClass.ORDERING, "nothing else says when they are there", _in_place),
    (BugClass.WRONG_PLACE, "words of an exchange tell of it alone", _words),
    (BugClass.WAIT_TOO_LITTLE, "a sum goes through parts one by one, and waits for the one that it is at", _parts),
    (BugClass.WRONG_PLACE, "items of a bounded exchange lie in its slots, and nothing else does", _items),
    (BugClass.WRONG_PLACE, "a library multiplies whole tensors of its rank", _library),
    (BugClass.WRONG_PLACE, "the caller gives inputs, and is given outputs", _memory),
)
