"""Who runs steps: engines run roles, a role goes through phases, a launch holds roles that run at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from tilelink.ir.enums import Choice
from tilelink.schedule.index import Number, value_of
from tilelink.schedule.memory import Buffer, Dim, Signal, Table
from tilelink.schedule.names import StreamName, ValueName
from tilelink.schedule.network import Transport
from tilelink.schedule.steps import Let, Step


class Who(Choice):
    EACH = "each in turn"  # programs of the role take positions in turn
    FIRST = "the first program"
    LAST = "whoever ends last"  # of all programs of the launch, when all others have ended


@dataclass(frozen=True, slots=True)
class Plain:
    """One position after the other."""


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Waits and loads of the next position come before what is stored of this one. `defer`: so do its own notifies."""

    defer: bool = False


@dataclass(frozen=True, slots=True)
class PingPong:
    """Two groups of `warps` warps take positions in turn; a third one waits and loads for them, `places` loads ahead."""

    warps: int
    places: int


@dataclass(frozen=True, slots=True)
class Cooperative:
    """Two groups of `warps` warps have half of the rows of each position; a third one waits and loads for them, `places` loads
    ahead (of CUTLASS, as ping-pong is)."""

    warps: int
    places: int


Pipelining = Plain | Prefetch | PingPong | Cooperative
GROUPED = PingPong | Cooperative  # programs of several groups of warps


@dataclass(frozen=True, slots=True)
class Phase:
    """`body` for `count` positions from `first` on; the name `tile` is the position, and `let` says what lies there.

    `title` says in a line of prose what the phase is for; printed code has it as a comment.

    Position p belongs to program p % programs of the role. `every`: each program does all positions instead. The name `program`
    is the number of the program in its role.
    """

    count: Number
    body: tuple[Step, ...]
    let: Let = ()
    first: Number = 0
    who: Who = Who.EACH
    every: bool = False
    pipelining: Pipelining = Plain()
    title: str = ""


@dataclass(frozen=True, slots=True)
class Sms:
    """`programs` of a kernel, `per_sm` on an SM. Of `dies` that the hardware deals programs to in turn, each has programs whose
    numbers follow each other, so that neighbours share an L2. `inside`: they are no programs of their own but `warps` of the
    programs of the last role of the launch, which are as many, beside its groups of warps. Their pieces of rows leave at least
    `pace` clocks one behind the other."""

    programs: Number
    warps: int = 4
    stages: int = 2
    per_sm: int = 1
    dies: int = 1
    inside: bool = False
    pace: Number = 0


@dataclass(frozen=True, slots=True)
class CopyEngine:
    """DMA engines, fed by `programs` streams."""

    programs: int = 1


@dataclass(frozen=True, slots=True)
class Network:
    """Puts with signals, issued by `programs` programs; or `enqueued` on as many streams of the host."""

    programs: int = 1
    enqueued: bool = False


@dataclass(frozen=True, slots=True)
class Host:
    """Calls of libraries, in stream order. `sms`: how many SMs they hold while others spin."""

    programs: int = 1
    sms: int = 0


Engine = Sms | CopyEngine | Network | Host


@dataclass(frozen=True, slots=True)
class Role:
    name: str
    engine: Engine
    phases: tuple[Phase, ...]

    @property
    def inside(self) -> bool:
        """Whether its programs are warps of those of another role."""
        return isinstance(self.engine, Sms) and self.engine.inside

    @property
    def by_host(self) -> bool:
        """Whether host code issues its steps, on streams."""
        return isinstance(self.engine, CopyEngine | Host) or (isinstance(self.engine, Network) and self.engine.enqueued)

    @property
    def programs(self) -> int:
        """How many programs share the positions: a number, once names of dims have been replaced."""
        found = self.engine.programs
        assert isinstance(found, int), f"{found} programs: instantiate the schedule first"
        return found


@dataclass(frozen=True, slots=True)
class Launch:
    """Roles that are resident at once: when the launches before it on `stream`, and all so far on `joins`, have ended."""

    stream: StreamName
    roles: tuple[Role, ...]
    joins: tuple[StreamName, ...] = ()


@dataclass(frozen=True, slots=True)
class MeshAxis:
    """A dimension of the ranks, outermost first in `Schedule.mesh`. Dimensions with a transport come before all others."""

    name: str
    size: Number
    transport: Transport | None = None  # of links between ranks that differ in it; None: loads and stores


@dataclass(frozen=True)
class Schedule:
    """A whole operator, for every rank as a function of `rank`. Calls of a rank follow each other in stream order.

    `origins`: which line of the user makes a value; printed code has it as a comment.
    """

    name: str
    mesh: tuple[MeshAxis, ...]
    buffers: tuple[Buffer, ...]
    signals: tuple[Signal, ...]
    launches: tuple[Launch, ...]
    dims: tuple[Dim, ...] = ()
    tables: tuple[Table, ...] = ()
    functions: str = ""  # source of the ops that the user wrote
    origins: tuple[tuple[ValueName, str], ...] = ()

    @cached_property
    def num_ranks(self) -> int:
        return prod(value_of(axis.size, self.sizes) for axis in self.mesh)

    @cached_property
    def ranks_per_node(self) -> int:
        """Ranks that reach each other by loads and stores."""
        inner = [axis.size for axis in self.mesh if axis.transport is None]
        return prod(value_of(size, self.sizes) for size in inner) if len(inner) < len(self.mesh) else self.num_ranks

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Values of dims, by name."""
        found: dict[str, int] = {}
        for dim in self.dims:
            found[dim.name] = value_of(dim.size, found)
        return found

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Extents of buffers, signals and tables, by name."""
        named: tuple[Buffer | Signal | Table, ...] = (*self.buffers, *self.signals, *self.tables)
        return {one.name: tuple(value_of(extent, self.sizes) for extent in one.shape) for one in named}
