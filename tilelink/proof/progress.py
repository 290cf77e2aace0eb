"""Progress: no order of programs, no skew of ranks and no shortage of SMs makes a call hang.

Two parts. *Residency*: at any time at most as many programs are launched as the GPU has SMs, so that each becomes
resident without another one having to end. *No circle*: the wait-for relation over launches, tiles, chunks and signals is
acyclic. Together each program that is enqueued eventually runs and each wait ends, in whichever order things happen.

The relation is built for rank 0 only. A schedule is one function of `rank` that commutes with rotating the ranks (nodes,
and ranks inside a node): `rank` enters through RankOrder alone, which rotates. So an event of rank r that waits for an
event of its peer r + d is, seen from rank 0, the same event that waits for "the peer at distance d". A signal slot is
named by its distance; raised by a tile that serves the peer at distance d, it is the slot at distance -d over there. A
circle in the graph of all ranks projects to a circle here, and a circle here lifts to one there, since distances are
elements of a finite group.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from tilelink.ir.calls import LibraryCollective, LibraryGemm, WordCollective
from tilelink.ir.nodes import (
    AwaitPeers,
    Begin,
    CommRole,
    CopyOwn,
    CopyProgram,
    Exchange,
    Finish,
    Kernel,
    Kind,
    Publish,
    TellPlace,
    Transfer,
)
from tilelink.ir.order import Nest
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import AwaitPlaces, MatmulBody, SlotWait, Step, SumParts, SumWords, Wait
from tilelink.proof.bug_class import BugClass
from tilelink.proof.circle import WaitFor
from tilelink.proof.contract import flat, is_counted
from tilelink.proof.findings import Finding
from tilelink.proof.tile_events import TileEvents, opposite, place_word, use_word


def residency(schedule: Schedule) -> Iterator[Finding]:
    """The programs of each kernel fit beside all one-program kernels that spin on side streams meanwhile."""
    spinning = sum(_side_programs(schedule, x) for x in schedule.launches if isinstance(x, CopyProgram))
    for index, launch in enumerate(schedule.launches):
        if (
            isinstance(launch, WordCollective)
            and not launch.within
            and launch.sms + spinning > schedule.machine.num_sms
        ):
            programs = f"{launch.programs} programs{_shared(launch)}"
            fact = f"{programs} do not fit on {schedule.machine.num_sms} SMs, and they wait for peers"
            yield Finding(BugClass.RESIDENCY, f"launch {index}, {launch.function}", fact)
        if not isinstance(launch, Kernel):
            continue
        needed = launch.sms + spinning
        gathers = any(isinstance(one, WordCollective) for one in schedule.within(launch))  # and waits for all programs
        waits = (
            gathers or bool(launch.comm) or (launch.compute is not None and any(map(_spins, flat(launch.compute.body))))
        )
        if needed > schedule.machine.num_sms and (waits or spinning):
            beside = f" and {spinning} that hold up side streams" if spinning else ""
            fact = (
                f"{launch.programs} programs{_shared(launch)}{beside} do not fit on {schedule.machine.num_sms} SMs, "
                "and those that wait do not leave theirs"
            )
            yield Finding(BugClass.RESIDENCY, f"launch {index}, {launch.name}", fact)


def _shared(launch: Kernel | WordCollective) -> str:
    return f", {launch.per_sm} an SM," if launch.per_sm > 1 else ""


def _spins(step: Step) -> bool:
    match step:
        case Wait() | SlotWait() | AwaitPlaces() | SumWords():
            return True
        case SumParts(wait=wait):
            return wait is not None
        case MatmulBody(waits=waits):
            return bool(waits)
    return False


def _side_programs(schedule: Schedule, copies: CopyProgram) -> int:
    """One-program kernels that may spin at once on the streams of a copy program."""
    exchange = next(x for x in schedule.exchanges if x.name == copies.exchange)
    streams = copies.streams
    if exchange.transfer is Transfer.PULL:
        return streams  # waits for an epoch, whose value only the device knows
    counted = is_counted(schedule, exchange)
    return streams if counted and not schedule.machine.stream_waits else 0


def no_circle(schedule: Schedule) -> Iterator[Finding]:
    """The wait-for relation of one call is acyclic. Who awaits peers only waits for what `finish` of the last call raises."""
    relation = build(schedule)
    circle = relation.find_circle()
    if circle:
        shown = " -> ".join(map(str, circle[:6])) + (f" -> ... ({len(circle)} events)" if len(circle) > 6 else "")
        signal = next((event.split("[")[0] for event in circle if "[" in event), "")
        yield Finding(BugClass.CIRCLE, "wait-for relation", f"each waits for the next, round a circle: {shown}", signal)
    for event in relation.never_raised():
        fact = f"{event} is awaited and nobody ever raises it"
        yield Finding(BugClass.CIRCLE, "wait-for relation", fact, str(event).split("[")[0])


def build(schedule: Schedule) -> WaitFor:
    """The wait-for relation of rank 0."""
    relation = WaitFor()
    previous: Hashable = "start of the call"
    last_kernel: Hashable = previous
    begun = "launch 0 ends" if schedule.launches and isinstance(schedule.launches[0], Begin) else previous
    for index, launch in enumerate(schedule.launches):
        start, end = f"launch {index} starts", f"launch {index} ends"
        relation.after(start, previous)
        relation.after(end, start)
        match launch:
            case Kernel(comm=comm, compute=role):
                last_kernel = end
                for comm_role in comm:
                    _comm(schedule, relation, comm_role, start, end)
                if role is not None:
                    TileEvents(schedule, role, index).add(relation, start, end)
            case CopyProgram(exchange, after_source=after_source):
                fork = previous if after_source else begun
                _copies(schedule, relation, schedule.exchange(exchange), launch, fork)
            case Publish(exchange):
                _publish(schedule, relation, schedule.exchange(exchange), start)
            case TellPlace(exchange):
                for distance in range(schedule.num_ranks):
                    relation.raises(place_word(f"{exchange}_place", distance), start)
            case LibraryGemm():
                _library_gemm(schedule, relation, launch, start, end)
            case Finish(meets=meets, within=within):
                told = f"launch {index} tells its peers"
                relation.after(told, start)
                relation.after(end, told)
                for other in schedule.launches:
                    if isinstance(other, CopyProgram):
                        relation.after(told, f"stream {other.stream} is idle")
                        if within:  # by a program of that kernel, which does not end before
                            relation.after(last_kernel, f"stream {other.stream} is idle")
                if meets:
                    relation.raises("done of this call", told)
                    relation.waits(end, "done of this call")
            case WordCollective(out=out):  # every program stores at all peers before it waits for any
                relation.raises(f"words of {out}", start)
                relation.waits(end, f"words of {out}")
            case Begin() | AwaitPeers() | CopyOwn() | LibraryCollective():
                pass
        if not isinstance(launch, CopyProgram):
            previous = end
    return relation


def slot(name: str, distance: int, chunk: int) -> str:
    """A slot of a signal of this rank, for the part of the peer at `distance`."""
    return f"{name}[peer at {distance}, chunk {chunk}]"


def _own_slot(name: str, chunk: int) -> str:
    return f"{name}[chunk {chunk}]"


def counted_slot(exchange: Exchange, distance: int, chunk: int) -> str:
    name = f"{exchange.name}_count"
    return slot(name, distance, chunk) if exchange.kind is Kind.SCATTER else _own_slot(name, chunk)


def _moves(schedule: Schedule, exchange: Exchange) -> list[tuple[int, int]]:
    return list(exchange.order.sequence(0, exchange.chunks))


def _waits_and_raises(schedule: Schedule, exchange: Exchange, distance: int, chunk: int) -> tuple[str, str]:
    """What the mover waits for before a chunk (empty: nothing), and the slot that the chunk raises, both as of rank 0."""
    if exchange.transfer is Transfer.PULL:
        arrived = slot(f"{exchange.name}_arrived", distance, chunk)
        return slot(f"{exchange.name}_ready", distance, chunk), arrived
    needs = counted_slot(exchange, distance, chunk) if is_counted(schedule, exchange) else ""
    there = opposite(exchange.order.ranks, distance)
    return needs, "" if exchange.met else slot(f"{exchange.name}_arrived", there, chunk)


def _comm(schedule: Schedule, relation: WaitFor, role: CommRole, start: Hashable, end: Hashable) -> None:
    """Each program goes through all chunks; the last share raises the arrival. Programs differ in where they start."""
    exchange = schedule.exchange(role.exchange)
    if exchange.slots:
        _produce(relation, exchange, role, start, end)
        return
    chunk_major = exchange.order.nest is Nest.CHUNK_MAJOR
    for program in range(min(role.programs, schedule.num_ranks - 1) if chunk_major else 1):
        moves = _moves(schedule, exchange)
        if chunk_major:
            peers = schedule.num_ranks - 1
            rows = [moves[i : i + peers] for i in range(0, len(moves), peers)]
            moves = [row[(step + program) % peers] for row in rows for step in range(peers)]
        here: Hashable = start
        for distance, chunk in moves:
            needs, raised = _waits_and_raises(schedule, exchange, distance, chunk)
            done = f"program {program} of {exchange.name} moves chunk {chunk} for the peer at {distance}"
            relation.after(done, here)
            if needs:
                relation.waits(done, needs)
            if raised:
                relation.raises(raised, done)
            here = done
        relation.after(end, here)


def _produce(relation: WaitFor, exchange: Exchange, role: CommRole, start: Hashable, end: Hashable) -> None:
    """Items in turn, each by one program: in its slot, after the program's item before. What a program raises elsewhere is,
    by symmetry, what the same program of the rank on the other side raises here."""
    last: list[Hashable] = [start] * role.programs
    for item in range(exchange.chunks):
        program = item % role.programs
        done = f"program {program} of {exchange.name} stores item {item}"
        relation.after(done, last[program])
        for wait in role.before:
            if use_word(exchange, wait, item):
                relation.waits(done, use_word(exchange, wait, item))
        for notify in role.after:
            relation.raises(use_word(exchange, notify, item), done)
        last[program] = done
    for event in last:
        relation.after(end, event)


def _copies(schedule: Schedule, relation: WaitFor, exchange: Exchange, copies: CopyProgram, fork: Hashable) -> None:
    """In order on one stream, or on one a peer."""
    last: dict[int, Hashable] = {}
    per_peer, stream = copies.streams > 1, copies.stream
    for distance, chunk in _moves(schedule, exchange):
        needs, raised = _waits_and_raises(schedule, exchange, distance, chunk)
        key = distance if per_peer else 0
        done = f"stream {stream} copies chunk {chunk} for the peer at {distance}"
        relation.after(done, last.get(key, fork))
        if needs:
            relation.waits(done, needs)
        if raised:
            relation.raises(raised, done)
        last[key] = done
    for event in last.values():
        relation.after(f"stream {stream} is idle", event)


def _publish(schedule: Schedule, relation: WaitFor, exchange: Exchange, start: Hashable) -> None:
    for distance, chunk in _moves(schedule, exchange):
        there = opposite(exchange.order.ranks, distance)
        relation.raises(slot(f"{exchange.name}_ready", there, chunk), start)


def _library_gemm(schedule: Schedule, relation: WaitFor, gemm: LibraryGemm, start: str, end: str) -> None:
    """Piece by piece in the order of its parts: wait, multiply, count."""
    if not gemm.split:
        return
    exchange = schedule.exchange(gemm.split)
    here: Hashable = start
    for part in gemm.order.sequence(0):
        for chunk in range(exchange.chunks):
            done = f"{start[:-7]}, library matmul of chunk {chunk} of the part at {part}"
            relation.after(done, here)
            if gemm.wait is not None and part:
                relation.waits(done, slot(gemm.wait.signal, part, chunk))
            if gemm.count:
                relation.raises(counted_slot(exchange, part, chunk), done)
            here = done
    relation.after(end, here)
