"""The planned Schedule: everything the planner decided. What ranks do follows from it (`tilelink.elaborate`).

It holds for all ranks as a function of `rank`, is frozen, compares by value, can be pasted back (`repr`) and goes through
JSON in both directions. `tilelink.ir.printing` prints it as a design review; `tilelink.plan.Plan` is what its user holds.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from tilelink.errors import NotASchedule
from tilelink.ir import calls, choices, collective, enums, movers, nodes, order, placement, routed, spec, steps, user_op
from tilelink.ir.calls import PacketCollective
from tilelink.ir.choices import NONE, Choices, LibraryCompute
from tilelink.ir.nodes import BeforeKernel, Buffer, CopyProgram, Exchange, Finish, Kernel, Launch, Machine, named
from tilelink.ir.ops import user_fold
from tilelink.ir.serialize import decode, to_json
from tilelink.ir.spec import BoundSpec

_MODULES = (calls, choices, collective, enums, movers, nodes, order, placement, routed, spec, steps, user_fold, user_op)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A whole operator, for every rank, as data. It compares by value.

    `decided` holds every decision, `choices` its (pin, value) as a user pins it, `predicted_us` the cost model's time of one
    call, `hash` what ranks compare.
    """

    spec: BoundSpec
    machine: Machine
    choices: tuple[tuple[str, str], ...]  # pin name -> value, in the user's syntax: pinning all of them gives this plan
    buffers: tuple[Buffer, ...]
    exchanges: tuple[Exchange, ...]
    launches: tuple[Launch, ...]
    predicted_us: float
    decided: Choices

    def __eq__(self, other: object) -> bool:
        """By value: a Plan, which adds no field, is equal to the schedule that it was made of."""
        if not isinstance(other, Schedule):
            return NotImplemented
        return self is other or _values(self) == _values(other)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def num_ranks(self) -> int:
        return self.machine.num_ranks

    @property
    def by_library(self) -> frozenset[str]:
        """Matmuls that the library computes."""
        return frozenset(name for name, choice in self.decided.computes if isinstance(choice.loop, LibraryCompute))

    @property
    def ranks_per_node(self) -> int:
        """Ranks that reach each other by loads and stores."""
        across = [one.order.ranks.ranks_per_node for one in self.exchanges if one.mover.crosses_nodes]
        across += [one.per_node for one in self.launches if isinstance(one, PacketCollective) and one.per_node]
        return next(iter(across), self.num_ranks)

    @property
    def program(self) -> Schedule:
        """What it does, whatever choices have led to it."""
        return replace(self, choices=(), decided=NONE, predicted_us=0.0)

    def buffer(self, name: str) -> Buffer:
        """Raises NoSuchName."""
        return named(self.buffers, name, "buffer")

    def exchange(self, name: str) -> Exchange:
        """Raises NoSuchName."""
        return named(self.exchanges, name, "exchange")

    def within(self, kernel: Kernel) -> tuple[Launch, ...]:
        """Launches that programs of `kernel` carry out: those right before it, and `Finish` right behind it, or behind the
        kernels that are joined to it."""
        at = self._index(kernel)
        first = at
        while first and isinstance(before := self.launches[first - 1], BeforeKernel) and before.within:
            first -= 1
        last = self._index(self.joined_to(kernel)[-1])
        later = [x for x in self.launches[last + 1 :] if not isinstance(x, CopyProgram)]
        behind = [x for x in later[:1] if isinstance(x, Finish) and x.within]
        return (*self.launches[first:at], *behind)

    def copied_word(self, copies: CopyProgram) -> int:
        """Slot of `copied` into which the first stream of `copies` writes; those of its other streams follow."""
        at = next(index for index, launch in enumerate(self.launches) if launch is copies)
        before = [x for x in self.launches[:at] if isinstance(x, CopyProgram) and x.tells_end]
        return sum(launch.streams for launch in before)

    def one_launch(self, call: PacketCollective) -> tuple[PacketCollective, ...]:
        """`call`, and those that have programs of their own in its launch."""
        found = [call]
        for launch in self.launches[next(i for i, one in enumerate(self.launches) if one is call) + 1 :]:
            if not isinstance(launch, PacketCollective) or not launch.beside:
                break
            found.append(launch)
        return tuple(found)

    def joined_to(self, kernel: Kernel) -> tuple[Kernel, ...]:
        """`kernel`, and the kernels with which its programs go on, in order."""
        found = [kernel]
        for launch in self.launches[self._index(kernel) + 1 :]:
            if isinstance(launch, Kernel) and launch.joined:
                found.append(launch)
            elif not isinstance(launch, CopyProgram):
                break
        return tuple(found)

    def launched_at(self, index: int) -> int:
        """Index of the launch that kernel `index` is part of: its own, or that of the kernel to which it is joined."""
        kernel = self.launches[index]
        if not isinstance(kernel, Kernel) or not kernel.joined:
            return index
        earlier = [
            i for i, launch in enumerate(self.launches[:index]) if isinstance(launch, Kernel) and not launch.joined
        ]
        return earlier[-1] if earlier else index

    def grid(self, kernel: Kernel) -> int:
        """Programs that the launch of `kernel` has."""
        return max(one.programs for one in self.joined_to(kernel))

    def _index(self, kernel: Kernel) -> int:
        return next(index for index, launch in enumerate(self.launches) if launch is kernel)

    @property
    def shifts_rows(self) -> bool:
        """Whether last tiles of rows are shifted inwards (`Axis.inwards`)."""
        roles = (kernel.compute for kernel in self.kernels())
        return any(axis.inwards for role in roles if role is not None for axis in role.axes)

    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(launch for launch in self.launches if isinstance(launch, Kernel))

    def to_json(self) -> str:
        """Stable text; `from_json` gives an equal schedule."""
        return to_json(self)

    @classmethod
    def of(cls, schedule: Schedule) -> Self:
        """`schedule` as an object of this class."""
        return cls(*_values(schedule))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The schedule that `to_json` wrote. Raises NotASchedule."""
        try:
            found = decode(json.loads(text), [*_types(), Schedule])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise NotASchedule(reason=f"{type(error).__name__}: {error}") from error
        if not isinstance(found, Schedule):
            raise NotASchedule(reason=f"it is a {type(found).__name__}")
        return cls.of(found)

    @property
    def hash(self) -> str:
        """First 16 hex digits of the SHA-256 of all that ranks must agree on: predicted times and source text are not, and what
        its links could do besides."""
        nodes = tuple(replace(node, line="") for node in self.spec.nodes)
        machine = replace(self.machine, multicast=False)
        bare = replace(self, predicted_us=0.0, machine=machine, spec=replace(self.spec, source=(), nodes=nodes))
        return hashlib.sha256(bare.to_json().encode()).hexdigest()[:16]


def _values(schedule: Schedule) -> tuple[Any, ...]:
    """Its fields, in their order."""
    return tuple(getattr(schedule, field.name) for field in fields(schedule))


def spec_from_data(data: object) -> BoundSpec:
    """The spec that `serialize.encode` made `data` from. Raises ValueError."""
    found = decode(data, _types())
    if not isinstance(found, BoundSpec):
        raise ValueError(f"a {type(found).__name__} is no spec")
    return found


def _types() -> list[type]:
    return [value for module in _MODULES for value in vars(module).values() if isinstance(value, type)]
