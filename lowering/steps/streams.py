"""Steps of copy engines and libraries: operations that host code enqueues on a stream."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NoReturn

from lowering.source import Source
from lowering.steps.body import Body
from lowering.steps.errors import EngineCannot, NotContiguousCopy, ValueChangesInLoop
from lowering.steps.flat import contiguous, is_matrix
from lowering.steps.frame import Frame
from lowering.steps.indices import HostSpelling, Scope
from lowering.steps.kernel import Kernel, wait_kernel
from lowering.steps.late import needed
from lowering.steps.routing import INDEX_PROGRAMS
from tilelink.schedule.index import Index, Number, names_in, rank, replaced, tables_in
from tilelink.schedule.memory import Buffer, Memory, Region
from tilelink.schedule.printing import in_a_line, region_text
from tilelink.schedule.roles import CopyEngine, Host, Launch, Network, Phase, Role, Who
from tilelink.schedule.steps import (
    ATTENTION,
    CAUSAL_ATTENTION,
    MERGED_ATTENTION,
    SEND_RECEIVE,
    Call,
    Compute,
    Load,
    Move,
    Notify,
    Order,
    Step,
    Store,
    Sync,
    Wait,
)
from tilelink.schedule.walk import indices, steps_in

_NAMES = {CopyEngine: "a copy engine", Network: "a stream that puts"}
_PRODUCTS = ("matmul", "matmul_transposed")
COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce")
_ATTENTION = (ATTENTION, CAUSAL_ATTENTION, MERGED_ATTENTION)
_CALLS = (*_PRODUCTS, *_ATTENTION, *COLLECTIVES, SEND_RECEIVE)  # of streams


@dataclass(frozen=True)
class HostRole:
    """The text of a role that host code runs on the stream called `stream`, and the kernels that hold it. `streams` share the
    positions; `programs` is how the text spells their number, empty for one. `names` are those in its indices."""

    text: str
    stream: str
    kernels: tuple[Kernel, ...]
    programs: str = ""
    streams: int = 1
    names: frozenset[str] = frozenset()


def print_role(frame: Frame, launch: Launch, role: Role) -> HostRole:
    """All steps of `role`, in order: on the stream of the launch where the role is alone there and feeds one stream, else on
    others beside it. Raises EngineCannot and others for what streams cannot do."""
    alone = len(launch.roles) == 1 and role.programs == 1
    body = Streams(frame, role, launch.stream if alone else f"{launch.stream}_{role.name}")
    if not alone and any(phase.who is Who.LAST for one in launch.roles for phase in one.phases):
        body.cannot(
            "end beside others with a program that ends last", Sync(Order.BARRIER), "a launch of its own behind both"
        )
    for phase in role.phases:
        body.phase(phase)
    programs = ""
    if role.programs > 1:
        programs = body.programs(role, "streams")
    return HostRole(
        body.out.text(), body.stream, tuple(body.kernels), programs, role.programs, frozenset(body.spell.named)
    )


class Streams(Body):
    def __init__(self, frame: Frame, role: Role, stream: str) -> None:
        scope = Scope(frame.schedule, role.name, role.programs)
        super().__init__(frame, Source(), scope, HostSpelling(scope, frame.constants))
        self.role, self.stream = role, stream
        self.kernels: list[Kernel] = []
        self.engine = _NAMES.get(type(role.engine), "a library")

    def phase(self, phase: Phase) -> None:
        self.check_pipelining(self.role, phase)
        for step in steps_in(phase.body):
            for index in indices(step):
                if tables_in(index) and not isinstance(step, Wait):
                    self.cannot("look up a table, whose entries lie on the device", step, "a role on SMs")
        self.out.comment(phase.title or f"{self.role.name}: {'before all' if phase.every else 'by ' + self.engine}")
        first, end = self.spell(phase.first), self.end(self.role, phase)
        several = self.role.programs > 1
        if several and not phase.every and phase.who is Who.EACH:
            programs = self.programs(self.role, "streams")
            own = "program" if phase.first == 0 else f"{first} + (program - {first}) % {programs}"
            header = f"for tile in range({own}, {end}, {programs}):"
        else:
            ends = end if phase.first == 0 else f"{first}, {end}"
            header = f"for tile in range({ends}):" if self.positions(phase) else ""
        alone = "if program == 0:" if several and phase.who is Who.FIRST else ""
        with self.out.maybe(alone), self.out.maybe(header), self.scope.inside("tile", phase.count, phase.first):
            self.let(needed(phase.let, phase.body))
            self.steps(phase.body)

    def wait(self, step: Wait) -> None:
        """One program holds the stream; where a number is awaited, the stream holds itself."""
        how = self.frame.stream_wait(step.signal)
        if how and "call" not in names_in(step.until) and not tables_in(step.until):
            self.out.call(f"{self.stream}.{how}(", [self._word(step.signal, step.index), self.spell(step.until)])
            return
        number = self.frame.wait_kernels[self.role.name]
        self.frame.wait_kernels[self.role.name] += 1
        name = f"{self.role.name}_waits{f'_{number}' if number else ''}"
        kernel = wait_kernel(self.frame, name, self.role.name, self.scope, step)
        self.kernels.append(kernel)
        arguments = [ARGUMENTS.get(one) or self.spell.name(one) for one in kernel.parameters]
        self.out.call(f"{self.stream}.launch(", [name, "(1,)", *arguments, *kernel.options])

    def notify(self, step: Notify) -> None:
        if step.to is None or step.last_of != 1:
            self.cannot("add to a word or count who comes last", step, "a word that is set to a value")
        if isinstance(self.role.engine, Network) and self.frame.dialect.puts and step.at != rank:
            self._put_word(step)
            return
        word = self._word(step.signal, step.index, step.at)
        if isinstance(step.to, int) and step.at == rank:
            self.out.call(f"{self.stream}.write(", [word, str(step.to)])
            return
        self.out.call(f"{self.stream}.copy(", [word, self._value(step, step.to)])

    def _word(self, signal: str, index: tuple[Number, ...], at: Number = rank) -> str:
        words = self.words
        memory = "self.counts" if words.own(signal) else "self.signals.local"
        if at != rank:
            memory = f"self.signals.peers[{self.spell(at)}]"
        first = self.spell.number(signal, words.first(signal), f"first word of signal {signal}")
        own = {"program": 0} if self.role.programs == 1 else {}
        place = " + ".join([first, *self.spell.flat(tuple(replaced(one, own) for one in index), signal, 0)])
        return f"{memory}[{place} :][:1]"

    def _value(self, step: Notify, to: Number) -> str:
        """A word of the device that holds what the signal is raised to: the number of the call itself, or another one."""
        if to == Index("call"):
            return "self.epoch"
        names = names_in(to) - {"call", "rank"} - set(self.schedule.sizes) | tables_in(to)
        if names:
            named = ", ".join(sorted(names))
            raise ValueChangesInLoop(
                engine=self.engine, role=self.role.name, signal=step.signal, to=str(to), names=named
            )
        values = self.words.values
        if to not in values:
            values.append(to)
        place = values.index(to)
        return f"self.stream_values[{place} : {place + 1}]"

    def move(self, step: Move) -> None:
        if isinstance(self.role.engine, Network) and self.frame.dialect.puts:
            self._put(step)  # elsewhere all ranks are reached by copies
            return
        for source, target in zip(step.source, step.target, strict=True):
            flat = all(contiguous(self.scope, region) for region in (source, target))
            for region in (source, target):
                if not flat and not is_matrix(region):
                    raise NotContiguousCopy(engine=self.engine, role=self.role.name, region=region_text(region))
            self.out.call(f"{self.stream}.{'copy' if flat else 'copy_2d'}(", [self.view(target), self.view(source)])
        if step.notify is not None:
            self.notify(step.notify)

    def _put(self, step: Move) -> None:
        """Addresses are those of this rank, the words as well; the other one's number says whose are meant."""
        (source, *_), (target, *_), told = step.source, step.target, step.notify
        flat = len(step.source) == 1 and all(contiguous(self.scope, region) for region in (source, target))
        if not flat or told is None or told.to != Index("call") or told.last_of != 1 or told.at != target.at:
            legal = "one run, and a word that is set to the number of the call where it lands"
            self.cannot("put several runs, or tell otherwise", step, legal)
        ends = [self.view(replace(target, at=rank)), self.view(source)]
        word = [self._word(told.signal, told.index), "self.epoch"]
        self.out.call(f"{self.stream}.put(", [*ends, *word, f"to={self.spell(target.at)}"])

    def _put_word(self, step: Notify) -> None:
        if step.to != Index("call"):
            self.cannot("put a word that is not the number of the call", step, "a word that is set to it")
        word = self._word(step.signal, step.index)
        self.out.call(f"{self.stream}.put_word(", [word, "self.epoch", f"to={self.spell(step.at)}"])

    def view(self, region: Region) -> str:
        """The part of a tensor that a region is."""
        cut = []
        shape = self.schedule.shapes[region.buffer]
        for start, extent, size in zip(region.start, region.extent, shape, strict=True):
            if (start, extent) == (0, size):
                cut.append(":")
            elif extent == 1 and len(cut) < len(shape) - 2:
                cut.append(self.spell(start))
            else:
                first = self.spell(start, 1)
                cut.append(f"{first} : {first} + {self.spell(extent, 1)}")
        while cut and cut[-1] == ":":
            cut.pop()
        return self.tensor(region) + (f"[{', '.join(cut)}]" if cut else "")

    def tensor(self, region: Region) -> str:
        buffer = self.buffers[region.buffer]
        if buffer.places and region.at != rank:
            raise EngineCannot(
                engine=self.engine,
                role=self.role.name,
                what="know the place that a peer has told",
                step=region_text(region),
                legal="a role on SMs",
            )
        return tensor_of(buffer) if region.at == rank else f"self.{region.buffer}.peers[{self.spell(region.at)}]"

    def library(self, step: Call) -> None:
        if step.function in INDEX_PROGRAMS:
            made = INDEX_PROGRAMS[step.function]
            for arguments in made(self.schedule, step, self.view(step.operands[0]), self.spell):
                self.out.call(f"{self.stream}.launch(", arguments)
            return
        if not isinstance(self.role.engine, Host) or step.function not in _CALLS:
            self.cannot(f"call {step.function}", step, f"{', '.join(_CALLS)} on Host()")
        regions = [self.view(one) for one in (*step.results, *step.operands)]
        if step.function == SEND_RECEIVE:
            to, source = map(self.spell, step.numbers)
            sms = max(1, self.role.engine.sms)  # as the proof counts them
            self.out.call(f"{self.stream}.send_receive(", [*regions, f"to={to}", f"source={source}", f"sms={sms}"])
            return
        if step.function in _PRODUCTS:
            if len(step.operands) != 2:
                self.cannot(f"multiply {len(step.operands)} matrices", step, "two operands")
            regions = [f"{view}{self._as_matrix(one)}" for view, one in zip(regions, _all(step), strict=True)]
        if step.function == "all_reduce":
            out, operand = regions
            if out != operand:  # the library adds in place
                self.out.call(f"{self.stream}.copy(", regions)
            regions = [out]
        elif step.function in COLLECTIVES:
            regions = [f"{view}{self._as_rows(one)}" for view, one in zip(regions, _all(step), strict=True)]
        if step.function in _ATTENTION:
            (out, *logs), given = regions[: len(step.results)], regions[len(step.results) :][:3]
            told = zip(("sequences", "width", "first"), map(self.spell, step.numbers), strict=False)
            numbers = [*(f"{name}={value}" for name, value in told), f"scale={step.scale}"]
            numbers += [*(f"logs={one}" for one in logs), *["merged=True"] * (step.function == MERGED_ATTENTION)]
            self.out.call(f"{self.stream}.attention(", [out, *given, *numbers])
            return
        turned = ".t()" if step.function == "matmul_transposed" else ""
        name = "matmul" if step.function in _PRODUCTS else step.function
        self.out.call(f"{self.stream}.{name}(", [*regions[:-1], f"{regions[-1]}{turned}"])

    def _as_matrix(self, region: Region) -> str:
        """What makes a matrix of the view of a region: rows of all parts, behind each other."""
        dims = sum(extent != 1 or number >= len(region.extent) - 2 for number, extent in enumerate(region.extent))
        return f".view(-1, {self.schedule.shapes[region.buffer][-1]})" if dims != 2 else ""

    def _as_rows(self, region: Region) -> str:
        """The same for the library, which cuts the first dimension into parts for ranks."""
        shape = self.schedule.shapes[region.buffer]
        return f".view(-1, {shape[-1]})" if len(shape) > 2 else ""

    def cannot(self, what: str, step: Step, legal: str) -> NoReturn:
        raise EngineCannot(engine=self.engine, role=self.role.name, what=what, step=in_a_line(step), legal=legal)

    def load(self, step: Load) -> None:
        self.cannot("compute", step, "a role on SMs")

    def store(self, step: Store) -> None:
        self.cannot("compute", step, "a role on SMs")

    def compute(self, step: Compute) -> None:
        self.cannot("compute", step, "a role on SMs")

    def sync(self, step: Sync) -> None:
        """A stream does one operation after the other."""


def _all(step: Call) -> tuple[Region, ...]:
    return (*step.results, *step.operands)


ARGUMENTS = {
    "epoch": "self.epoch",
    "calls": "self.calls",
    "counts": "self.counts",
    "signals": "self.signals.local",
    "signal_peers": "self.signals.pointers",
    "stream_values": "self.stream_values",
}


def tensor_of(buffer: Buffer) -> str:
    """The tensor of a buffer of this rank, as host code calls it."""
    if buffer.places:
        return buffer.name
    match buffer.memory:
        case Memory.INPUT | Memory.OUTPUT:
            return buffer.name
        case Memory.LOCAL:
            return f"self.{buffer.name}"
        case Memory.SYMMETRIC:
            return f"self.{buffer.name}.local"
