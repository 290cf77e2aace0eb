"""A launch on SMs as a kernel: its roles, told apart by the number of the program, and what the last program does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile

from lowering.dialect import Reach
from lowering.source import Source
from lowering.steps.closing import last_phases
from lowering.steps.constants import Group
from lowering.steps.descriptors import Described
from lowering.steps.distributed import DistributedPrograms, DistributedPuts
from lowering.steps.frame import Frame
from lowering.steps.gluon import Turns, check_alone, in_gluon
from lowering.steps.gluon_folds import Folds
from lowering.steps.gluon_programs import GluonPrograms
from lowering.steps.indices import Scope, Spelling
from lowering.steps.nvshmem import NvshmemPrograms
from lowering.steps.parameters import Needing
from lowering.steps.programs import Programs
from lowering.steps.relative import counted_off
from lowering.steps.words import kernel_name
from tilelink.schedule.index import call, names_in, rank, replaced
from tilelink.schedule.roles import Cooperative, Launch, Phase, Role, Sms, Who
from tilelink.schedule.steps import Move, Step, Store, Wait
from tilelink.schedule.walk import indices, steps_in

_OF_KERNEL = {"call": "epoch", "program": ""}  # what a kernel makes itself, and of what


@dataclass(frozen=True)
class Kernel:
    """`parameters` in order. `descriptors`: of which buffer and block some of them are. `grid`: as host code spells it."""

    name: str
    text: str
    parameters: tuple[str, ...]
    descriptors: dict[str, Described] = field(default_factory=dict)
    grid: str = "1"
    options: tuple[str, ...] = ("num_warps=1",)
    gluon: bool = False


def programs_of(frame: Frame, out: Source, role: Role, inside: tuple[Role, ...] = ()) -> Programs:
    """A printer of the programs of a role, which other roles are `inside` of."""
    scope = Scope(frame.schedule, role.name, role.programs)
    if any(isinstance(phase.pipelining, Cooperative) for phase in role.phases):
        found = Folds(frame, out, scope)
        found.inside = inside
        return found
    return Turns(frame, out, scope) if in_gluon(role) else _plain(frame, out, scope)


def _plain(frame: Frame, out: Source, scope: Scope) -> Programs:
    """A printer of programs without groups of warps of their own."""
    if frame.dialect.reach is Reach.SYMMETRIC:
        return (DistributedPuts if frame.dialect.puts else DistributedPrograms)(frame, out, scope)
    if frame.dialect.puts:
        return NvshmemPrograms(frame, out, scope)
    return Programs(frame, out, scope)


def print_kernel(frame: Frame, launch: Launch) -> Kernel:
    """The kernel of the roles of `launch` that run on SMs; each role is a function where there are several."""
    roles = own_programs(launch)
    inside = tuple(role for role in launch.roles if role.inside)
    check_alone(roles)
    name, out, functions = kernel_name(launch), Source(), Source()
    needs: dict[str, str] = {"program": ""}
    descriptors: dict[str, Described] = {}
    there: dict[str, dict[str, Described]] = {}
    before: list[str] = []
    shared = _shared(roles)
    for phase in shared:
        programs = programs_of(frame, out, roles[0])
        programs.phase(roles[0], phase)
        needs |= programs.needs
    for role in roles:
        body = Source() if len(roles) > 1 else out
        programs = programs_of(frame, body, role, inside)
        done = len(shared) if role is roles[0] else sum(phase.every for phase in shared)
        for phase in role.phases[done:]:
            if phase.who is not Who.LAST:
                programs.phase(role, phase)
        descriptors |= programs.descriptors
        there |= programs.there if isinstance(programs, GluonPrograms) else {}
        for text in programs.functions:
            functions.lines(text)
            functions.line()
            functions.line()
        if len(roles) > 1:
            _dispatch(frame, out, functions, body.text(), role, programs.needs, before, role is roles[-1])
            programs.needs.pop("program", "")
        needs |= programs.needs
    if frame.words.ends(launch):
        _end(frame, out, launch, needs, before)
    tuples = {f"{buffer}_there": list(found) for buffer, found in there.items()}
    number, made = "epoch", _OF_KERNEL
    if frame.words.apart:
        place = frame.words.calls[name]
        number = f"calls + {frame.constants.name(f'{name}_calls', place, 'first number of a call')} + program"
        made = _OF_KERNEL | {"call": "calls"}
    order = frame.order({made.get(one, one) for one in needs} - {""})
    parameters = [one for name in order for one in tuples.get(name, [name])]
    gluon = any(map(in_gluon, roles))
    kernel = Source()
    kernel.lines(functions.text() if functions.text().strip() else "")
    here = [f"{one.name}_here" for one in frame.schedule.buffers if one.places]
    kernel.line(_decorator(parameters, here, "gluon" if gluon else "triton"))
    what = "; ".join(f"{role.name} by {_programs(role)}" for role in roles) + "."
    with kernel.function(name, parameters, what if len(roles) > 1 else _what(roles[0])):
        number_of = _by_die(frame, roles[0], "tl.program_id(0)") if len(roles) == 1 else "tl.program_id(0)"
        kernel.line(f"program = {number_of}")
        for one, several in tuples.items():
            kernel.call(f"{one} = (", several)
        if "call" in needs:
            kernel.line(f"call = tl.load({number})")
        kernel.lines(out.text())
        if "call" in needs and frame.words.apart:
            kernel.line("program_barrier()")
            kernel.line(f"tl.store({number}, call + 1)")
    for found in there.values():
        descriptors |= found
    grid = " + ".join(f"{one}.value" if not one.isdigit() else one for one in _counts(frame, roles))
    options = (*_options(roles), *([frame.dialect.launch_options] if frame.dialect.launch_options else []))
    return Kernel(name, kernel.text(), tuple(parameters), descriptors, grid, options, gluon)


def own_programs(launch: Launch) -> list[Role]:
    """Roles of a launch on SMs that are no warps of programs of others."""
    return [one for one in launch.roles if not one.by_host and not one.inside]


def _shared(roles: list[Role]) -> list[Phase]:
    """What every program of every role does first, and the first program in front of it: no role needs it for itself."""
    if len(roles) == 1:
        return []
    alone = list(takewhile(lambda phase: phase.who is Who.FIRST, roles[0].phases))
    begun = [roles[0].phases[len(alone) :], *(role.phases for role in roles[1:])]
    together = [found[0] for found in zip(*begun, strict=False) if all(_for_all(one, found[0]) for one in found)]
    return [*alone, *together] if together and tuple(together) == begun[0][: len(together)] else []


def _for_all(phase: Phase, other: Phase) -> bool:
    """Whether a phase is `other`, and the same for each program."""
    inner = (index for step in steps_in(phase.body) for index in indices(step))
    used = frozenset[str]().union(*map(names_in, (*inner, *(index for _, index in phase.let))))
    return phase == other and phase.every and "program" not in used


def _what(role: Role) -> str:
    """A sentence for what a role does."""
    steps = [step for phase in role.phases for step in steps_in(phase.body)]
    moved = [region.buffer for step in steps if isinstance(step, Move) for region in step.target]
    stored = [step.region.buffer for step in steps if isinstance(step, Store) and step.region.at == rank]
    if role.name.endswith("_tiles"):
        first = role.name.removesuffix("_tiles")
        *others, last = (
            dict.fromkeys(stored) if first in stored else (first,)
        )  # loops of one launch make several values
        made = f"{', '.join(others)} and {last}" if others else last
        return f"Compute the tiles of {made}, on {_programs(role)}."
    if moved:
        return f"Move the chunks of {' and '.join(dict.fromkeys(moved))}, on {_programs(role)}."
    if stored:
        return f"Make {' and '.join(dict.fromkeys(stored))}, on {_programs(role)}."
    return f"{role.name[0].upper()}{role.name[1:]}, on {_programs(role)}."


def _dispatch(
    frame: Frame,
    out: Source,
    functions: Source,
    text: str,
    role: Role,
    needs: dict[str, str],
    before: list[str],
    rest: bool,
) -> None:
    """The function of a role, and its call by the programs that are its own, behind those `before`: by the `rest`, or so many."""
    parameters = frame.order({*needs, "program"})
    functions.line("@triton.jit")
    with functions.function(role.name, parameters, _what(role)):
        functions.lines(text)
    functions.line()
    functions.line()
    first = bool(before)
    before += _counts(frame, [role])
    with out.block("else:" if rest else f"{'elif' if first else 'if'} program < {' + '.join(before)}:"):
        own = {"program": _by_die(frame, role, _program_of(before[:-1]))}
        out.call(f"{role.name}(", [own.get(name, name) for name in parameters])


def _by_die(frame: Frame, role: Role, program: str) -> str:
    """`program` as it is numbered among those of its role."""
    if not isinstance(role.engine, Sms) or role.engine.dies == 1:
        return program
    dies = frame.constants.name("num_dies", role.engine.dies, "dies of a GPU, to which programs are dealt in turn")
    return f"by_die({program}, {_counts(frame, [role])[0]}, {dies})"


def _program_of(before: list[str]) -> str:
    """The number of a program among those of its role."""
    return (
        f"program - {before[0]}" if len(before) == 1 else f"program - ({' + '.join(before)})" if before else "program"
    )


def _counts(frame: Frame, roles: list[Role]) -> list[str]:
    """How many programs roles have, as constants."""
    found = []
    for role in roles:
        what = f"programs of {role.name}"
        found.append(frame.constants.name(f"{role.name}_programs", role.programs, what))
    return found


def _end(frame: Frame, out: Source, launch: Launch, needs: dict[str, str], before: list[str]) -> None:
    """What the program does that ends last: its phases, and the end of the call if it is the last of all."""
    words, name = frame.words, f"{kernel_name(launch)}_ended"
    first = frame.constants.name(name, words.counts[name], "count of programs that have ended")
    many = before or _counts(frame, own_programs(launch))
    programs = many[0] if len(many) == 1 else f"({' + '.join(many)})"
    needs["counts"] = ""
    with out.block(f"if count_arrival(counts + {first}) == {programs} - 1:"):
        for role, phase in last_phases(launch):
            last = programs_of(frame, out, role)
            last.phase(role, phase)
            needs |= last.needs
        if launch is words.closing:
            if frame.dialect.tokens and any(_waits(phase.body) for _, phase in last_phases(launch)):
                out.line("program_barrier()  # all threads have seen what they waited for: it may be set back")
            end_of_call(frame, out, needs)


def _waits(body: tuple[Step, ...]) -> bool:
    """Whether a wait may return a token, so that threads do not meet behind it."""
    return any(isinstance(step, Wait) and step.covers for step in steps_in(body))


def end_of_call(frame: Frame, out: Source, needs: dict[str, str]) -> None:
    """Everything of a call has ended: the words of this rank are made ready for the next one."""
    words, constants = frame.words, frame.constants
    out.comment("the next call" + (": what streams copy, too" if words.values else ""))
    if words.num_counts:
        counted = constants.name("NUM_COUNTS", words.num_counts, "counts of this rank")
        most, what = 1 << (words.num_counts - 1).bit_length(), "counts that one store sets to 0; a power of two"
        block = constants.name("COUNTS_BLOCK", most, what, group=Group.WORDS)
        constants.require(f"{counted} <= {block}", "one store sets all counts to 0")
        out.line(f"clear_counts(counts, NUM_COUNTS={counted}, BLOCK={block})")
        needs["counts"] = ""
    for signal, each in counted_off(words.anew):
        needs["signals"] = ""
        first = constants.name(signal, words.first(signal), f"first word of signal {signal}")
        many, off = words.size(signal), Spelling(Scope(frame.schedule), constants)(each)
        count = constants.name(f"{signal}_words", many, f"words of {signal}") if many > 1 else "1"
        lanes = 1 << (many - 1).bit_length()
        out.line(f"take_off(signals + {first}, {off}, WORDS={count}, BLOCK={lanes})")
    scope = Scope(frame.schedule)
    spell = Needing(scope, constants, needs)
    for place, value in enumerate(words.values):
        needs["stream_values"] = ""
        out.line(f"tl.store(stream_values + {place}, {spell(replaced(value, {'call': call + 1}))})")
    needs["call"] = ""
    out.line("tl.store(epoch, call + 1)")


def end_kernel(frame: Frame) -> Kernel:
    """The last launch of a call that no program of another launch can end."""
    out, needs = Source(), dict[str, str]()
    end_of_call(frame, out, needs)
    return one_program("end_of_call", "Ends a call, when all its streams have joined.", frame, needs, out.text())


def wait_kernel(frame: Frame, name: str, role: str, scope: Scope, step: Wait) -> Kernel:
    """A wait that holds up a stream: host code does not know the number of a call that a graph replays."""
    out = Source()
    programs = _plain(frame, out, scope)
    programs.wait(step)
    names = frozenset[str]().union(*map(names_in, (*step.index, step.until)))
    positions = dict.fromkeys(sorted(names - {"rank", "call"} - set(frame.schedule.sizes)), "")
    return one_program(name, f"Holds the stream of {role}.", frame, programs.needs | positions, out.text(), positions)


def one_program(
    name: str, what: str, frame: Frame, needs: dict[str, str], text: str, positions: Iterable[str] = ()
) -> Kernel:
    parameters = frame.order({_OF_KERNEL.get(one, one) for one in needs} - {""})
    out = Source()
    out.line(_decorator(parameters, positions))
    with out.function(name, parameters, what):
        if "call" in needs:
            out.line("call = tl.load(epoch)")
        out.lines(text)
    return Kernel(name, out.text(), tuple(parameters))


def _decorator(parameters: list[str], positions: Iterable[str] = (), language: str = "triton") -> str:
    """Integers of a kernel differ between ranks, and between the rounds of loops of host code: they are not compiled in."""
    varying = ", ".join(f'"{one}"' for one in parameters if one in {"rank", *positions})
    return f"@{language}.jit(do_not_specialize=[{varying}])" if varying else f"@{language}.jit"


def _programs(role: Role) -> str:
    return f"{role.programs} program{'s' * (role.programs != 1)}"


def _options(roles: list[Role]) -> tuple[str, ...]:
    """Options of the launch: those of its largest role."""
    engines = [role.engine for role in roles if isinstance(role.engine, Sms)] or [Sms(1)]
    found = [f"num_warps={max(one.warps for one in engines)}", f"num_stages={max(one.stages for one in engines)}"]
    per_sm = min(one.per_sm for one in engines)
    return (*found, *([f"per_sm={per_sm}"] if per_sm > 1 else []))
