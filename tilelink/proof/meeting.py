"""Meeting: calls that end together, and outputs that are put together in place.

`finish` tells every peer that it has finished, and waits until every peer has told it. Who passes has before it all that
anybody did in this call: parts that peers stored or copied here need no signal of their own, if only the caller reads
them. What a peer's caller reads is in use until that peer begins the next call, which it does behind its caller in the
order of its stream. So a part may be put there only after a signal that the peer raised in this call.

An output in a pool lies in a place of which the rank knows that nobody reads it any more, and which it tells its peers when
it begins the call. Words of places are written again in the next call, which comes after the meeting at the end of this one:
so whoever has waited for them in this call reads the places of this call.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilelink.ir.nodes import (
    AwaitPeers,
    CommSms,
    CopyProgram,
    Exchange,
    Finish,
    Fused,
    Kernel,
    Kind,
    Memory,
    TellPlace,
    Transfer,
)
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import Access, AwaitPlaces, IfOwn, Place, Step, Store, SumParts, Wait
from tilelink.proof.bug_class import BugClass
from tilelink.proof.contract import flat, is_pooled
from tilelink.proof.findings import Finding


def meeting(schedule: Schedule) -> Iterator[Finding]:
    meets = any(isinstance(launch, Finish) and launch.meets for launch in schedule.launches)
    if meets:
        yield from _once(schedule)
    yield from _outputs(schedule)
    for exchange in schedule.exchanges:
        if exchange.met:
            yield from _in_place(schedule, exchange, meets=meets)
        yield from _told(schedule, exchange)


def _once(schedule: Schedule) -> Iterator[Finding]:
    """`done` of a call is waited for once, by `finish`."""
    for index, launch in enumerate(schedule.launches):
        where = f"launch {index}"
        if isinstance(launch, Finish) and launch.meets and not launch.turns:
            fact = "it waits for a count of peers, and `done` holds epochs"
            yield Finding(BugClass.STALE_SIGNAL, f"{where}, finish", fact, "done")
        if isinstance(launch, AwaitPeers) or (isinstance(launch, CopyProgram) and launch.awaits_done):
            fact = "it waits for peers that the last call has met, and that tell it nothing more"
            yield Finding(BugClass.CIRCLE, where, fact, "done")


def _outputs(schedule: Schedule) -> Iterator[Finding]:
    """An output in symmetric memory is one that an exchange puts together in place."""
    placed = {exchange.target for exchange in schedule.exchanges if exchange.met}
    for name in schedule.spec.outputs:
        if schedule.buffer(name).memory in (Memory.SYMMETRIC, Memory.POOL) and name not in placed:
            fact = "it lies in memory that peers write to, and nothing puts it together there"
            yield Finding(BugClass.WRONG_PLACE, f"output {name}", fact)


def _in_place(schedule: Schedule, exchange: Exchange, *, meets: bool) -> Iterator[Finding]:
    where = f"exchange {exchange.name}"
    if exchange.target not in schedule.spec.outputs:
        yield Finding(BugClass.ORDERING, where, f"nobody is told that {exchange.target} has arrived")
    if (
        exchange.kind is not Kind.GATHER
        or exchange.transfer is not Transfer.PUSH
        or exchange.source
        not in (
            "",
            exchange.target,
        )
    ):
        fact = f"its own part is made in {exchange.source or 'the target'}, and the caller reads {exchange.target}"
        yield Finding(BugClass.WRONG_PLACE, where, fact)
    if isinstance(exchange.mover, CommSms):
        fact = "its programs tell peers when a part has arrived, and there is no signal for that"
        yield Finding(BugClass.SLOTS, where, fact, f"{exchange.name}_arrived")
    if not meets:
        fact = "the call ends before parts of peers are there: nothing waits for them"
        yield Finding(BugClass.ORDERING, where, fact, "done")
    if not exchange.own_copied:
        yield Finding(BugClass.WRONG_PLACE, where, f"the own part never comes to {exchange.target}")
    for index, launch in enumerate(schedule.launches):
        if isinstance(launch, Kernel) and launch.compute is not None:
            for step, welcome in _stores(launch.compute.body, exchange.target, welcome=False):
                yield from _store(exchange, f"launch {index}, store of {step.value}", step, welcome=welcome)


def _told(schedule: Schedule, exchange: Exchange) -> Iterator[Finding]:
    """Places of a pool are told once a call, and whoever stores there has waited for them."""
    where, signal = f"exchange {exchange.name}", f"{exchange.name}_place"
    tells = [x for x in schedule.launches if isinstance(x, TellPlace) and x.exchange == exchange.name]
    if not is_pooled(schedule, exchange):
        if tells:
            yield Finding(
                BugClass.WRONG_PLACE, where, f"{exchange.target} is no pool, so that there is no place to tell"
            )
        return
    if not exchange.met or not isinstance(exchange.mover, Fused):
        fact = f"only tiles, which store {exchange.target} for readers after the call, know its place"
        yield Finding(BugClass.WRONG_PLACE, where, fact, signal)
    if len(tells) != 1:
        bug = BugClass.STALE_SIGNAL if tells else BugClass.CIRCLE
        yield Finding(bug, where, f"the place of {exchange.target} is told {len(tells)} times a call", signal)
    for index, launch in enumerate(schedule.launches):
        if isinstance(launch, Kernel) and launch.compute is not None:
            at = f"launch {index}"
            for step in flat(launch.compute.body):
                if isinstance(step, AwaitPlaces) and step.exchange == exchange.name and step.signal != signal:
                    yield Finding(BugClass.WRONG_PLACE, at, f"places of {exchange.target} are told by {signal}", signal)
            if not _knows(launch.compute.body, exchange, known=False):
                fact = f"a tile is stored to {exchange.target} of every rank before all have told its place"
                yield Finding(BugClass.REUSE, at, fact, signal)


def _knows(steps: tuple[Step, ...], exchange: Exchange, *, known: bool) -> bool:
    """Whether each store to the target comes after a wait for all places."""
    for step in steps:
        match step:
            case AwaitPlaces(exchange=name):
                known = known or name == exchange.name
            case IfOwn(_, own, others):
                if not (_knows(own, exchange, known=known) and _knows(others, exchange, known=known)):
                    return False
            case Store(operand=operand) if operand.buffer == exchange.target and not known:
                return False
    return True


def _store(exchange: Exchange, where: str, step: Store, *, welcome: bool) -> Iterator[Finding]:
    """Tiles store at every rank, this one too; what copy engines push lies in the own part."""
    place = Place.EVERY_PEER if isinstance(exchange.mover, Fused) else Place.OWN
    if step.place is not place:
        fact = f"the tile is stored {step.place.value}, and {exchange.target} is put together from {place.value}"
        yield Finding(BugClass.WRONG_PLACE, where, fact)
    if step.operand.access is Access.DESCRIPTOR:
        fact = "the tile is stored through a descriptor, which reaches no peer and no release waits for"
        yield Finding(BugClass.ASYNC_STORE, where, fact)
    if not welcome:
        fact = f"nothing says that the peers have begun this call; their callers may still read {exchange.target}"
        yield Finding(BugClass.REUSE, where, fact, "done")


def _stores(steps: tuple[Step, ...], buffer: str, *, welcome: bool) -> Iterator[tuple[Store, bool]]:
    """Each store to `buffer`, and whether the tile has waited for something of every peer before it."""
    for step in steps:
        match step:
            case Wait(every=every):
                welcome = welcome or every
            case SumParts(wait=wait):
                welcome = welcome or wait is not None
            case AwaitPlaces():
                welcome = True
            case IfOwn(_, own, others):
                yield from _stores(own, buffer, welcome=welcome)
                yield from _stores(others, buffer, welcome=welcome)
            case Store(operand=operand) if operand.buffer == buffer:
                yield step, welcome
