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

from collections.abc import Iterator
from contextlib import contextmanager

from lowering.steps.dtypes import stored
from lowering.steps.indices import Scope, Spelling
from lowering.steps.programs import Programs
from lowering.steps.regions import Regions, Side
from lowering.steps.text import Chain, Text
from lowering.steps.words import Words
from tilelink.schedule.index import Number, rank
from tilelink.schedule.memory import Buffer, Region
from tilelink.schedule.roles import Phase, Role, Who
from tilelink.schedule.steps import Notify, Store, Wait
from tilelink.schedule.walk import steps_in


class SymmetricRegions(Regions):
    """`loaded`: by buffer, the pointers and descriptors through which the text so far loads. `awaited`: what of these has taken
    tokens, and is called instead."""

    def __init__(self, spell: Spelling, needs: dict[str, str]) -> None:
        super().__init__(spell, needs)
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
        return here if region.at == rank else f"dl.symm_at({here}, {self.spell(region.at)})"

    def in_pool(self, buffer: Buffer, place: str, at: Number) -> str:
        here = f"in_place({buffer.name}_pool, {place}, tl.{stored(buffer)})"
        return f"dl.symm_at({here}, {self.spell(at)})"


class DistributedPrograms(Programs):
    """`exact`: signals whose waits may compare for equality. `drafts`: what phases load through, from a text of them that takes
    no tokens. `spanning`: what waits of one phase and loads of another one share."""

    regions: SymmetricRegions
    vectors = False

    def __init__(self, out: Text, scope: Scope, spell: Spelling, words: Words, exact: frozenset[str]) -> None:
        super().__init__(out, scope, spell, words)
        self.exact = exact
        self.regions = SymmetricRegions(self.spell, self.needs)
        self.drafts: dict[Phase, dict[str, dict[str, None]]] | None = None
        self.spanning: dict[str, dict[str, str]] = {}

    def inner(self) -> DistributedPrograms:
        found = DistributedPrograms(Text(), self.scope, self.spell, self.words, self.exact)
        found.drafts, found.spanning = {}, {}
        return found

    # what takes tokens

    def phase(self, role: Role, phase: Phase) -> None:
        """Behind the waits of all other programs, the one that ends last begins anew."""
        if self.drafts is None:
            last = phase.who is Who.LAST
            phases = [one for one in role.phases if (one.who is Who.LAST) is last]
            self.drafts = {one: self._draft(role, one) for one in phases} if any(map(self._covered, phases)) else {}
            self.spanning = self._declared(self._shared(phases), phases)
        super().phase(role, phase)

    def begin(self, phase: Phase) -> None:
        """In front of all branches and loops of a position."""
        own = self._declared(self._covered(phase) - self.spanning.keys(), [phase])
        self.regions.awaited = self.spanning | own

    def _draft(self, role: Role, phase: Phase) -> dict[str, dict[str, None]]:
        draft = self.inner()
        draft.phase(role, phase)
        return draft.regions.loaded

    def _covered(self, phase: Phase) -> set[str]:
        """Buffers whose loads need waits of a phase that return tokens."""
        waits = [step for step in steps_in(phase.body) if isinstance(step, Wait) and step.signal in self.exact]
        return {name for step in waits for name in step.covers} - self.packets

    def _shared(self, phases: list[Phase]) -> set[str]:
        """Buffers that a phase waits for, and a later one loads."""
        drafts = self.drafts or {}
        return {
            name
            for number, phase in enumerate(phases)
            for name in self._covered(phase)
            if any(name in drafts.get(later, {}) for later in phases[number + 1 :])
        }

    def _declared(self, buffers: set[str], phases: list[Phase]) -> dict[str, dict[str, str]]:
        """Declares what loads of `buffers` in `phases` go through."""
        drafts = self.drafts or {}
        found: dict[str, dict[str, str]] = {}
        for name in [buffer.name for buffer in self.schedule.buffers if buffer.name in buffers]:
            handles = {one: f"{one}_awaited" for phase in phases for one in drafts.get(phase, {}).get(name, {})}
            for one, awaited in handles.items():
                self.out.line(f"{awaited} = {one}")
            if handles:
                found[name] = handles
        return found

    # leaves

    def wait(self, step: Wait) -> None:
        """A token that no load takes orders nothing: then all threads meet behind the wait."""
        word, until = self.word(self.own(step.signal), step.signal, step.index), self.spell(step.until)
        takers = [one for name in step.covers for one in self.regions.awaited.get(name, {}).values()]
        if step.signal not in self.exact or not takers:
            self.out.wrapped("wait_at_least(", [word, until])
            return
        if len(takers) == 1:
            self.out.wrapped(f"{takers[0]} = dl.consume_token(", [takers[0], f"wait_until({word}, {until})"])
            return
        self.out.wrapped("token_of_wait = wait_until(", [word, until])
        for one in takers:
            self.out.line(f"{one} = dl.consume_token({one}, token_of_wait)")

    def raised(self, step: Notify) -> None:
        if step.at == rank:
            if step.to is None:
                super().raised(step)
                return
            word = self.word(self.own(step.signal), step.signal, step.index)
            self.out.wrapped("notify_here(", [word, self.spell(step.to)])
            return
        self.needs["signals"] = ""
        word, at = self.word("signals", step.signal, step.index), self.spell(step.at)
        if step.to is not None:
            self.out.wrapped("notify(", [word, at, self.spell(step.to)])
            return
        words, *place = word.parts
        with self.out.maybe(f"if {self.amount} == 1:" if self.amount else ""):
            self.out.wrapped("count_at_peer(", [words, Chain(tuple(place)), at])

    def store(self, step: Store) -> None:
        with self.regions.stores():
            super().store(step)

    def _descriptor(self, buffer: str, sides: tuple[Side, ...]) -> str:
        return self.regions.handle(buffer, super()._descriptor(buffer, sides))
