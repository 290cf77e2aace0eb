"""A whole schedule as steps: launches in order, the frame of a call around them, and what lies in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from tilelink.elaborate import listed, movers, packet_rails, rail_sums, rails, routed, signals, splits
from tilelink.elaborate.dims import Names
from tilelink.elaborate.folds import merge_steps
from tilelink.elaborate.library import library_collective, library_op
from tilelink.elaborate.packets import Blocks, packet_collective, packets_of_tiles
from tilelink.elaborate.positions import TILE, lets
from tilelink.elaborate.regions import Tiles
from tilelink.elaborate.stores import STEP, places_of
from tilelink.elaborate.tiles import body, item_lets, own_body
from tilelink.elaborate.user_body import functions
from tilelink.ir import nodes
from tilelink.ir import steps as ir
from tilelink.ir.calls import (
    LibraryCollective,
    LibraryOp,
    ListPlaces,
    ListRows,
    PacketCollective,
    SortRows,
    StateMerge,
)
from tilelink.ir.enums import Protocol
from tilelink.ir.movers import Issuer
from tilelink.ir.nodes import (
    AwaitPeers,
    Begin,
    CommRole,
    ComputeRole,
    CopyOwn,
    CopyProgram,
    Finish,
    Kernel,
    MoveRows,
    Publish,
    TellPlace,
)
from tilelink.ir.schedule import Schedule as Planned
from tilelink.ir.steps import IfOwn, SlotNotify, SlotWait, SumPackets
from tilelink.schedule.index import Index, call, rank
from tilelink.schedule.memory import Buffer, Memory
from tilelink.schedule.roles import (
    Cooperative,
    CopyEngine,
    Engine,
    Host,
    Launch,
    Network,
    Phase,
    PingPong,
    Pipelining,
    Plain,
    Prefetch,
    Role,
    Schedule,
    Sms,
    Who,
)
from tilelink.schedule.steps import For, Notify, Step, Wait
from tilelink.schedule.walk import steps_in

MAIN = "main"
LAST_CALL = "every peer has finished the last call"
ALL_RETURNED = "all rows of this rank have gone to the ranks of their tokens"
ALL_KEPT = "all rows of this rank are there for the ranks of their tokens"
THIS_CALL = "this rank has finished the call"
_MEMORY = {
    nodes.Memory.INPUT: Memory.INPUT,
    nodes.Memory.OUTPUT: Memory.OUTPUT,
    nodes.Memory.LOCAL: Memory.LOCAL,
    nodes.Memory.SYMMETRIC: Memory.SYMMETRIC,
    nodes.Memory.POOL: Memory.SYMMETRIC,  # the same place in every call is the hardest case
}


@lru_cache(maxsize=64)
def elaborated(planned: Planned) -> Schedule:
    """The steps of `planned`, in names of dims: what was chosen, sizes, and what follows from both. `instantiated` has numbers.

    Words that it sets back in every call grow here, and are awaited at values that grow as much.
    """
    names = Names(planned)
    return names.in_names(_in_numbers(names.schedule))


def _in_numbers(planned: Planned) -> Schedule:
    launches = tuple(_launches(planned))
    merges = [merge_steps(planned, one) for one in planned.launches if isinstance(one, StateMerge)]
    beside = (
        *_packets(planned),
        *rail_sums.buffers(planned),
        *splits.buffers(planned),
        *(one for merge in merges for one in merge.buffers()),
    )
    looked_up = {table.name: table for merge in merges for table in merge.tables()}
    plain = (_buffer(planned, buffer) for buffer in planned.buffers if buffer.name not in looked_up)
    buffers = (*plain, *beside)
    used = {step.signal for launch in launches for step in _words_of(launch)}
    words = tuple(signal for signal in signals.declared(planned) if signal.name in used)
    mesh = rails.mesh(planned)
    made = tuple((node.output.name, f"src[{node.line}] {node.output.name}") for node in planned.spec.nodes)
    sorted_ = (table for launch in planned.launches for table in routed.tables_of(planned, launch))
    tables = (*looked_up.values(), *sorted_)
    return Schedule(
        planned.name, mesh, buffers, words, launches, tables=tables, functions=functions(planned), origins=made
    )


def _words_of(launch: Launch) -> Iterator[Wait | Notify]:
    for role in launch.roles:
        for phase in role.phases:
            yield from (step for step in steps_in(phase.body) if isinstance(step, Wait | Notify))


def _buffer(planned: Planned, buffer: nodes.Buffer) -> Buffer:
    memory = _MEMORY[buffer.memory]
    for_caller = memory is Memory.SYMMETRIC and buffer.name in planned.spec.outputs
    told = (one.exchange for one in planned.launches if isinstance(one, TellPlace))
    # of a pool whose places nobody is told, the same one is as good
    places = next((places_of(one) for one in told if planned.exchange(one).target == buffer.name), None)
    return Buffer(buffer.name, memory, buffer.shape, buffer.dtype, for_caller=for_caller, places=places)


def _packets(planned: Planned) -> Iterator[Buffer]:
    """What travels beside values: packets of collectives, in two sets, for calls in turn; places of pools."""
    for launch in planned.launches:
        if isinstance(launch, TellPlace):
            yield Buffer(places_of(launch.exchange), Memory.SYMMETRIC, (planned.num_ranks,), "int64")
        if isinstance(launch, PacketCollective):
            shape = (2, planned.num_ranks, *Blocks(planned, launch).part_shape)
            yield from _sets(planned, launch.out, (shape,) * launch.shots, launch.protocol)
            yield from packet_rails.buffers(planned, launch)
        if isinstance(launch, Kernel) and launch.compute is not None:
            for step in launch.compute.body:
                if isinstance(step, SumPackets):
                    shapes = packets_of_tiles(Tiles(planned, launch.compute), step)
                    yield from _sets(planned, step.result, shapes, step.protocol)


def _sets(planned: Planned, name: str, shapes: tuple[tuple[int, ...], ...], protocol: Protocol) -> Iterator[Buffer]:
    for what, shape in zip(("packets", "sums"), shapes, strict=False):
        yield Buffer(f"{name}_{what}", Memory.SYMMETRIC, shape, planned.buffer(name).dtype, protocol)


# ---- the frame of a call -----------------------------------------------------------------------------------------------


def await_peers(planned: Planned, finish: Finish | None) -> tuple[Step, ...]:
    """Every peer has finished the last call, as `finish` tells it."""
    peer, peers = rails.near(planned)
    if finish is not None and finish.turns:
        return (Wait(signals.DONE, (0,), (call - 1) * peers),)
    return (For("step", peers, (Wait(signals.DONE, (peer,), call - 1),)),)


def finished(planned: Planned, finish: Finish) -> tuple[Step, ...]:
    """This rank has finished the call; with `meets`, so has every peer."""
    peer, peers = rails.near(planned)
    copied: list[Step] = []
    streams = signals.streams_that_tell(planned)
    if finish.within and streams:
        copied = [For("stream", streams, (Wait(signals.COPIED, (Index("stream"),), call),))]
        copied = copied if streams > 1 else [Wait(signals.COPIED, (0,), call)]
    if not finish.turns:
        return (For("step", peers, (Notify(signals.DONE, (rank,), peer, call),)),)
    outputs = tuple(name for name in planned.spec.outputs if any(one.name == name for one in planned.buffers))
    meet: tuple[Step, ...] = (Wait(signals.DONE, (0,), call * peers, outputs),) if finish.meets else ()
    told = For("step", peers, (Notify(signals.DONE, (0,), peer),))
    return (*copied, *rails.ended(planned), *((told,) if peers else ()), *meet)


def _launches(planned: Planned) -> Iterator[Launch]:
    finish = next((one for one in planned.launches if isinstance(one, Finish)), None)
    streams: list[str] = []
    for launch in planned.launches:
        match launch:
            case Begin():
                yield _alone("begin", Host(), await_peers(planned, finish), LAST_CALL)
            case AwaitPeers(within=False):
                yield _alone("await_peers", Host(), await_peers(planned, finish), LAST_CALL)
            case Publish(within=False):
                yield _alone("publish", CopyEngine(), movers.publish(planned, launch), "peers may pull now")
            case CopyOwn(exchange):
                yield _alone(f"own_{exchange}", CopyEngine(), (movers.copy_own(planned, launch),), "the own part")
            case CopyProgram():
                joins = (MAIN,) if launch.after_source else ()
                streams.append(launch.stream)
                for role in movers.copies(planned, launch):
                    yield Launch(launch.stream, (role,), joins)
                    joins = ()
            case LibraryOp():
                yield Launch(MAIN, (library_op(planned, launch),))
            case SortRows():
                yield Launch(MAIN, (routed.sort_rows(launch, int(planned.num_ranks)),))
            case ListRows():
                yield Launch(MAIN, (routed.list_rows(planned, launch),))
            case ListPlaces(placed):
                yield Launch(MAIN, (routed.list_places(placed),))
            case LibraryCollective():
                yield Launch(MAIN, (library_collective(planned, launch),))
            case StateMerge():
                yield Launch(MAIN, (merge_steps(planned, launch).role(),))
            case PacketCollective(within=False, beside=False):
                roles = (role for one in planned.one_launch(launch) for role in _packet_roles(planned, one))
                yield Launch(MAIN, tuple(roles))
            case Kernel(joined=False):
                yield _kernel(planned, launch, finish)
            case Finish():
                ending = () if launch.within else (Phase(1, finished(planned, launch), title=THIS_CALL),)
                if ending or streams:
                    engine: Engine = Sms(1, 1, 1) if ending else Host()
                    if ending and (launch.by_copy or rails.puts_words(planned)):
                        engine = CopyEngine() if launch.by_copy else Network()
                    yield Launch(MAIN, (Role("finish", engine, ending),), tuple(dict.fromkeys(streams)))
                if launch.by_copy and (far := rails.ended(planned)):
                    yield _alone("finish_far", Network(enqueued=True), far, "rails are told of the end of this call")


def _packet_roles(planned: Planned, launch: PacketCollective) -> Iterator[Role]:
    engine = Sms(launch.programs, Blocks(planned, launch).warps, 1, launch.per_sm)
    if launch.per_node:
        yield Role(f"{launch.out}_send", Network(launch.puts), (packet_rails.put(planned, launch),))
        yield Role(launch.out, engine, packet_rails.handed_on(planned, launch))
        return
    yield Role(launch.out, engine, packet_collective(planned, launch))


def _alone(name: str, engine: Engine, steps: tuple[Step, ...], title: str) -> Launch:
    return Launch(MAIN, (Role(name, engine, (Phase(1, steps, title=title),)),))


# ---- kernels -----------------------------------------------------------------------------------------------------------


def _kernel(planned: Planned, kernel: Kernel, finish: Finish | None) -> Launch:
    """Programs that move beside programs that compute; what they carry out for the call comes before and behind."""
    first: list[Phase] = []
    moved: list[Phase] = []  # by programs that compute
    last: list[Phase] = []
    # where warps move, they alone wait for peers: tiles that they are beside store nothing that is sent
    awaits: tuple[Phase, ...] = ()
    for carried in planned.within(kernel):
        match carried:
            case AwaitPeers():
                awaits = (Phase(1, await_peers(planned, finish), every=True, title=LAST_CALL),)
                if not any(comm.inside for comm in kernel.comm):
                    first += awaits
            case Publish():
                first.append(Phase(1, movers.publish(planned, carried), who=Who.FIRST, title="peers may pull now"))
            case TellPlace(exchange):
                told = movers.tell_place(planned, exchange)
                first.append(Phase(1, told, who=Who.FIRST, title="peers may store here"))
            case MoveRows(exchange):
                assert kernel.compute is not None, "its programs compute tiles"
                moved += listed.phases(planned, exchange, kernel.compute.programs)
            case PacketCollective():
                first += _gather_first(planned, carried)
            case Finish():
                last.append(Phase(1, finished(planned, carried), who=Who.LAST, title=THIS_CALL))
    every = tuple(phase for phase in first if phase.who is not Who.FIRST)
    roles = [_beside(planned, comm, kernel, every) for comm in kernel.beside]
    for comm in (one for one in kernel.comm if one.inside):
        moves = (*awaits, movers.by_warps(planned, comm))
        roles.append(Role(_mover(planned, comm), Sms(comm.programs, 1, 1, inside=True, pace=comm.pace), moves))
    joined = planned.joined_to(kernel)
    last = [*_returned(planned, kernel), *last]
    phases = [phase for one in joined if one.compute is not None for phase in tile_phases(planned, one.compute)]
    if kernel.compute is not None:
        engine = Sms(_programs(planned, kernel), kernel.warps, kernel.stages, kernel.per_sm, kernel.dies.count)
        roles.append(Role(f"{kernel.compute.name}_tiles", engine, (*every, *moved, *phases)))
    front = roles[0]
    own = tuple(phase for phase in first if phase.who is Who.FIRST)
    roles[0] = Role(front.name, front.engine, (*own, *front.phases))
    at = next((at for at, role in enumerate(roles) if isinstance(role.engine, Network)), -1)  # which tells other nodes
    roles[at] = replace(roles[at], phases=(*roles[at].phases, *last))
    return Launch(MAIN, tuple(roles))


def _beside(planned: Planned, comm: CommRole, kernel: Kernel, every: tuple[Phase, ...]) -> Role:
    """Programs that move what tiles do not."""
    puts = planned.exchange(comm.exchange).mover.puts
    engine = Network(comm.programs) if puts is Issuer.PROGRAMS else Sms(comm.programs, kernel.warps)
    return Role(_mover(planned, comm), engine, (*every, movers.programs(planned, comm)))


def _returned(planned: Planned, kernel: Kernel) -> Iterator[Phase]:
    """Of rows that tiles send to the ranks of their tokens, or keep for these, peers are told when the last tile is done: nobody
    but the device knows how many tiles there are, and a rank without any tells its peers, too."""
    steps = kernel.compute.body if kernel.compute is not None else ()
    stored = {one.operand.buffer for one in steps if isinstance(one, ir.Store)}
    peer = (rank + 1 + STEP) % planned.num_ranks
    for exchange in planned.exchanges:
        if exchange.kind is nodes.Kind.RETURN and (exchange.source or exchange.target) in stored:
            word, title = signals.arrived(exchange.name), ALL_RETURNED
            if exchange.source:
                word, title = signals.ready(exchange.name), ALL_KEPT
            told = Notify(word, (rank, 0), peer, call)
            yield Phase(1, (For("step", planned.num_ranks - 1, (told,)),), who=Who.LAST, title=title)


def _mover(planned: Planned, comm: CommRole) -> str:
    return f"{comm.exchange}_send" if planned.exchange(comm.exchange).source else comm.exchange


def _programs(planned: Planned, kernel: Kernel) -> int:
    """Programs that compute: as many as the largest loop over tiles has, which are the rest of the grid."""
    rest = planned.grid(kernel) - sum(comm.programs for comm in kernel.beside)
    loops = [one.compute.programs for one in planned.joined_to(kernel) if one.compute is not None]
    return next((programs for programs in loops if programs == rest), rest)


def _gather_first(planned: Planned, launch: PacketCollective) -> list[Phase]:
    """All programs gather, and none goes on before all have."""
    word = signals.gathered(launch.out)
    there = (Notify(word, (0,), rank), Wait(word, (0,), call * launch.programs, (launch.out,)))
    return [*packet_collective(planned, launch), Phase(1, there, every=True, title="all programs have gathered")]


OWN_SEGMENT = "tiles of the own segment"


def tile_phases(planned: Planned, role: ComputeRole) -> Iterator[Phase]:
    """The loops over tiles: whole ones, those of the own segment where they have a loop of their own, halves."""
    tiles = Tiles(planned, role)
    items = _item_lets(planned, role)
    tile = TILE - role.first if role.first else TILE
    how: Pipelining = Plain()
    if role.warpgroups > 1:
        how = PingPong(4, _stages(planned, role))
    elif role.cooperative:
        how = Cooperative(4, _stages(planned, role))
    elif role.prefetch:
        how = Prefetch(role.counts_late)
    by_routing = next((axis for axis in role.axes if axis.routed is not None), None)
    if by_routing is not None:
        yield from routed.phases(tiles, role, by_routing, _title(role))
        return
    branch = role.body[-1]
    if role.prefetch and isinstance(branch, IfOwn):
        segments = role.axis(branch.axis).segments
        others = role.num_tiles // segments * (segments - 1)
        rest = role.body[:-1]
        yield Phase(
            others,
            body(tiles, (*rest, *branch.others)),
            (*lets(role, tile), *items),
            role.first,
            pipelining=how,
            title=_title(role),
        )
        inner = tiles.in_own(branch.axis)
        own = (*body(inner, rest), *own_body(inner, branch))
        count = role.num_tiles - others
        yield Phase(
            count, own, (*lets(role, tile), *items), role.first + others, pipelining=Prefetch(), title=OWN_SEGMENT
        )
        return
    let = (*lets(role, tile), *items)
    if role.whole:
        yield Phase(role.whole, body(tiles, role.body), let, role.first, pipelining=how, title=_title(role))
    if role.halved:
        halves = Tiles(planned, role, halves=True)
        let = (("half", TILE % 2), *lets(role, role.whole + TILE // 2, halves=True), *items)
        yield Phase(2 * role.halved, body(halves, role.body), let, pipelining=how, title="the last tiles, in halves")
    if role.split:
        yield splits.phase(planned, role)


def _title(role: ComputeRole) -> str:
    """The order of tiles in a few words, and whose they are if not of the launch's first loop."""
    order, major = role.order, role.axis(role.order.major)
    across = f" through all of {order.minor}" if order.minor else ""
    groups = f"groups of {order.group} tiles along {order.major}{across}"
    if role.first:
        groups = f"{role.name}, by programs as they are done: {groups}"
    ends = "".join(f"; the last one along {axis.name} is shifted inwards" for axis in role.axes if axis.inwards)
    if major.segments == 1:
        return f"{groups}{ends}"
    late = ", the last one a round behind" if order.late else ""
    return f"{groups}, segments {order.nest.value}{late}{ends}"


def _stages(planned: Planned, role: ComputeRole) -> int:
    return next(one.stages for one in planned.kernels() if one.compute is role)


def _item_lets(planned: Planned, role: ComputeRole) -> tuple[tuple[str, Index | int], ...]:
    steps = [step for step in role.body if isinstance(step, SlotWait | SlotNotify)]
    found: dict[str, tuple[tuple[str, Index | int], ...]] = {}
    for step in steps:
        item = Index(step.rows) // role.axis(step.rows).tile
        found[step.exchange] = item_lets(planned.exchange(step.exchange), item)
    return tuple(one for several in found.values() for one in several)
