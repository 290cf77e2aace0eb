"""Steps of programs that put over a network by NVSHMEM: a move with its signal is one call, and so is a word by itself."""

from __future__ import annotations

from dataclasses import replace

from lowering.source import Chain
from lowering.steps.errors import EngineCannot
from lowering.steps.flat import is_flat, run
from lowering.steps.programs import Programs
from tilelink.schedule.index import rank
from tilelink.schedule.printing import in_a_line
from tilelink.schedule.steps import Move, Notify, Order, Sync


class NvshmemPrograms(Programs):
    def move(self, step: Move) -> None:
        """NVSHMEM takes addresses of this rank, and the number of the other one."""
        if step.notify is None:
            super().move(step)
            return
        (source,), (target,), told = step.source, step.target, step.notify
        if not is_flat(self.scope, step) or told.to is None or told.at != target.at:
            legal = "one run of elements, and a word that is set where it lands"
            raise EngineCannot(
                engine="a put", role=self.scope.role, what="put several regions", step=in_a_line(step), legal=legal
            )
        found = run(self.scope, source)
        assert found is not None, "it is one run"
        rows, columns = found
        here = replace(target, at=rank)
        ends = [Chain((self.regions.base(one), *self.spell.flat(one.start, one.buffer, 0))) for one in (here, source)]
        word = self.word(self.own(told.signal), told.signal, told.index)
        size, to, at = (self.spell(one) for one in (rows * columns, told.to, told.at))
        self.out.call("put(", [*ends, size, word, to, at])

    def raised(self, step: Notify) -> None:
        if step.at == rank or step.to is None:  # of this node, by an atomic
            super().raised(step)
            return
        word = self.word(self.own(step.signal), step.signal, step.index)
        self.out.call("put_word(", [word, self.spell(step.to), self.spell(step.at)])

    def sync(self, step: Sync) -> None:
        if step.order is Order.QUIET:
            self.out.line("quiet()")
            return
        super().sync(step)
