"""Whether an access of some cells comes after all that it is in conflict with; if so, it is put on record there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tilelink.emulator.events import Scope
from tilelink.emulator.races.clocks import Agent, Clock, knows
from tilelink.emulator.races.shadow import Entries, Entry, Memory, Record, Region, Role, States
from tilelink.emulator.races.words import includes, width

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tilelink.emulator.events import Access

_LEAST_BOUND = 1 << 14


class Sight(NamedTuple):
    """What happens before an access: writes and reads up to these times.

    `proxied`: its program's own writes through pointers do not, unless a fence made them known.
    """

    writes: Clock
    reads: Clock
    proxied: bool = False


@dataclass(frozen=True, slots=True)
class Conflict:
    """An earlier access that nothing orders with the present one, and the first byte of a cell that both touch."""

    record: Record
    address: int
    region: Region


class Checker:
    """The shadow of all memory touched in a run."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.entries = Entries()
        self._states = States()
        self._bound = _LEAST_BOUND

    @property
    def states(self) -> int:
        return len(self._states.sets)

    @property
    def full(self) -> bool:
        """Whether it is time to `compact`."""
        return len(self._states.sets) > self._bound

    def touch(self, region: Region, access: Access, entry: Entry, sight: Sight) -> Conflict | None:
        """Put an access that lies in `region` on record, unless it is in conflict with one that is not before it."""
        cells, shadow = region.cells(access), region.states
        if isinstance(cells, int):
            old = int(shadow[cells])
            new = self._after(old, entry, sight)
            if isinstance(new, Record):
                return Conflict(new, region.address(cells, 0), region)
            shadow[cells] = new
            return None
        present = shadow[cells]
        low, high = int(np.minimum.reduce(present)), int(np.maximum.reduce(present))
        if low == high:
            new = self._after(low, entry, sight)
            if isinstance(new, Record):
                return Conflict(new, region.address(cells, 0), region)
            if new != low:
                shadow[cells] = new
            return None
        table = np.empty(high - low + 1, np.int32)
        for old in _distinct(present, low, high):
            new = self._after(old, entry, sight)
            if isinstance(new, Record):
                position = int(np.argmax(present == old))
                return Conflict(new, region.address(cells, position), region)
            table[old - low] = new
        shadow[cells] = table[present - low]
        return None

    def roles(self, region: Region, access: Access) -> set[Role]:
        """Of the accesses that are on record for what is touched."""
        present = np.unique(region.states[region.cells(access)])
        return {record.role for state in present.tolist() for record in self._states.sets[state]}

    def compact(self, floor: Clock) -> None:
        """Forget the records up to `floor`, which are before all that follows, and the states that no cell is in."""
        regions = self.memory.regions()
        used = sorted({int(state) for region in regions for state in np.unique(region.states)})
        old, self._states = self._states.sets, States()
        table = np.zeros(len(old), np.int32)
        for state in used:
            kept = tuple(record for record in old[state] if not knows(floor, record.component, record.time))
            table[state] = self._states.number(kept)
        for region in regions:
            region.states = table[region.states]
        self.entries.forget_states()
        self._bound = max(_LEAST_BOUND, 4 * len(self._states.sets))

    def _after(self, state: int, entry: Entry, sight: Sight) -> int | Record:
        """The state after an access, or a record of `state` that is a race with it."""
        known = entry.after.get(state)
        if known is not None:
            return known
        new, kept = entry.record, []
        for old in self._states.sets[state]:
            before = _same_thread(old, new, sight) or knows(_seen(old, sight), old.component, old.time)
            if not before and _in_conflict(old, new):
                return old
            if not (before and _replaces(new, old)):
                kept.append(old)
        kept.append(new)
        after = entry.after[state] = self._states.number(tuple(sorted(kept, key=_number)))
        return after


def _number(record: Record) -> int:
    return record.number


def _seen(old: Record, sight: Sight) -> Clock:
    return sight.reads if old.role in (Role.READ, Role.POLL) else sight.writes


def _same_thread(old: Record, new: Record, sight: Sight) -> bool:
    """Program order of one agent. The asynchronous proxy has none, not even with its own program's stores."""
    if old.task is not new.task or old.agent is not new.agent or new.agent is Agent.PROXY:
        return False
    return not (sight.proxied and old.role in (Role.WRITE, Role.SIGNAL, Role.PUT) and old.via is not new.via)


def _in_conflict(old: Record, new: Record) -> bool:
    if old.role.conflicts(new.role):
        return not _one_program(old, new)
    return too_narrow(old, new) or too_narrow(new, old)


def too_narrow(one: Record, other: Record) -> bool:
    """Whether `one` of two indivisible accesses of a word, at least one of which writes, is not indivisible to the other."""
    if one.scope is Scope.SYSTEM or not (one.role.indivisible and other.role.indivisible):
        return False
    writes = Role.SIGNAL in (one.role, other.role)
    return writes and not includes(one.scope, one.task.identity, other.task.identity)


def _replaces(new: Record, old: Record) -> bool:
    """Whether what is in conflict with `old`, which is before `new`, is in conflict with `new` as well.

    Two indivisible accesses: the scope of `new` must leave out all that the scope of `old` does, and the scope of a third
    task's access must include both of them or neither, so they are of one rank. (Let pass: an access at CTA scope by another
    thread of the program of `new`.)
    """
    if not new.role.replaces(old.role):
        return False
    if not (new.role.indivisible and old.role.indivisible):
        return True
    return width(new.scope) <= width(old.scope) and new.task.identity.rank == old.task.identity.rank


def _one_program(old: Record, new: Record) -> bool:
    """What inside of one program is no race, although nobody else may rely on the order.

    A lane's atomic and the block access of the same lane are mostly one thread's; and what a program has
    read is there before its descriptor store starts, for which all threads meet.
    """
    if old.task is not new.task:
        return False
    if new.agent is Agent.PROXY:
        return old.role is Role.READ
    return {old.agent, new.agent} <= {Agent.LANE, Agent.BLOCK} and old.agent is not new.agent


def _distinct(values: NDArray[np.int32], low: int, high: int) -> list[int]:
    """The different ones, all in [low, high]; counting is faster than sorting unless they are far apart."""
    if high - low > 8 * values.size:
        found: list[int] = np.unique(values).tolist()
        return found
    counted: list[int] = (np.flatnonzero(np.bincount(values.ravel() - low)) + low).tolist()
    return counted
