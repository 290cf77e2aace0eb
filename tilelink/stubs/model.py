"""What a function of the Triton-distributed API is: vendors, parameter types, place of the call, effect."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Vendor(Enum):
    """Which SHMEM library, and with it which GPUs, a file is written for."""

    NVIDIA = "nvidia"  # NVSHMEM
    ROCSHMEM = "rocshmem"  # AMD
    MORI = "mori"  # AMD


class Place(Enum):
    DEVICE = "device"  # inside a kernel, or a function that kernels call
    HOST = "host"
    KERNEL = "kernel"  # on the device, or launched from the host


class Reach(Enum):
    """Which threads take part in one call."""

    PROGRAM = "program"  # all threads of the program
    THREAD = "thread"  # each thread that comes by
    WARP = "warp"
    WAVE = "wave"
    BLOCK = "block"
    WORKGROUP = "workgroup"
    GROUP = "group"  # host functions that every rank must call
    OPEN = "open"  # not said


class Effect(Enum):
    """What the rules need to know of a call."""

    NONE = "none"
    WAIT = "wait"  # spins until another program or rank acts
    RAISE = "raise"  # makes a signal visible, of one thread
    BARRIER = "barrier"  # all threads of the program meet
    FENCE = "fence"
    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic"
    PUT = "put"  # moves bytes to or from a peer
    PUT_RAISE = "put_raise"
    ALLOCATE = "allocate"  # a symmetric tensor


class Symbol(Enum):
    """An integer constant whose value differs between vendors, so that it is written by name."""

    SIGNAL_OP = "signal op"
    COMPARE = "comparison"
    TEAM = "team"


@dataclass(frozen=True, slots=True)
class Words:
    """A device pointer or a torch tensor. `elements`: legal dtypes, empty if any. `one`: no tensor of pointers."""

    elements: tuple[str, ...] = ()
    one: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """A constexpr string. An empty tuple means that the facts do not say what is legal there."""

    nvidia: tuple[str, ...]
    amd: tuple[str, ...] = ()

    def legal(self, vendor: Vendor) -> tuple[str, ...]:
        return self.nvidia if vendor is Vendor.NVIDIA else self.amd


class Plain(Enum):
    BYTES = "number of bytes"
    POINTER = "pointer"
    OTHER = "nothing that is checked"


ParameterType = Words | Choice | Symbol | Plain


@dataclass(frozen=True, slots=True)
class Parameter:
    """`default` is Python text, and empty if the argument must be given."""

    name: str
    type: ParameterType
    default: str = ""

    @property
    def required(self) -> bool:
        return not self.default

    def __str__(self) -> str:
        return f"{self.name}={self.default}" if self.default else self.name


@dataclass(frozen=True, slots=True)
class Exact:
    """The whole parameter list is known."""

    parameters: tuple[Parameter, ...]

    def __str__(self) -> str:
        return ", ".join(map(str, self.parameters))


@dataclass(frozen=True, slots=True)
class Unsaid:
    """The facts name the function and not its parameters: calls are not checked."""

    parameters: tuple[Parameter, ...] = ()

    def __str__(self) -> str:
        return "..."


Signature = Exact | Unsaid


@dataclass(frozen=True, slots=True)
class Function:
    """One function. `import_paths[0]` is the module it belongs to, the others offer it too.

    `unsaid` lists what the facts leave open; nothing is checked there. `source` is the section of the facts.
    """

    name: str
    import_paths: tuple[str, ...]
    signature: Signature
    vendors: tuple[Vendor, ...]
    place: Place
    effect: Effect
    reach: Reach
    meaning: str
    source: str
    returns: str = ""
    unsaid: str = ""
    on_vendor: tuple[tuple[Vendor, Signature], ...] = ()  # where one vendor's parameters differ

    @property
    def module(self) -> str:
        return self.import_paths[0]

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"

    def signature_on(self, vendor: Vendor) -> Signature:
        return dict(self.on_vendor).get(vendor, self.signature)

    def text(self, vendor: Vendor = Vendor.NVIDIA) -> str:
        """`name(parameters) -> returns`, as one would write it in a manual."""
        arrow = f" -> {self.returns}" if self.returns else ""
        return f"{self.name}({self.signature_on(vendor)}){arrow}"


@dataclass(frozen=True, slots=True)
class Constant:
    """A symbolic integer of libshmem_device."""

    name: str
    symbol: Symbol
    value: int
    vendor: Vendor


@dataclass(frozen=True, slots=True)
class ApiModule:
    """`complete`: a name that is not listed does not exist; else the facts list only a part of the module."""

    path: str
    complete: bool
    vendors: tuple[Vendor, ...] = tuple(Vendor)
    same_as: str = ""  # the module whose names it has
    names: tuple[str, ...] = ()  # of names.txt
