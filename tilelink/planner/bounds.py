"""What choices take at least: cheap bounds of the cost model, by which a search passes most over."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from tilelink.ir.choices import ComputeChoice, ExchangeChoice, LibraryCompute, TritonLoop
from tilelink.ir.movers import Issuer, Transfer
from tilelink.ir.nodes import Exchange, Kind
from tilelink.ir.spec import Attend, Matmul
from tilelink.planner.calls import calls_us
from tilelink.planner.cost import ENDED_US, FINISH_US, MEET_US, WITHIN_US, meet_share, most_boost_us
from tilelink.planner.course_bounds import course_us
from tilelink.planner.decisions import Chosen, Option
from tilelink.planner.exchange_bounds import beside as beside_group
from tilelink.planner.exchange_bounds import least_of_exchange, relation_of
from tilelink.planner.in_library import attends_to_parts
from tilelink.planner.layout import exchange_of, waits_late
from tilelink.planner.library_cost import library_attention, library_matmul
from tilelink.planner.links import index_us
from tilelink.planner.loop_bounds import Around, Busy, loop_us
from tilelink.planner.memo import remembered
from tilelink.planner.rails import held_sms
from tilelink.planner.rules import peer_atomics
from tilelink.planner.structure import Structure, around, group_of
from tilelink.planner.tile_cost import COUNT_US, LATE_COUNT_US
from tilelink.planner.tile_order import num_tiles


def least_us(structure: Structure, chosen: Chosen) -> float:
    """What a call with these choices takes at least, whether or not they go together."""
    exchanges = {name: one for (_, name), one in chosen.items() if isinstance(one, ExchangeChoice)}
    least = {name: least_of_exchange(structure, name, one) for name, one in exchanges.items()}
    loops = _loops(structure, chosen, exchanges, sum(one.spins for one in least.values()))
    tables_us = _tables_us(structure, chosen)
    total = calls_us(structure) + tables_us + sum(one.us for one in loops.values())
    total += sum(one.publish + one.copy for one in least.values())
    total = max(total, course_us(structure, least, loops, tables_us))
    total += _end_us(structure, exchanges, loops, total) if exchanges else 0.0
    total += sum(one.drag for one in least.values())
    tensor = sum(one.tensor for one in loops.values()), sum(one.most_tensor for one in loops.values())
    return total - most_boost_us(total, *tensor)


def _end_us(structure: Structure, exchanges: dict[str, ExchangeChoice], loops: dict[str, Busy], ended: float) -> float:
    """To end a call whose work has `ended` then."""
    met = 0.0
    if _meets(structure, tuple(exchanges.items())):
        in_step = any(one.kind is Kind.RETURN for one in structure.relations)
        met = MEET_US + (0.0 if in_step else meet_share(structure.topology) * ended)
    last = next(reversed(loops.values()), Busy(library=True))
    return met + (FINISH_US if last.library else min(FINISH_US, WITHIN_US + ENDED_US * last.programs))


def _tables_us(structure: Structure, chosen: Chosen) -> float:
    """Tables of routings: of each for tiles of each height."""
    made = set()
    for group in structure.groups:
        option = chosen["compute", group.name]
        if isinstance(option, ComputeChoice) and isinstance(option.loop, TritonLoop):
            made |= {(axis.routed, option.loop.tile.m) for axis in group.anchor.axes if axis.routed is not None}
    return sum(index_us(routed) for routed, _ in made)


def _loops(structure: Structure, chosen: Chosen, exchanges: dict[str, ExchangeChoice], spins: int) -> dict[str, Busy]:
    """All loops but those in the epilogue of others."""
    free, found = structure.topology.gpu.num_sms - spins, dict[str, Busy]()
    folded, beside = dict[str, str](), dict[str, int]()
    for index, group in enumerate(structure.groups):
        option = chosen["compute", group.name]
        if isinstance(option, ComputeChoice) and option.sum_in_epilogue and (maker := structure.folds_into(index)) >= 0:
            folded[structure.groups[maker].name] = group.name
    hosts = {inner: outer for outer, inner in folded.items()}
    for name, exchange in exchanges.items():
        scattered = relation_of(structure, name).kind is Kind.SCATTER
        if programs := exchange.mover.programs(scattered=scattered):
            host = beside_group(structure, name)
            host = hosts.get(host, host)
            beside[host] = beside.get(host, 0) + programs
    for index, group in enumerate(structure.groups):
        option = chosen["compute", group.name]
        if not isinstance(option, ComputeChoice) or option.sum_in_epilogue:
            continue
        if isinstance(option.loop, LibraryCompute):
            found[group.name] = library_us(structure, group.name, _pieces(structure, group.name, exchanges))
        elif isinstance(option.loop, TritonLoop):
            inner = folded.get(group.name, "")
            near: Around = tuple((name, exchanges[name]) for name in _near(structure, index, inner))
            found[group.name] = loop_us(structure, group.name, option, free - beside.get(group.name, 0), inner, near)
    return found


@remembered
def library_us(structure: Structure, name: str, pieces: int) -> Busy:
    """What the library computes, in so many pieces."""
    anchor, gpu = group_of(structure, name).anchor, structure.topology.gpu
    operands = [structure.graph.values[read.value] for read in anchor.reads]
    shapes, dtype = [one.shape for one in operands], operands[1].dtype
    match anchor.operation:
        case Attend() as how:
            found = library_attention(structure.topology, how, shapes[0][0], shapes[1][0], dtype, pieces)
            us = found.total_us + (pieces - 1) * gpu.kernel_launch_us
        case Matmul(transposed):
            rows, cols, k = (axis.extent for axis in sorted(anchor.axes, key=lambda axis: axis.reduction))
            found = library_matmul(structure.topology, rows, cols, k, dtype, transposed, pieces)
            us = found.total_us if pieces == 1 else pieces * found.piece_us + (pieces - 1) * gpu.kernel_launch_us
        case _:
            raise AssertionError("the library computes nothing else")
    return Busy(gpu.kernel_launch_us + us, found.tensor_us, library=True, most_tensor=found.tensor_us)


@remembered
def _near(structure: Structure, index: int, folded: str) -> tuple[str, ...]:
    members = (index,) if not folded else (index, structure.maker(folded))
    return around(structure, members)


@remembered
def _maker(structure: Structure, name: str) -> str:
    """The group that makes the source of relation `name`, empty for an input."""
    index = structure.maker(relation_of(structure, name).source)
    return structure.groups[index].name if index >= 0 else ""


def _pieces(structure: Structure, name: str, exchanges: dict[str, ExchangeChoice]) -> int:
    """Of what the library computes: one for each part of keys and values, or for each chunk of the exchange that brings the left
    operand of a matmul, or that sends its result."""
    anchor = group_of(structure, name).anchor
    if attends_to_parts(structure.graph, anchor):
        return structure.topology.num_ranks
    read = anchor.reads[0].value
    if read in exchanges:
        return structure.topology.num_ranks * exchanges[read].chunks
    for other, choice in exchanges.items():
        if _maker(structure, other) == name and structure.split_source(relation_of(structure, other), choice):
            return structure.topology.num_ranks * choice.chunks
    return 1


@remembered
def _meets(structure: Structure, exchanges: Around) -> bool:
    """Whether it is known that calls end together."""
    made = [exchange_of(structure, name, choice) for name, choice in exchanges]
    found = tuple(one for one in made if isinstance(one, Exchange))
    if len(found) < len(made) or not peer_atomics(structure.topology):
        return False
    return any(one.met for one in found) or not waits_late(structure.topology, found)


def alone_us(structure: Structure, name: str, option: Option) -> float:
    """What one decision takes at least by itself: of an exchange its transfers."""
    if isinstance(option, ExchangeChoice):
        one = least_of_exchange(structure, name, option)
        return one.transfers + one.drag + one.publish
    return _alone(structure, name, option).us


def _alone(structure: Structure, name: str, option: ComputeChoice) -> Busy:
    if isinstance(option.loop, LibraryCompute):
        return library_us(structure, name, 1)
    return (
        Busy() if option.sum_in_epilogue else loop_us(structure, name, option, structure.topology.gpu.num_sms, "", ())
    )


def least_of_any_us(structure: Structure, options: Mapping[str, Iterable[ComputeChoice]]) -> float:
    """What a call takes at least whatever is chosen, if each group has some of these options."""
    total, tensor = calls_us(structure), 0.0
    for name, some in options.items():
        alone = [_alone(structure, name, one) for one in some]
        total += min(one.us for one in alone)
        tensor += min(one.tensor for one in alone)
    return total - most_boost_us(total, tensor, math.inf)


def taken_sms(structure: Structure, chosen: Chosen) -> tuple[int, ...]:
    """How many SMs the tiles of a loop may lack: those of programs that communicate, and of kernels that wait on side streams."""
    topology, movers = structure.topology, {0}
    for option in chosen.values():
        if isinstance(option, ExchangeChoice):
            waits = option.transfer is Transfer.PULL or not topology.gpu.stream_wait_value
            most = option.mover.sms
            if option.mover.issuer is Issuer.STREAMS and waits:
                most = topology.num_ranks - 1 if option.per_peer else 1
            taken = {0, most}
            if option.mover.along_rails:
                held = held_sms(topology, option.mover)
                taken = {held + option.mover.programs(scattered=scattered) for scattered in (False, True)}
            movers = {one + more for one in movers for more in taken}
    return tuple(sorted(movers))


@remembered
def may_cut(structure: Structure, name: str, choice: ComputeChoice, taken: tuple[int, ...]) -> bool:
    """Whether several programs may have a piece of each tile of the last wave of a matmul, if tiles lack one of these numbers of
    SMs. True if it is not known."""
    loop = choice.loop
    if not isinstance(loop, TritonLoop) or not isinstance(group_of(structure, name).anchor.operation, Matmul):
        return True
    tiles, sms = num_tiles(structure, name, loop.tile.m, loop.tile.n), structure.topology.gpu.num_sms
    return any(
        0 < 2 * (tiles % programs) <= programs for programs in ((sms - n) * loop.tile.per_sm for n in taken if n < sms)
    )


def most_gained_us(structure: Structure, chosen: Chosen, name: str, then: ComputeChoice) -> float:
    """What a loop may take less with other values of the fields that come last: a last wave of halves, or counts that the next
    tile hides."""
    now = chosen["compute", name]
    if not isinstance(then.loop, TritonLoop) or not then.loop.late:
        return max(0.0, alone_us(structure, name, now) - alone_us(structure, name, then))
    rows = [
        -(-relation.part[0] // option.chunks)
        for relation in structure.relations
        if isinstance(option := chosen["exchange", relation.name], ExchangeChoice)
        and _maker(structure, relation.name) == name
    ]
    tile, programs = then.loop.tile, structure.topology.gpu.num_sms * then.loop.tile.per_sm
    counts = max((-(-max(tile.m, tile.n) // one) for one in rows), default=0)
    return -(-num_tiles(structure, name, tile.m, tile.n) // programs) * counts * (COUNT_US - LATE_COUNT_US)
