"""A schedule as text: the design review. It reads as code, a line a step, with the names that printed kernels have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tilelink.ir.enums import Protocol
from tilelink.schedule.index import Index, Number, rank, spelled, value_of
from tilelink.schedule.memory import Access, Buffer, Dim, Region, Signal, Table
from tilelink.schedule.roles import (
    Cooperative,
    CopyEngine,
    Engine,
    Host,
    Launch,
    MeshAxis,
    Network,
    Phase,
    PingPong,
    Prefetch,
    Role,
    Schedule,
    Sms,
    Who,
)
from tilelink.schedule.steps import Call, Compute, For, If, Let, Load, Move, Notify, Step, Store, Sync, Wait

INDENT = "  "


class Bound(NamedTuple):
    """A name that a phase gives to an index."""

    name: str


class Line(NamedTuple):
    """A printed line, and what it is about; `launch`, `role`, `phase`: in which of them that stands."""

    text: str
    about: Dim | Buffer | Signal | Table | Launch | Role | Phase | Bound | Step
    launch: Launch | None = None
    role: Role | None = None
    phase: Phase | None = None


LEGEND = (
    ("symmetric", "memory that every rank has, and that peers can address"),
    ("signal", "words that only grow, from call to call as well; `call` is the number of the call, from 1 on"),
    (
        "on STREAM:",
        "launches of a stream, one behind the other; `behind S`: when what is on stream S so far has ended, too",
    ),
    (
        "4 tiles:",
        "positions 0 to 3 of a loop; programs take them in turn, and the lines behind say where a position lies",
    ),
    ("each program, last program", "steps that each program does; or the one that ends last, for all"),
    ("prefetched", "waits and loads of the next tile come before this one is stored"),
    ("counted behind the next one", "a tile notifies when the next one has been computed"),
    ("in ping-pong", "one group of warps multiplies while another one does what comes behind its product"),
    (
        "name[i, a : +n]@r",
        "elements of a buffer, n of them from a on, or a word of a signal, on rank r; without @ on the own rank",
    ),
    ("wait w >= v for x", "block until the word is at least v; loads of x need it"),
    ("notify w = v, w += 1", "raise the word, when all that the program did before is done"),
    ("last of n:", "whoever comes last of n does it for all"),
    ("by descriptor, paced", "through tensor descriptors (TMA); stores that are spread over the time of a product"),
    ("store y[a :] -> b", "the tile without its first rows"),
    ("move a -> b", "a copy: by a copy engine, or by programs"),
)


def printed(schedule: Schedule, legend: bool = False) -> str:
    """The schedule with its name, and what the signs mean if `legend` is set."""
    axes = (f"{axis.name} = {value_of(axis.size, schedule.sizes)}{_over(axis)}" for axis in schedule.mesh)
    head = f"{schedule.name} on {', '.join(axes)}"
    lines = [head, *printed_lines(schedule), *(["", *legend_lines()] if legend else [])]
    return "\n".join(lines) + "\n"


def _over(axis: MeshAxis) -> str:
    return f" over {axis.transport.name}" if axis.transport is not None else ""


def legend_lines() -> Iterator[str]:
    width = max(len(sign) for sign, _ in LEGEND)
    yield from (f"{INDENT}{sign:<{width}}  {meaning}" for sign, meaning in LEGEND)


def printed_lines(schedule: Schedule) -> Iterator[str]:
    """Memory, signals, tables, and the launches in order."""
    return (line.text for line in lines_of(schedule))


def lines_of(schedule: Schedule) -> Iterator[Line]:
    """The same, each line with what it is about."""
    for dim in schedule.dims:
        follows = f"{spelled(dim.size)} = " if isinstance(dim.size, Index) else ""
        title = f"  # {dim.title}" if dim.title else ""
        size = f"{'<=' if dim.on_call else '='} {follows}{schedule.sizes[dim.name]}"
        yield Line(f"{INDENT}{dim.name} {size}{title}", dim)
    for buffer in schedule.buffers:
        marks = [] if buffer.protocol is Protocol.SIMPLE else [buffer.protocol.value]
        marks += ["for the caller"] if buffer.for_caller else []
        shape = f"[{_list(buffer.shape)}] {', '.join([buffer.dtype, *marks])}"
        yield Line(f"{INDENT}{buffer.memory.value} {buffer.name}{shape}", buffer)
    for signal in schedule.signals:
        yield Line(f"{INDENT}signal {signal.name}[{_list(signal.shape)}]", signal)
    for table in schedule.tables:
        laws = "".join(f", {law.value}" for law in table.laws)
        shape = f"[{_list(table.shape)}] below {spelled(table.below)}{laws}"
        yield Line(f"{INDENT}table {table.name}{shape}", table)
    for launch in schedule.launches:
        yield from (line._replace(launch=launch) for line in _launch(launch))


def _launch(launch: Launch) -> Iterator[Line]:
    behind = f", behind {' and '.join(launch.joins)}" if launch.joins else ""
    yield Line(f"{INDENT}on {launch.stream}{behind}:", launch)
    for role in launch.roles:
        text = f"{role.name} on {engine_text(role.engine)}:" if role.phases else role.name
        yield Line(f"{INDENT * 2}{text}", role)
        for phase in role.phases:
            yield from (line._replace(role=role, phase=phase) for line in _phase(role, phase))


def engine_text(engine: Engine) -> str:
    """What runs a role, in a few words."""
    match engine:
        case Sms(programs, warps, inside=True, pace=pace):
            paced = f", a piece every {pace} clocks" if pace else ""
            return f"{'a warp' if warps == 1 else f'{warps} warps'} of each of the {programs} programs below{paced}"
        case Sms(programs, warps, stages, per_sm, dies):
            shared = f", {per_sm} on an SM" if per_sm > 1 else ""
            shared += f", numbered through {dies} dies" if dies > 1 else ""
            several = "a program" if programs == 1 else f"{programs} programs"
            return f"{several} of {warps} warps and {stages} stage{'s' if stages > 1 else ''}{shared}"
        case CopyEngine(programs):
            return "a copy engine" if programs == 1 else f"copy engines, {programs} streams"
        case Network(enqueued=True):
            return "the network, by a stream"
        case Network(programs):
            return "the network" if programs == 1 else f"the network, {programs} programs"
        case Host(sms=sms):
            return f"the library, on {sms} SM{'s' if sms > 1 else ''}" if sms else "the library"


def _phase(role: Role, phase: Phase) -> Iterator[Line]:
    alone = phase.count == 1 and role.engine.programs == 1 and phase.who is Who.EACH
    if alone and not phase.let and not phase.title:
        yield from _steps(phase.body, INDENT * 3)
        return
    who = "" if alone else _who(phase)
    behind = "" if phase.first == 0 else f" from {spelled(phase.first)} on"
    count = f"{spelled(phase.count)} tiles{behind}"
    if phase.count == 1:
        count = "" if phase.first == 0 else f"tile {spelled(phase.first)}"
    how = {Prefetch: "prefetched", PingPong: "in ping-pong", Cooperative: "cooperative"}.get(type(phase.pipelining), "")
    if isinstance(phase.pipelining, Prefetch) and phase.pipelining.defer:
        how += ", counted behind the next one"
    head = ", ".join(one for one in (who, count, how) if one) or "one tile"
    title = f"  # {phase.title}" if phase.title else ""
    yield Line(f"{INDENT * 3}{head}:{title}", phase)
    yield from (Line(f"{INDENT * 4}{name} = {spelled(index)}", Bound(name)) for name, index in phase.let)
    yield from _steps(phase.body, INDENT * 4)


def _who(phase: Phase) -> str:
    if phase.every:
        return "each program"
    return {Who.EACH: "", Who.FIRST: "first program", Who.LAST: "last program"}[phase.who]


def _let(let: Let, before: str) -> str:
    return before + ", ".join(f"{name} = {spelled(index)}" for name, index in let) if let else ""


def _steps(body: tuple[Step, ...], indent: str) -> Iterator[Line]:
    for step in body:
        match step:
            case For():
                how = " by multicast" * step.multicast
                yield Line(f"{indent}for {step.variable} < {spelled(step.count)}{how}{_let(step.let, ': ')}:", step)
                yield from _steps(step.body, indent + INDENT)
            case If():
                if step.body:
                    yield Line(f"{indent}if {step.text(spelled, equal=True)}:", step)
                    yield from _steps(step.body, indent + INDENT)
                if step.others:
                    other = "else" if step.body else f"if {step.text(spelled, equal=False)}"
                    yield Line(f"{indent}{other}:", step)
                    yield from _steps(step.others, indent + INDENT)
            case _:
                yield Line(indent + in_a_line(step), step)


_ACCESS = {
    Access.POINTER: "",
    Access.DESCRIPTOR: " by descriptor",
    Access.PARTS: " by descriptor of parts",
    Access.PACED: " by descriptor, paced",
}


def in_a_line(step: Step) -> str:
    """A step, without the bodies that it may have."""
    match step:
        case Wait(signal, index, until, covers):
            return f"wait {signal}[{_list(index)}] >= {spelled(until)}{' for ' + ', '.join(covers) if covers else ''}"
        case Notify(signal, index, at, to, last_of):
            who = "" if last_of == 1 else f"last of {spelled(last_of)}: "
            return f"{who}notify {signal}[{_list(index)}]{_at(at)} {'+= 1' if to is None else f'= {spelled(to)}'}"
        case Load(result, region):
            return f"{result} = {region_text(region)}{_ACCESS[region.access]}"
        case Store(value, region, skip):
            rows = f"[{spelled(skip)} :]" if skip != 0 else ""
            return f"store {value}{rows} -> {region_text(region)}{_ACCESS[region.access]}"
        case Move(source, target, notify):
            then = f", then {in_a_line(notify)}" if notify else ""
            by = _ACCESS[target[0].access] if target else ""
            return f"move {', '.join(map(region_text, source))} -> {', '.join(map(region_text, target))}{by}{then}"
        case Compute(results, op, operands, shape):
            arguments = [str(one) for one in operands] + [spelled(one) for one in shape]
            return f"{', '.join(results)} = {op}({', '.join(arguments)})"
        case Call(function, results, operands, tables, numbers, scale):
            given = ", ".join([*map(region_text, operands), *map(spelled, numbers), *([str(scale)] if scale else [])])
            return f"{', '.join([*map(region_text, results), *tables])} = {function}({given})"
        case Sync(order):
            return order.value
        case For():
            return f"for {step.variable} < {spelled(step.count)}"
        case If():
            return f"if {step.text(spelled, equal=True)}"


def region_text(region: Region) -> str:
    """A region, as the design review has it."""
    parts = [
        spelled(start) if extent == 1 else f"{spelled(start)} : +{spelled(extent, 1)}"
        for start, extent in zip(region.start, region.extent, strict=True)
    ]
    return f"{region.buffer}[{', '.join(parts)}]{_at(region.at)}"


def _at(at: Number) -> str:
    return "" if at == rank else f"@{spelled(at, 1)}" if isinstance(at, int) or at.is_name else f"@({spelled(at)})"


def _list(indices: tuple[Number, ...]) -> str:
    return ", ".join(map(spelled, indices))
