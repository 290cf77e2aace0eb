"""What steps must keep to that neither their order nor what they put where says: machines, and what a compiler makes of a loop.

One table, each rule with its reason. A rule looks at steps and at the machine, and at nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tilelink.ir.counting import in_registers
from tilelink.ir.dtype import DTYPE_BYTES, DTYPES
from tilelink.ir.enums import WARP, Protocol
from tilelink.ir.nodes import PIECE_ROWS, TURN_SLICE_BYTES, Machine
from tilelink.ir.warpgroups import GROUP_WARPS
from tilelink.proof.broken import Broken
from tilelink.proof.bug_class import BugClass
from tilelink.proof.findings import Finding
from tilelink.proof.multicast import not_one_store, of_no_packets, over_other_links
from tilelink.schedule.index import Index, Number, difference, names_in, rank, tables_in
from tilelink.schedule.memory import Access, Buffer, Memory, Region
from tilelink.schedule.merging import merge_of
from tilelink.schedule.printing import in_a_line
from tilelink.schedule.roles import (
    Cooperative,
    Host,
    Launch,
    Network,
    Phase,
    PingPong,
    Prefetch,
    Role,
    Schedule,
    Sms,
    Who,
)
from tilelink.schedule.steps import SEND_RECEIVE, Call, Compute, For, Load, Step, Wait
from tilelink.schedule.walk import all_steps, indices, notifies, phases, read, steps_in, synchronises, written

_ROW_BYTES = 16  # of a tensor that is described, a multiple of them (CUDA driver API, cuTensorMapEncodeTiled)


@dataclass(frozen=True, slots=True)
class Rule:
    """`broken` yields where a schedule for a machine breaks it, `reason` says what happens then."""

    bug: BugClass
    reason: str
    broken: Callable[[Schedule, Machine], Iterator[Broken]]


def broken_rules(schedule: Schedule, machine: Machine) -> Iterator[Finding]:
    """A finding for each place at which a rule is broken; `schedule` has numbers for its dims."""
    for rule in RULES:
        for where, fact, signal in rule.broken(schedule, machine):
            yield Finding(rule.bug, where, f"{fact}; {rule.reason}", signal)


# ---- machines ----------------------------------------------------------------------------------------------------------


def _residency(schedule: Schedule, machine: Machine) -> Iterator[Broken]:
    spinning = sum(_held_up(schedule, machine, role) for launch in schedule.launches for role in launch.roles)
    by_data = frozenset(one.name for one in schedule.buffers if one.protocol is not Protocol.SIMPLE)
    for number, launch in enumerate(schedule.launches):
        engines = [role.engine for role in launch.roles if not role.by_host]
        shared = sum(role.programs for role in launch.roles if isinstance(role.engine, Sms) and not role.inside)
        puts = sum(role.programs for role in launch.roles if isinstance(role.engine, Network) and not role.by_host)
        taken = shared + puts
        sms = puts - (-shared // max([one.per_sm for one in engines if isinstance(one, Sms)], default=1))
        waits = any(synchronises(phase.body, by_data) for role in launch.roles for phase in role.phases)
        if engines and (waits or spinning) and sms + spinning > machine.num_sms:
            beside = f" and {spinning} that hold up streams" if spinning else ""
            fact = f"{taken} programs{beside} do not fit on {machine.num_sms} SMs"
            yield Broken(f"launch {number}, {', '.join(role.name for role in launch.roles)}", fact)


def _held_up(schedule: Schedule, machine: Machine, role: Role) -> int:
    """SMs that calls of a role hold, or streams of a role that programs hold up until a word has the number of the call, which
    the host does not know; or until any word has come, where streams wait for none."""
    steps = [step for phase in role.phases for step in steps_in(phase.body)]
    if isinstance(role.engine, Host):  # a call that meets other ranks holds one SM at least
        return max(role.engine.sms, *(isinstance(one, Call) and one.function == SEND_RECEIVE for one in steps), 0)
    waits = [one for one in steps if isinstance(one, Wait)]
    if not role.by_host or not waits:
        return 0
    raised = [one for step in all_steps(schedule) for one in notifies(step)]
    numbered = {one.signal for one in raised if one.to is not None and one.at != rank}
    held = any(wait.signal in numbered for wait in waits) or not machine.stream_waits
    return role.programs if held else 0


def _links(schedule: Schedule, machine: Machine) -> Iterator[Broken]:
    if machine.peer_atomics:
        return
    for _, role, phase in phases(schedule):
        for step in steps_in(phase.body):
            for notify in notifies(step):
                if notify.at != rank and (isinstance(role.engine, Sms) or notify.to is None):
                    yield Broken(f"role {role.name}", f"{in_a_line(step)} raises a word of peers", notify.signal)
            if isinstance(role.engine, Sms) and any(region.at != rank for region in written(step)):
                yield Broken(f"role {role.name}", f"{in_a_line(step)} stores at peers, who are told by programs")


def _stream_waits(schedule: Schedule, machine: Machine) -> Iterator[Broken]:
    if machine.stream_waits:
        return
    added = {one.signal for step in all_steps(schedule) for one in notifies(step) if one.at != rank and one.to is None}
    for _, role, phase in phases(schedule):
        for step in steps_in(phase.body) if role.by_host and not isinstance(role.engine, Host) else ():
            if isinstance(step, Wait) and step.signal in added:
                yield Broken(f"role {role.name}", f"{in_a_line(step)} on a stream", step.signal)


# ---- tables ------------------------------------------------------------------------------------------------------------


def _tables_made(schedule: Schedule, _: Machine) -> Iterator[Broken]:
    made: dict[str, str] = {table.name: "" for table in schedule.tables if table.memory is Memory.LOCAL}
    for launch in schedule.launches:  # by the stream on which the tables of launches so far have been made
        calls = set[str]()
        for role in launch.roles:
            for phase in role.phases:
                calls.update(name for step in steps_in(phase.body) if isinstance(step, Call) for name in step.tables)
                numbers = [phase.count, phase.first, *(one for _, one in phase.let)]
                numbers += [index for step in steps_in(phase.body) for index in indices(step)]
                for name in {name for one in numbers for name in tables_in(one)} & made.keys():
                    if made[name] != launch.stream:
                        yield Broken(f"role {role.name}", f"{name} has not been made on its stream before")
        made |= dict.fromkeys(calls & made.keys(), launch.stream)


# ---- descriptors -------------------------------------------------------------------------------------------------------


def _regions(schedule: Schedule) -> Iterator[tuple[Role, Phase, Step, Region, bool]]:
    """Of each region that is described: who has it, and whether it is written."""
    for _, role, phase in phases(schedule):
        for step in steps_in(phase.body):
            for region in (*read(step), *written(step)):
                if region.access.by_descriptor:
                    yield role, phase, step, region, region in written(step)


def _described(schedule: Schedule, machine: Machine) -> Iterator[Broken]:
    buffers = {buffer.name: buffer for buffer in schedule.buffers}
    for role, _, step, region, stored in _regions(schedule):
        where, buffer = f"role {role.name}, {in_a_line(step)}", buffers[region.buffer]
        row_bytes = schedule.shapes[region.buffer][-1] * DTYPE_BYTES[buffer.dtype]
        if not machine.tensor_descriptors:
            yield Broken(where, "the machine has no tensor descriptors")
        elif len(region.start) < 2 or row_bytes % _ROW_BYTES or any(extent == 1 for extent in region.extent[-2:]):
            yield Broken(where, f"rows of {row_bytes} bytes cannot be described")
        elif not stored and region.access is Access.PACED:
            yield Broken(where, "only stores leave a few rows at a time")
        elif region.access is Access.PARTS and (stored or len(region.start) < 3 or region.at != rank):
            yield Broken(where, "descriptors of parts load from a part of this rank's memory")


def _seen_early(schedule: Schedule, machine: Machine) -> Iterator[Broken]:
    waits = [step for step in all_steps(schedule) if isinstance(step, Wait)]
    for role, phase, step, region, stored in _regions(schedule):
        told = {notify.signal for one in steps_in(phase.body) for notify in notifies(one)}
        awaited = any(wait.signal in told and region.buffer in wait.covers for wait in waits)
        if stored and region.access is Access.DESCRIPTOR and (region.at != rank or awaited):
            who = "peers" if region.at != rank else "others"
            yield Broken(f"role {role.name}, {in_a_line(step)}", f"{who} are told of what a descriptor stores")


# ---- packets -----------------------------------------------------------------------------------------------------------


def _lines_elsewhere(schedule: Schedule, machine: Machine) -> Iterator[Broken]:
    lines = {one.name for one in schedule.buffers if one.protocol is Protocol.LL128}
    if machine.arch.startswith("sm_") and machine.peer_atomics:
        return
    for _, role, phase in phases(schedule):
        for step in steps_in(phase.body):
            if any(region.buffer in lines for region in written(step)):
                yield Broken(
                    f"role {role.name}, {in_a_line(step)}", "links of this machine need not bring a line whole"
                )


def _sent_once(schedule: Schedule, machine: Machine) -> Iterator[Broken]:
    # packets that say the number of the call are not emptied, and may be sent twice in it
    buffers = {one.name: one for one in schedule.buffers if one.protocol is Protocol.LAMPORT}
    every = {one.name: one for one in schedule.buffers}
    for _, role, phase in phases(schedule):
        warps = role.engine.warps if isinstance(role.engine, Sms) else 1
        merged = [merge for one in steps_in(phase.body) if isinstance(one, For) and (merge := merge_of(one, every))]
        together = {one.means.buffer: one.most for one in merged}  # packets of states that are taken at once
        for step in steps_in(phase.body):
            for buffer, region in ((buffers.get(one.buffer), one) for one in (*read(step), *written(step))):
                times = together.get(region.buffer, 1) if region in read(step) else 1
                packets = times * _packets_of(buffer, region) if buffer is not None else 0
                if buffer is not None and warps > 1 and packets < WARP * warps:
                    fact = f"{packets} packets for the {WARP * warps} threads of {warps} warps"
                    yield Broken(f"role {role.name}, {in_a_line(step)}", fact)


def _packets_of(buffer: Buffer, region: Region) -> int:
    return (
        in_registers(tuple(map(_of_a_whole_tile, region.extent)))
        * DTYPE_BYTES[buffer.dtype]
        // buffer.protocol.data_bytes
    )


def _of_a_whole_tile(extent: Number) -> int:
    """Of what is cut at an edge, all. One that is computed counts for nothing."""
    if isinstance(extent, Index) and extent.op == "min":
        return min((one for one in extent.args if isinstance(one, int)), default=1)
    return max(1, extent) if isinstance(extent, int) else 1


# ---- loops -------------------------------------------------------------------------------------------------------------


def _one_step(schedule: Schedule, machine: Machine) -> Iterator[Broken]:
    for _, role, phase in phases(schedule):
        loops = [one for one in steps_in(phase.body) if isinstance(one, For) and _multiplies(one)]
        waits = any(isinstance(one, Wait) for one in _ahead(phase.body))
        if isinstance(phase.pipelining, Prefetch) and waits and any(loop.count == 1 for loop in loops):
            yield Broken(f"role {role.name}", "it prefetches behind a wait, and k is a single step")


def _ahead(body: tuple[Step, ...]) -> Iterator[Step]:
    """The steps in front of the end of the first loop that multiplies."""
    for step in body:
        yield from steps_in((step,))
        if isinstance(step, For) and _multiplies(step):
            return


def _multiplies(loop: For) -> bool:
    return any(isinstance(one, Compute) and one.op == "dot" for one in steps_in(loop.body))


def _ping_pong(schedule: Schedule, machine: Machine) -> Iterator[Broken]:
    for launch, role, phase in phases(schedule):
        if isinstance(phase.pipelining, PingPong):
            for fact in _why_no_groups(schedule, machine, launch, role, phase):
                yield Broken(f"role {role.name}", f"its groups of warps cannot take turns: {fact}")
        elif not role.inside:
            for step in steps_in(phase.body):
                if any(region.access is Access.PACED for region in written(step)):
                    fact = "tiles leave a few rows at a time, while another group multiplies, and there is one group"
                    yield Broken(f"role {role.name}, {in_a_line(step)}", fact)


def _inside(schedule: Schedule, machine: Machine) -> Iterator[Broken]:
    buffers = {buffer.name: buffer for buffer in schedule.buffers}
    for launch, role, phase in phases(schedule):
        if not role.inside:
            continue
        last = launch.roles[-1]
        groups = any(isinstance(one.pipelining, Cooperative) for one in last.phases)
        if not groups or last.programs != role.programs:
            yield Broken(
                f"role {role.name}", f"it is a warp of programs of {last.name}, which has others, or no groups"
            )
        for step in steps_in(phase.body):
            for region in written(step):
                paced, whole = region.access is Access.PACED, _clipped(region, schedule)
                if fact := _why_not_paced(whole, buffers[region.buffer]) if paced else "it stores by pointers":
                    yield Broken(f"role {role.name}, {in_a_line(step)}", fact)


def _why_no_groups(schedule: Schedule, machine: Machine, launch: Launch, role: Role, phase: Phase) -> Iterator[str]:
    engine = role.engine
    if not machine.arch.startswith("sm_9"):
        yield f"their matrix products are those of sm_90, not of {machine.arch}"
    if not isinstance(engine, Sms) or (engine.warps, engine.per_sm) != (GROUP_WARPS, 1):
        yield f"a group has {GROUP_WARPS} warps, and a program takes an SM for itself"
    tiles = [one for one in role.phases if one.who is Who.EACH and not one.every]
    if len(launch.roles) > 1 or tiles != [phase]:
        yield "programs do something else before or behind their tiles"
    buffers = {buffer.name: buffer for buffer in schedule.buffers}
    loops = [one for one in phase.body if isinstance(one, For) and _multiplies(one)]
    if len(loops) != 1:
        yield "they have no loop over k, or several"
    for load in (step for loop in loops for step in steps_in(loop.body) if isinstance(step, Load)):
        dtype = buffers[load.region.buffer].dtype
        if load.region.access is not Access.DESCRIPTOR or load.region.at != rank:
            yield f"{load.region.buffer} is not loaded through descriptors"
        if not DTYPES[dtype].tensor_cores:
            yield f"{load.region.buffer} is {dtype}"
    for step in steps_in(phase.body):
        for region in written(step):
            if region.access is Access.PACED and (fact := _why_not_paced(region, buffers[region.buffer])):
                yield fact


def _clipped(region: Region, schedule: Schedule) -> Region:
    """With all rows of a whole move, where descriptors of a part leave those out that are behind its last one."""
    *lead, first, _ = region.start
    *before, rows, cols = region.extent
    if not isinstance(rows, Index) or rows.op != "min" or any(names_in(one) - {rank.op} for one in lead):
        return region
    whole, left = rows.args
    at_end = isinstance(whole, int) and difference(left + first, schedule.shapes[region.buffer][-2]) == 0
    return replace(region, extent=(*before, whole, cols)) if at_end else region


def _why_not_paced(region: Region, buffer: Buffer) -> str:
    rows, cols = region.extent[-2:]
    if not isinstance(rows, int) or not isinstance(cols, int) or rows % PIECE_ROWS:
        return f"tiles of {rows} x {cols} are no whole pieces of {PIECE_ROWS} rows"
    if cols * DTYPE_BYTES[buffer.dtype] % TURN_SLICE_BYTES:
        return f"rows of {cols} elements of {buffer.dtype} are no multiple of {TURN_SLICE_BYTES} bytes"
    return ""


RULES: tuple[Rule, ...] = (
    Rule(BugClass.RESIDENCY, "those that wait do not leave theirs", _residency),
    Rule(BugClass.LINK_ATOMICS, "links of the machine carry no atomics of peers", _links),
    Rule(BugClass.LINK_ATOMICS, "one store reaches ranks of one node, over links with multicast", over_other_links),
    Rule(BugClass.ORDERING, "it is not known that a signal tells of what one store brings to all ranks", of_no_packets),
    Rule(BugClass.WRONG_PLACE, "one store goes to the same place of each rank", not_one_store),
    Rule(BugClass.REUSE, "streams of the machine wait for no word of memory", _stream_waits),
    Rule(BugClass.WAIT_TOO_LITTLE, "entries are looked up as they lay there", _tables_made),
    Rule(BugClass.WRONG_PLACE, "hardware describes no such tensor", _described),
    Rule(BugClass.ASYNC_STORE, "no release waits for such a store", _seen_early),
    Rule(
        BugClass.STALE_SIGNAL,
        "several warps hold one, and a late one sends it again when it has been taken",
        _sent_once,
    ),
    Rule(BugClass.LINK_ATOMICS, "lines of 128 bytes come whole over NVLink between GPUs of NVIDIA", _lines_elsewhere),
    Rule(BugClass.COMPILED_ORDER, "the compiler would load later tiles before their wait", _one_step),
    Rule(BugClass.WRONG_PLACE, "lowering counts on this", _ping_pong),
    Rule(BugClass.WRONG_PLACE, "a warp beside groups pushes rows through shared memory", _inside),
)
