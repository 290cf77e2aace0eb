"""Steps of programs on SMs in the dialect of Triton-distributed: what differs from stock Triton.

- Memory of a peer is reached from the own address of the same symmetric buffer: `dl.symm_at(x, peer)`.
- Words of peers are raised by `dl.notify`, from the own address of the word.
- `dl.wait` compares for equality. Where a word may pass what is awaited (`tilelink.proof.happens_before.exact`), a loop of loads
  compares instead.
- `dl.wait` returns a token. Loads of the buffers that the wait covers go through what has taken it:

      x_awaited = x
      x_awaited = dl.consume_token(x_awaited, wait_until(signals + ARRIVED + segment, call))
      a = tl.load(x_awaited + ...)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lowering.source import Chain, Source
from lowering.steps.dtypes import stored
from lowering.steps.frame import Frame
from lowering.steps.indices import Scope, Spelling
from lowering.steps.programs import Programs
from lowering.steps.puts import Puts
from lowering.steps.regions import Regions, Side
from tilelink.schedule.index import Number, rank
from tilelink.schedule.memory import Buffer, Region
from tilelink.schedule.roles import Phase, Role, Schedule
from tilelink.schedule.steps import For, Notify, Step, Store, Wait
from tilelink.schedule.walk import bodies, read, steps_in


class SymmetricRegions(Regions):
    """`loaded`: by buffer, the pointers and descriptors through which the text so far loads. `awaited`: what of these has taken
    tokens, and is called instead."""

    def __init__(self, spell: Spelling, needs: dict[str, str], in_packet: Mapping[str, int]) -> None:
        super().__init__(spell, needs, in_packet)
        self.loaded: dict[str, dict[str, None]] = {}
        self.awaited: dict[str, dict[str, str]] = {}
        self.storing = False

    @contextmanager
    def stores(self) -> Iterator[None]:
        """Stores are behind every wait, and take no token."""
        self.storing = True
        yield
        self.storing = False

    def handle(self, buffer: str, name: str) -> str:
        """`name`, a pointer or descriptor of `buffer`, as an access calls it."""
        if self.storing:
            return name
        self.loaded.setdefault(buffer, {})[name] = None
        return self.awaited.get(buffer, {}).get(name, name)

    def base(self, region: Region) -> str:
        buffer = self.buffers[region.buffer]
        if buffer.places and region.at != rank:
            return super().base(region)
        self.needs[buffer.name] = ""
        here = self.handle(buffer.name, buffer.name)
        if region.at == rank:
            return here
        text = f"dl.symm_at({here}, {self.spell(region.at)})"
        name, known = self.remote.get((buffer.name, region.at), ("", ""))
        return name if known == text else text  # a wait in the loop returns another pointer

    def on_every_rank(self, buffer: Buffer) -> str:
        self.needs[buffer.name] = ""
        return f"on_ranks_of_node({buffer.name})"

    def in_pool(self, buffer: Buffer, place: str, at: Number) -> str:
        here = f"in_place({buffer.name}_pool, {place}, tl.{stored(buffer)})"
        return f"dl.symm_at({here}, {self.spell(at)})"


def returning_tokens(schedule: Schedule, exact: frozenset[str]) -> frozenset[str]:
    """Those of `exact` whose waits return tokens for loads of their own phase. Where a later phase, or by a descriptor another
    loop than the wait's, loads what was waited for, all threads meet behind the wait instead: a descriptor does not keep a
    token through a loop."""
    crossing: set[str] = set()
    for launch in schedule.launches:
        for role in launch.roles:
            for number, phase in enumerate(role.phases):
                for wait in _waits(phase):
                    later = role.phases[number + 1 :]
                    if any(_loads(one, wait.covers) and not _waits_for(one, wait.signal) for one in later):
                        crossing.add(wait.signal)
                crossing |= _lost_in_loops(phase)
    return exact - crossing


def _lost_in_loops(phase: Phase) -> set[str]:
    """Signals whose waits stand in a loop, and loads by descriptors that they cover in another one."""
    waits, loads = list[tuple[Wait, tuple[For, ...]]](), list[tuple[str, tuple[For, ...]]]()

    def collect(body: tuple[Step, ...], loops: tuple[For, ...]) -> None:
        for step in body:
            if isinstance(step, Wait):
                waits.append((step, loops))
            loads.extend((one.buffer, loops) for one in read(step) if one.access.by_descriptor)
            for inner in bodies(step):
                collect(inner, (*loops, step) if isinstance(step, For) else loops)

    collect(phase.body, ())
    return {
        wait.signal
        for wait, outside in waits
        if outside and any(loops != outside and buffer in wait.covers for buffer, loops in loads)
    }


def _waits(phase: Phase) -> list[Wait]:
    return [step for step in steps_in(phase.body) if isinstance(step, Wait)]


def _waits_for(phase: Phase, signal: str) -> bool:
    return any(wait.signal == signal for wait in _waits(phase))


def _loads(phase: Phase, buffers: tuple[str, ...]) -> bool:
    return any(region.buffer in buffers for step in steps_in(phase.body) for region in read(step))


class DistributedPrograms(Programs):
    """Waits for signals that are `exact` return tokens for loads of their phase."""

    regions: SymmetricRegions
    vectors = False

    def __init__(self, frame: Frame, out: Source, scope: Scope) -> None:
        super().__init__(frame, out, scope)
        self.regions = SymmetricRegions(self.spell, self.needs, self.words.in_packet)
        self.is_draft = False
        self.loaded: dict[str, dict[str, None]] = {}  # by buffer, what loads of the phase go through

    # what takes tokens

    def phase(self, role: Role, phase: Phase) -> None:
        """What loads go through, a draft of the phase says in which nothing takes tokens."""
        self.loaded = {}
        if self._covered(phase) and not self.is_draft:
            draft = self.inner()
            draft.is_draft = True
            draft.phase(role, phase)
            self.loaded = draft.regions.loaded
        super().phase(role, phase)

    def begin(self, phase: Phase) -> None:
        """Declares what takes tokens in front of all branches and loops of a position."""
        self.regions.awaited = {}
        covered = self._covered(phase)
        for name in [buffer.name for buffer in self.schedule.buffers if buffer.name in covered]:
            handles = {one: f"{one}_awaited" for one in self.loaded.get(name, {})}
            for one, awaited in handles.items():
                self.out.line(f"{awaited} = {one}")
            self.regions.awaited |= {name: handles} if handles else {}

    def _covered(self, phase: Phase) -> set[str]:
        """Buffers whose loads need waits of a phase that return tokens."""
        return {
            name for wait in _waits(phase) if wait.signal in self.frame.exact for name in wait.covers
        } - self.packets

    # leaves

    def wait(self, step: Wait) -> None:
        """A token that no load takes orders nothing: then all threads meet behind the wait."""
        word, until = self.word(self.own(step.signal), step.signal, step.index), self.spell(step.until)
        takers = [one for name in step.covers for one in self.regions.awaited.get(name, {}).values()]
        if step.signal not in self.frame.exact or not takers:
            self.out.call("wait_at_least(", [word, until])
            return
        if len(takers) == 1:
            self.out.call(f"{takers[0]} = dl.consume_token(", [takers[0], f"wait_until({word}, {until})"])
            return
        self.out.call("token_of_wait = wait_until(", [word, until])
        for one in takers:
            self.out.line(f"{one} = dl.consume_token({one}, token_of_wait)")

    def raised(self, step: Notify) -> None:
        if step.at == rank:
            if step.to is None:
                super().raised(step)
                return
            word = self.word(self.own(step.signal), step.signal, step.index)
            self.out.call("notify_here(", [word, self.spell(step.to)])
            return
        self.needs["signals"] = ""
        word, at = self.word("signals", step.signal, step.index), self.spell(step.at)
        if step.to is not None:
            self.out.call("notify(", [word, at, self.spell(step.to)])
            return
        words, *place = word.parts
        with self.out.maybe(f"if {self.amount} == 1:" if self.amount else ""):
            self.out.call("count_at_peer(", [words, Chain(tuple(place)), at])

    def store(self, step: Store) -> None:
        with self.regions.stores():
            super().store(step)

    def _descriptor(self, buffer: str, sides: tuple[Side, ...], ends: tuple[int | None, ...]) -> str:
        return self.regions.handle(buffer, super()._descriptor(buffer, sides, ends))


class DistributedPuts(Puts, DistributedPrograms):
    """What goes to other nodes is put by NVSHMEM."""

    def stored_to(self, region: Region) -> Chain:
        with self.regions.stores():
            return self.first_of(region)
