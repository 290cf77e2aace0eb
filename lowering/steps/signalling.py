"""Words of programs on SMs: waits, notifies, and counts of who comes last. Words of all ranks are awaited and raised at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lowering.source import Chain, Source
from lowering.steps.body import Body
from lowering.steps.frame import Frame
from lowering.steps.indices import Scope, strides
from lowering.steps.parameters import Needing
from lowering.steps.ranks import Notifies, Waits, notifies_of_ranks, waits_of_ranks
from tilelink.schedule.index import Index, Number, rank
from tilelink.schedule.known import Known
from tilelink.schedule.steps import For, Let, Notify, Wait


class Signalling(Body):
    """`needs`: names that the printed text takes as parameters."""

    vectors = True  # whether one operation awaits, or raises, words of all ranks

    def __init__(self, frame: Frame, out: Source, scope: Scope) -> None:
        self.needs: dict[str, str] = {}
        super().__init__(frame, out, scope, Needing(scope, frame.constants, self.needs))
        self.amount = ""  # what is added to words, if it is not 1

    def let(self, let: Let) -> None:
        for name, index in self.scope.bind(let):
            self.out.assigned(name, self._terms(index))
            self._reaches(name, index)

    def _reaches(self, name: str, index: Number) -> None:
        """Constants that a user edits must leave room for a tile that begins so far from the end."""
        match index:
            case Index("min", (_, Known(index=Index("-", (whole, tile))))):
                why = f"a tile fits where the last one along {name} is shifted to"
                self.spell.constants.require(f"{self.spell(whole)} >= {self.spell(tile)}", why)

    def _terms(self, index: Number) -> list[str]:
        """What an index adds up, each term but the first with its sign."""
        if not isinstance(index, Index) or index.op not in ("+", "-"):
            return [self.spell(index, 1)]
        left, right = index.args
        return [*self._terms(left), f"{index.op} {self.spell(right, 2)}"]

    def word(self, words: str, signal: str, index: tuple[Number, ...]) -> Chain:
        """The place of a word; `words` are those of a rank."""
        first = self.spell.number(signal, self.words.first(signal), f"first word of signal {signal}")
        return Chain((words, first, *self.spell.flat(index, signal, 0)))

    def wait(self, step: Wait) -> None:
        here = self.own(step.signal)
        self.out.call("wait_until(", [self.word(here, step.signal, step.index), self.spell(step.until)])

    def own(self, signal: str) -> str:
        """The memory of the own rank in which a signal lies."""
        name = "counts" if self.words.own(signal) else "signals"
        self.needs[name] = ""
        return name

    def notify(self, step: Notify) -> None:
        with self.by_the_last(step):
            self.raised(step)

    def raised(self, step: Notify) -> None:
        if step.at == rank:
            words = self.own(step.signal)
        else:
            self.needs["signal_peers"] = ""
            words = f"on_peer(signal_peers, {self.spell(step.at)}, tl.{self.frame.dialect.word.removeprefix('torch.')})"
        word = self.word(words, step.signal, step.index)
        if step.to is None:
            self.out.call("count_up(", [word, *([self.amount] if self.amount else [])])
        else:
            self.out.call("notify(", [word, self.spell(step.to)])

    @contextmanager
    def by_the_last(self, step: Notify) -> Iterator[None]:
        """A block for the program that comes last of so many that raise a word together; none where that is any one."""
        if step.last_of == 1:
            yield
            return
        self.needs["counts"] = ""
        name, many = f"{step.signal}_raises", step.last_of
        first = self.spell.number(name, self.words.counts[name], f"counts of who raises {step.signal}")
        index: tuple[Number, ...] = step.index
        if step.signal in self.words.of_own:
            index = (step.at, *index[1:])
            terms = []
        else:
            size = self.words.size(step.signal)
            per_rank = self.spell.number(f"{step.signal}_words", size, f"words of {step.signal}") if size > 1 else "1"
            at = self.spell(step.at, 2)
            terms = [at if per_rank == "1" else f"{at} * {per_rank}"]
        terms += self.spell.flat(index, step.signal, 0)
        last = self.spell(many - 1)
        if isinstance(many, int):
            last = f"{self.spell.number(f'{step.signal}_parts', many, f'parts that raise a word of {step.signal}')} - 1"
        with self.out.condition("if count_arrival(", [Chain(("counts", first, *terms))], f") == {last}:"):
            yield

    def loop(self, step: For) -> None:
        """Words of all ranks are awaited at once, and raised at once."""
        waits, raised = self._awaited_at_once(step), self._raised_at_once(step)
        if waits is not None:
            self._wait_for_ranks(waits)
        elif raised is not None:
            if raised.before is not None:
                self.before_raising(raised.before)
            with self.by_the_last(raised.notify):
                self._raise_at_ranks(raised)
        else:
            super().loop(step)

    def before_raising(self, step: For) -> None:
        """What a loop over ranks does at each of them before they are told."""
        super().loop(step)

    def as_one(self, step: For) -> bool:
        """Whether no loop is printed, but a vector operation."""
        raised = self._raised_at_once(step)
        return self._awaited_at_once(step) is not None or (raised is not None and raised.before is None)

    def _awaited_at_once(self, step: For) -> Waits | None:
        return waits_of_ranks(step, self.schedule.num_ranks) if self.vectors else None

    def _raised_at_once(self, step: For) -> Notifies | None:
        found = notifies_of_ranks(step, self.schedule)
        if found is None or (found.notify.to is None and not found.peers) or self.amount or not self.vectors:
            return None
        return found

    def _raise_at_ranks(self, raised: Notifies) -> None:
        """Set a word of all ranks, or of all peers, or add to that of all peers."""
        notify = raised.notify
        self.needs["signal_peers"] = ""
        _, *place = self.word("", notify.signal, notify.index).parts
        sizes = f"NUM_RANKS={self.spell.ranks()}"
        value = [self.spell(notify.to)] if notify.to is not None else []
        name = "count_at_peers" if notify.to is None else "notify_peers" if raised.peers else "notify_all"
        if raised.peers:
            self.needs["rank"] = ""
            value.append("rank")
        self.out.call(f"{name}(", ["signal_peers", Chain(tuple(place)), *value, sizes])

    def _wait_for_ranks(self, found: Waits) -> None:
        wait, shape = found.wait, self.schedule.shapes[found.wait.signal]
        index = tuple(0 if dim == found.dim else one for dim, one in enumerate(wait.index))
        what = f"words of {wait.signal} from one rank to the next"
        stride = strides(shape)[found.dim]
        name = self.spell.number(f"{wait.signal}_stride", stride, what) if stride > 1 else "1"
        sizes: list[str | Chain] = [f"STRIDE={name}", f"NUM_RANKS={self.spell.ranks()}"]
        word = self.word(self.own(wait.signal), wait.signal, index)
        if found.peers:
            self.needs["rank"] = ""
            self.out.call("wait_epochs(", [word, self.spell(wait.until), "rank", *sizes])
        else:
            self.out.call("wait_ranks(", [word, self.spell(wait.until), *sizes])
