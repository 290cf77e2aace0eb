"""One namespace: names of buffers, tables, signals, roles, values and indices, which share the functions that are printed."""

from __future__ import annotations

import keyword
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from lowering.embed import defined
from lowering.steps.closing import MAIN
from lowering.steps.errors import NameTaken, ReservedName, UnknownName
from lowering.steps.words import kernel_name
from tilelink.errors import did_you_mean
from tilelink.schedule.index import Number, names_in
from tilelink.schedule.roles import GROUPED, Launch, Phase, Role, Schedule
from tilelink.schedule.steps import Compute, For, If, Let, Load, Step
from tilelink.schedule.walk import indices, phases

# instead of those of Triton, where names are the same
OF_GLUON = ("gluon_signals", "turns", "pieces", "folds", "moves")
PARAMETERS = ("epoch", "calls", "counts", "signals", "signal_peers", "stream_values", "rank", "call", "program")
_PYTHON = ("range", "min", "max", "tl", "triton", "torch", "self", "fabric", "last", "enqueue", "opaque", "check_input")
_OF_TILES = ("tile", "lane", "rows_left", "cols_left", "rows_of_lanes", "cols_of_lanes")
_OF_TOKENS = ("dl", "token_of_wait")
OF_POOLS = ("pool", "here")  # the addresses of all places, and the number of the one that this call has
# what printed code calls beside a buffer
_OF_BUFFERS = ("peers", "multicast", "desc", "desc_of_parts", "moved", "remote", "awaited", "desc_awaited")
_OF_TURNS = ("there", "ring", "piece", "pieces", "piece_loaded", "moves")  # the same where groups of warps take turns


_RESERVED = frozenset({*PARAMETERS, *_PYTHON, *_OF_TILES, *_OF_TOKENS, MAIN, "end_of_call", *keyword.kwlist})


@cache
def _helpers() -> frozenset[str]:
    """Names of all device helpers, and of those functions on elements that kernels call by their name."""
    files = (Path(__file__).parents[1] / "device").glob("*.py")
    return frozenset(name for file in files for name in defined(file.read_text()))


def is_reserved(kind: str, name: str) -> bool:
    """Whether printed code has the name for itself. Signals are spelled in capitals."""
    return kind != "signal" and (name in _RESERVED or name in _helpers())


def checked_names(schedule: Schedule) -> frozenset[str]:
    """All names of `schedule`. Raises NameTaken, ReservedName, and UnknownName for an index of a name that nothing binds."""
    names = _Names(schedule)
    for launch in schedule.launches:
        names.launch(launch)
    return frozenset(names.kinds) - {dim.name for dim in schedule.dims}


@dataclass
class _Names:
    schedule: Schedule
    kinds: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        schedule = self.schedule
        turns = any(isinstance(phase.pipelining, GROUPED) for _, _, phase in phases(schedule))
        for dim in schedule.dims:
            self.new("size", dim.name)
        for buffer in schedule.buffers:
            self.new("buffer", buffer.name)
            for beside in _OF_BUFFERS:
                self.new("companion", f"{buffer.name}_{beside}")
            for beside in _OF_TURNS if turns else ():
                self.new("companion", f"{buffer.name}_{beside}")
            for beside in OF_POOLS if buffer.places else ():
                self.new("companion", f"{buffer.name}_{beside}")
        for signal in schedule.signals:
            self.new("signal", signal.name)
        for table in schedule.tables:
            self.new("table", table.name)
        for function in defined(schedule.functions):
            self.new("function", function)
        for stream in dict.fromkeys(launch.stream for launch in schedule.launches if launch.stream != MAIN):
            self.new("stream", stream)

    def launch(self, launch: Launch) -> None:
        """Roles of the host are no function, and a role that is alone may have the name of its kernel."""
        kernel = "" if all(role.by_host for role in launch.roles) else kernel_name(launch)
        if kernel:
            self.new("kernel", kernel)
        for role in launch.roles:
            if role.by_host:
                self.one("wait kernel", f"{role.name}_waits")  # the printer numbers those of roles of a name
            elif role.name != kernel:
                self.new("role", role.name)
            for phase in role.phases:
                self.phase(role, phase)

    def phase(self, role: Role, phase: Phase) -> None:
        known = {"rank", "call", "program", *self.schedule.sizes}
        self.known(role, phase.first, known)
        self.known(role, phase.count, known)
        inner = self.let(role, phase.let, known | {"tile"})
        self.steps(role, phase.body, inner)

    def steps(self, role: Role, body: tuple[Step, ...], known: set[str]) -> None:
        for step in body:
            if not isinstance(step, For):
                for index in indices(step):
                    self.known(role, index, known | {"lane"})
            match step:
                case Load():
                    self.one("value", step.result)
                case Compute():
                    for result in step.results:
                        self.one("value", result)
                case For():
                    self.known(role, step.count, known)
                    self.bind(step.variable, known)
                    self.steps(role, step.body, self.let(role, step.let, known | {step.variable}))
                case If():
                    self.steps(role, step.body, known)
                    self.steps(role, step.others, known)

    def let(self, role: Role, let: Let, known: set[str]) -> set[str]:
        for name, index in let:
            self.known(role, index, known)
            self.bind(name, known)
            known = known | {name}
        return known

    def bind(self, name: str, known: set[str]) -> None:
        """An index: it may be bound again behind its loop, not inside."""
        if name in known:
            raise NameTaken(kind="index", name=name, schedule=self.schedule.name, other="an index that it would hide")
        self.one("index", name)

    def known(self, role: Role, index: Number, known: set[str]) -> None:
        for name in sorted(names_in(index) - known):
            hint = did_you_mean(name, known)
            raise UnknownName(name=name, role=role.name, index=str(index), hint=hint, known=", ".join(sorted(known)))

    def new(self, kind: str, name: str) -> None:
        """Something that has its name alone."""
        if name in self.kinds:
            other = f"a {self.kinds[name]}"
            raise NameTaken(kind=kind, name=name, schedule=self.schedule.name, other=other)
        self.one(kind, name)

    def one(self, kind: str, name: str) -> None:
        """Something whose name others of its kind may have."""
        if self.kinds.get(name, kind) != kind:
            other = f"a {self.kinds[name]}"
            raise NameTaken(kind=kind, name=name, schedule=self.schedule.name, other=other)
        if is_reserved(kind, name) or not name.isidentifier():
            suggestion = f"{name}_{kind}" if name.isidentifier() else f"{kind}_0"
            raise ReservedName(kind=kind, name=name, schedule=self.schedule.name, suggestion=suggestion)
        self.kinds[name] = kind
