"""Race detection by happens-before: an observer of the emulator that refutes an unordered pair of accesses.

Two accesses of one byte by different agents *conflict* when one of them writes and not both are indivisible. They are a
race when neither happens before the other, whichever came first in this run. What makes one happen before another:

1. **Program order and agents** (`clocks.py`). A program's scalar stores and scalar atomics are done by one thread, its block
   accesses by all threads, each lane of a vector atomic by some one thread. Only a CTA barrier orders them with each
   other. A scalar atomic that acquires has a barrier of its own behind it, by which Triton hands its result to the other
   threads (in PTX: `atom; st.shared; bar.sync`; that the kernel uses the result is taken for granted). None stands before
   it, and none at a scalar release; compiled code has one before an acquire in a loop, but not in straight-line code, so
   it is not counted on. Scalar loads are done by every thread: what they poll, every thread has polled; what they read
   counts as read by the thread that stores. Instructions of inline assembly are those of the threads that run them, which
   count as lanes, and keep what they acquire to themselves. A lane's atomic and block accesses of one program are no race
   with each other, for they are mostly one thread's; but other programs may not rely on their order.
2. **Asynchronous proxy.** A descriptor store happens before what its program does next only after
   `cp.async.bulk.wait_group` (not `.read`, which Triton emits: it frees the source only), and before the end of its
   kernel. The wait is that of one of the threads: a barrier has to follow before another thread releases. So it is with stores
   from shared memory in Gluon, each a task of its own whose end its program is told of (`performed`). A descriptor
   access comes after writes through pointers only if `fence.proxy.async` stands between, behind the acquire that
   orders them with the program; reads that are done need no such fence. A descriptor load is complete when its value is
   there.
3. **Release and acquire** through words (`words.py`), with the scope at both sides: system scope between ranks, at least
   GPU scope between programs of a rank. Relaxed atomics and volatile loads synchronise only together with a fence:
   before the relaxed write, behind the relaxed read. Every thread runs a fence, for itself: one that stands before the CTA
   barrier does not cover what other threads stored. An atomic that leaves the value as it was releases nothing, since
   nobody can tell that it was there. Stream writes release and stream waits acquire, at system scope.
   **Assumption**: a copy of at most 8 bytes writes them at once and releases all that its stream did before; so copy
   engines notify.
4. **Tokens.** A launch happens before its programs, these before what the stream does next; events between streams,
   collectives and ends of runs are told in the same way, and order all agents and complete asynchronous stores.
   A launch is a fence of system scope on both sides: what its stream did before is performed when a program starts, so a
   relaxed write of the program releases it, and nothing of the program itself; what a relaxed read of the program has read
   from happens before all that follows the end of the kernel. Such are the barriers of torch symmetric memory,
   `sync_remote_blocks`. The letter of the PTX memory model asks for release and acquire there; GPUs do not need them.
5. **Indivisible accesses** of a word - atomics, volatile loads, stream writes and waits, copies of at most 8 bytes - are no
   race with each other if the scope of each includes the other's program: CTA scope its own one only, GPU scope those of its
   rank and the streams there. Volatile loads and what streams and copy engines do have system scope. A plain load that polls
   is a race with the notify, a plain store that notifies one with the poll.

Copies and library operations are plain accesses of their stream. What is not modelled: weak memory makes no *value* appear
that the emulator would not show; a race is reported where hardware might show one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilelink.emulator.errors import NarrowScope, Race
from tilelink.emulator.events import Access, Acquired, Barrier, Fence, Kind, Released, Scope, Semantic, TaskId, Via
from tilelink.emulator.races.checker import Checker, Conflict, Sight, too_narrow
from tilelink.emulator.races.clocks import Agent, TaskClocks, join
from tilelink.emulator.races.fences import NoOrder, OrderingFence, ProxyFence, StoresAwaited, meaning
from tilelink.emulator.races.rules import Rules
from tilelink.emulator.races.shadow import Entry, Record, Region, Role
from tilelink.emulator.races.tasks import Tasks
from tilelink.emulator.races.words import narrower, reaching, release, width
from tilelink.emulator.touch import SyncPoint, Touch, describe, kernel_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tilelink.emulator.events import Event
    from tilelink.emulator.memory import Buffer

_ALL_RULES = Rules()
_HALF_WORD_BYTES, _WORD_BYTES = 4, 8
_OF_STREAMS = (Via.COPY, Via.PUT, Via.STREAM, Via.LIBRARY)
_KEPT = (*_OF_STREAMS, Via.ASSEMBLY)  # nobody hands the result to other threads
_ACQUIRING = (Semantic.ACQUIRE, Semantic.ACQUIRE_RELEASE)
_RELEASING = (Semantic.RELEASE, Semantic.ACQUIRE_RELEASE)


class RaceDetector:
    """Observes one world of `num_ranks` ranks from its first event on; raises `Race` at the first one.

    `rules`: what of the memory model is applied. Memory stays bounded over any number of calls.
    """

    def __init__(self, num_ranks: int, rules: Rules = _ALL_RULES) -> None:
        self.num_ranks = num_ranks
        self.rules = rules
        self.events = 0  # told so far; the number of the present one
        self._run: object = None
        self._forget()

    def observe(self, event: Event) -> None:
        """Take one event into account. Raises `Race`."""
        self.events += 1
        match event:
            case Access():
                self._access(event)
            case Barrier(task):
                self._tasks.get(task).barrier()
            case Fence(task, text):
                self._fence(self._tasks.get(task), text)
            case Released():
                self._tasks.released(event)
            case Acquired():
                self._acquired(event)

    @property
    def states(self) -> int:
        """How many sets of accesses the cells of memory are in, or were in since they were last compacted."""
        return self._checker.states

    @property
    def slots(self) -> int:
        """For how many tasks a clock has components."""
        return self._tasks.slots

    def _forget(self) -> None:
        self._tasks = Tasks()
        self._checker = Checker()
        self._putting_words = set[TaskId]()  # tasks that carry out a put of words

    def _acquired(self, event: Acquired) -> None:
        match event.token:
            case ("run", _) if event.token != self._run and self._tasks.empty:
                # all that was done happens before all that follows; tensors may lie where others lay
                self._run = event.token
                self._forget()
        self._tasks.acquired(event)

    def _fence(self, task: TaskClocks, text: str) -> None:
        if not self.rules.cta_barriers:
            task.barrier()
        match meaning(text):
            case OrderingFence(scope, acquires, releases):
                task.fence(scope if self.rules.scopes else Scope.SYSTEM, acquires, releases)
            case ProxyFence():
                task.fence_proxy()
            case StoresAwaited(left):
                task.await_stores(left)
            case NoOrder():
                pass

    def _access(self, access: Access) -> None:
        task = self._tasks.get(access.task)
        if not self.rules.cta_barriers:
            task.barrier()
        buffer = access.buffer
        for part in (access,) if buffer is None or access.end <= buffer.end else _lanes(access, buffer):
            region = self._checker.memory.region(part)
            if part.via is Via.DESCRIPTOR:
                self._descriptor(part, task, region)
            elif (role := self._role(part, region)) in (Role.POLL, Role.SIGNAL):
                self._word(part, task, region, role)
            else:
                if role in (Role.WRITE, Role.PUT):
                    for word in region.touched_words(part):
                        del region.words[word]
                agent = _agent(part)
                known = task.known[agent]
                self._touch(part, task, region, agent, role, Sight(known, known))
        if self._checker.full:
            self._checker.compact(self._tasks.floor())

    def _role(self, access: Access, region: Region) -> Role:
        if access.kind is Kind.ATOMIC:
            return Role.SIGNAL if access.changed else Role.POLL
        if (
            access.via is Via.PUT and access.kind is Kind.LOAD
        ):  # what atomics have stored there are words, else it is data
            found = self._checker.roles(region, access)
            if Role.SIGNAL in found and Role.WRITE not in found:
                self._putting_words.add(access.task)
                return Role.TAKEN
            return Role.READ
        if access.via is Via.PUT:
            return Role.PUT if access.task in self._putting_words else Role.WRITE
        if access.via is Via.PLAIN and not access.scalar:
            return Role.READ if access.kind is Kind.LOAD else Role.WRITE
        indivisible = (
            access.semantic is not Semantic.NONE
            or access.via is Via.VOLATILE
            or (not self.rules.semantics and self.rules.plain_signals and access.scalar and access.via is Via.PLAIN)
            or (access.via is Via.COPY and access.kind is Kind.STORE and access.end - access.start <= _WORD_BYTES)
        )
        if access.kind is Kind.LOAD:
            return Role.POLL if indivisible else Role.READ
        return Role.SIGNAL if indivisible else Role.WRITE

    def _descriptor(self, access: Access, task: TaskClocks, region: Region) -> None:
        block, proxied = task.known[Agent.BLOCK], self.rules.proxy_fences
        sight = Sight(task.known[Agent.PROXY] if proxied else block, block, proxied)
        if access.kind is Kind.LOAD:
            self._touch(access, task, region, Agent.BLOCK, Role.READ, sight)
            return
        for word in region.touched_words(access):
            del region.words[word]
        if self.rules.async_completion:
            self._touch(access, task, region, Agent.PROXY, Role.WRITE, sight)
            task.stored_asynchronously()
        else:
            self._touch(access, task, region, Agent.BLOCK, Role.WRITE, sight)

    # words through which tasks synchronise

    def _word(self, access: Access, task: TaskClocks, region: Region, role: Role) -> None:
        """An indivisible access: acquire, access, release; in this order, for the access itself is covered by both."""
        semantic, scope = self._strength(access)
        agent = _agent(access)
        if access.kind is not Kind.STORE:
            self._read_word(access, task, region, semantic, scope)
        known = task.known[agent]
        self._touch(access, task, region, agent, role, Sight(known, known), scope)
        if role is Role.SIGNAL:
            self._write_word(access, task, region, semantic, scope)
        if access.scalar and access.kind is not Kind.STORE and semantic in _ACQUIRING and access.via not in _KEPT:
            task.barrier()  # of its own, by which the other threads get its result

    def _strength(self, access: Access) -> tuple[Semantic, Scope]:
        scope = access.scope if self.rules.scopes else Scope.SYSTEM
        if not self.rules.semantics:
            return Semantic.ACQUIRE_RELEASE, scope
        return (Semantic.RELEASE if access.via is Via.COPY else access.semantic), scope

    def _read_word(self, access: Access, task: TaskClocks, region: Region, semantic: Semantic, scope: Scope) -> None:
        words = [region.words[address] for address in region.touched_words(access)]
        near, far = reaching(words, access.task.rank, scope)
        # every thread does a scalar load, one a scalar atomic
        every = access.scalar and access.kind is Kind.LOAD
        if semantic in _ACQUIRING and access.via in _OF_STREAMS:
            task.last_acquire = SyncPoint(self.events, access)
            task.learn_all(join(near, far))
            return
        listeners = (Agent.THREAD, Agent.BLOCK) if every else (Agent.THREAD if access.scalar else Agent.LANE,)
        if semantic in _ACQUIRING:
            task.last_acquire = SyncPoint(self.events, access)
            for listener in listeners:
                task.learn(listener, join(near, far))
            return
        for listener in listeners:
            heard = task.heard[listener]
            heard.near, heard.far = join(heard.near, near), join(heard.far, far)

    def _write_word(self, access: Access, task: TaskClocks, region: Region, semantic: Semantic, scope: Scope) -> None:
        agent = Agent.THREAD if access.scalar else Agent.LANE
        if semantic in _RELEASING:
            released = [(scope, task.publish_all() if access.via in _OF_STREAMS else task.publish(agent))]
        else:
            released = [(narrower(fence, scope), clock) for fence, clock in task.fenced[agent].items()]
        reads = access.kind is Kind.ATOMIC
        if released:
            task.last_release = SyncPoint(self.events, access)
        if semantic not in _RELEASING and task.performed.size:
            released.append((scope, task.performed))
        if reads and not released:
            return  # the release sequence goes on
        for address in _words_of(access):
            word = region.words.setdefault(address, {})
            if not reads:
                word.clear()
            for reach, clock in released:
                release(word, access.task.rank, reach, clock)

    # races

    def _touch(
        self,
        access: Access,
        task: TaskClocks,
        region: Region,
        agent: Agent,
        role: Role,
        sight: Sight,
        scope: Scope = Scope.SYSTEM,
    ) -> None:
        # equal places are mostly one object, which the record keeps alive; to hash one would take longer than all the rest
        key = (id(access.place) << 2 | width(scope)) << 4 | role << 1 | (access.via is Via.DESCRIPTOR)
        entries = self._checker.entries.of(task, agent)
        entry = entries.get(key)
        if entry is None:
            record = Record(
                number=self.events,
                task=task,
                agent=agent,
                component=task.component(agent),
                time=task.times[agent],
                role=role,
                kind=access.kind,
                via=access.via,
                place=access.place,
                scope=scope,
                call=self._tasks.call(task),
            )
            entry = entries[key] = Entry(record)
            task.accessed(agent)
        conflict = self._checker.touch(region, access, entry, sight)
        if conflict is not None:
            raise self._race(conflict, access, task, entry.record)

    def _race(self, conflict: Conflict, access: Access, task: TaskClocks, new: Record) -> Race:
        record = conflict.record
        what = describe(conflict.address, access.buffer or conflict.region.buffer, access.task.rank)
        first = _touch_of(record, record, what, record.number, _released(record))
        order = "it had acquired no signal" if task.last_acquire is None else f"it last acquired {task.last_acquire}"
        second = _touch_of(new, access, what, self.events, order)
        same_call = record.call == self._tasks.call(task)
        narrow = [
            touch for touch, one, other in ((first, record, new), (second, new, record)) if too_narrow(one, other)
        ]
        if narrow:
            return NarrowScope(first=first, second=second, same_call_hint=same_call, narrow=narrow[-1])
        return Race(first=first, second=second, same_call_hint=same_call)


def _lanes(access: Access, buffer: Buffer) -> Iterator[Access]:
    """An access lane by lane, of which only the first is known to lie in `buffer`."""
    for position, address in enumerate(access.addresses.tolist()):
        lane = access.addresses[position : position + 1]
        inside = buffer if buffer.start <= address < buffer.end else None
        end = address + access.item_bytes
        yield replace(access, addresses=lane, start=address, end=end, buffer=inside)


def _agent(access: Access) -> Agent:
    """Who makes an access that is none through a descriptor."""
    if access.scalar:
        return Agent.THREAD
    return Agent.LANE if access.kind is Kind.ATOMIC or access.via is Via.ASSEMBLY else Agent.BLOCK


def _words_of(access: Access) -> list[int]:
    """Addresses at which others may acquire; a copy of 8 bytes may be two words."""
    addresses: list[int] = access.addresses.tolist()
    if access.via is Via.COPY and access.end - access.start == _WORD_BYTES:
        return [access.start, access.start + _HALF_WORD_BYTES]
    return addresses


def _released(record: Record) -> str:
    """What the task of the first access published, and when."""
    point = record.task.last_release
    if point is None:
        return "it released no signal; only what its stream does later comes after it"
    if point.number < record.number:
        return f"it released no signal after that; before, it last released {point}"
    return f"it last released {point}, after that"


def _touch_of(record: Record, one: Record | Access, what: str, number: int, order: str) -> Touch:
    """`one` of the accesses that `record` stands for."""
    identity = record.task.identity
    kernel, program = kernel_of(identity)
    return Touch(
        rank=identity.rank,
        task=identity.name,
        task_number=identity.number,
        kernel=kernel,
        program=program,
        place=one.place,
        via=one.via,
        kind=one.kind,
        changed=record.role in (Role.WRITE, Role.SIGNAL, Role.PUT),
        scope=record.scope,
        what=what,
        number=number,
        order=order,
    )
