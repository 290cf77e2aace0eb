"""What kernels and host code print alike: loops, branches, names that stand for indices. Leaves are of an engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NoReturn

from lowering.source import Source
from lowering.steps.errors import NotPrinted
from lowering.steps.frame import Frame
from lowering.steps.indices import Scope, Spelling
from lowering.steps.late import needed
from tilelink.ir.enums import Protocol
from tilelink.schedule.index import Index, Number, less, names_in, rank
from tilelink.schedule.memory import Access
from tilelink.schedule.printing import in_a_line
from tilelink.schedule.roles import Phase, Plain, Prefetch, Role
from tilelink.schedule.steps import Call, Compute, For, If, Let, Load, Move, Notify, Step, Store, Sync, Wait
from tilelink.schedule.walk import indices, read, steps_in, synchronises, written


class Body(ABC):
    """Prints the steps of a role to `out`."""

    def __init__(self, frame: Frame, out: Source, scope: Scope, spell: Spelling) -> None:
        self.frame, self.out, self.scope, self.spell = frame, out, scope, spell
        self.schedule, self.words = scope.schedule, frame.words
        self.buffers = {buffer.name: buffer for buffer in self.schedule.buffers}
        self.packets = frozenset(one.name for one in self.schedule.buffers if one.protocol is not Protocol.SIMPLE)

    def steps(self, body: tuple[Step, ...]) -> None:
        for step in body:
            self._refuse(step)
            match step:
                case For():
                    self.loop(step)
                case If():
                    self.branch(step)
                case Wait():
                    self.wait(step)
                case Notify():
                    self.notify(step)
                case Load():
                    self.load(step)
                case Store():
                    self.store(step)
                case Move():
                    self.move(step)
                case Compute():
                    self.compute(step)
                case Call():
                    self.library(step)
                case Sync():
                    self.sync(step)

    def loop(self, step: For) -> None:
        count = self.rounds(step)
        header = f"for {step.variable} in {self.range(count, step.body, step.unrolled)}:"
        with self.scope.inside(step.variable, step.count), self.out.block(header):
            self.let(needed(step.let, step.body))
            self.steps(step.body)

    def branch(self, step: If) -> None:
        self.branches(step, self.steps)

    def branches(self, step: If, steps: Callable[[tuple[Step, ...]], None]) -> None:
        """A branch, whose bodies `steps` prints."""
        if step.body:
            with self.out.block(f"if {step.text(self.spell, equal=True)}:"), self.scope.inside():
                steps(step.body)
        if step.others:
            otherwise = f"if {step.text(self.spell, equal=False)}:"
            with self.out.block("else:" if step.body else otherwise), self.scope.inside():
                steps(step.others)

    def let(self, let: Let) -> None:
        for name, index in self.scope.bind(let):
            self.out.line(f"{name} = {self.spell(index)}")

    def rounds(self, step: For) -> str:
        """How often a loop runs: as ranks, where its rounds go through them, or as a number with the name of its variable."""
        count, ranks = step.count, self.schedule.num_ranks
        if not isinstance(count, int):
            return self.spell(count)
        inner = [index for one in steps_in(step.body) for index in indices(one)]
        inner += [index for _, index in step.let]
        own = any(isinstance(one, If) and (one.left, one.right) == (Index(step.variable), rank) for one in step.body)
        if own and count == ranks:
            return self.spell.ranks()
        if count in (ranks - 1, ranks) and any(_goes_through_ranks(index, step.variable, ranks) for index in inner):
            return self.spell.ranks() if count == ranks else f"{self.spell.ranks()} - 1"
        return self.spell.number(f"{step.variable}_count", count, f"rounds of the loop over {step.variable}")

    def waits(self, body: tuple[Step, ...]) -> bool:
        """Whether a step orders accesses, which no compiler may then move from round to round."""
        return synchronises(body, self.packets) or any(isinstance(step, Sync) for step in steps_in(body))

    def awaits(self, body: tuple[Step, ...]) -> bool:
        """Whether loads in `body` may have to stay behind a step, in this round and from the next one on."""
        steps = tuple(steps_in(body))
        by_data = any(region.buffer in self.packets for step in steps for region in read(step))
        return by_data or any(isinstance(step, Wait | Sync) for step in steps)

    def programs(self, role: Role, what: str = "programs") -> str:
        """How many programs, or streams, share the positions of a role."""
        return self.spell.number(f"{role.name}_programs", role.programs, f"{what} of {role.name}")

    def end(self, role: Role, phase: Phase) -> str:
        """The position behind the last one."""
        count = phase.count
        if isinstance(count, Index) and count.op == "max" and count.args[1] == 0:
            count = count.args[0]  # a loop that would end before it begins has no rounds
        end, before = less(count)
        end = end if before == phase.first else phase.first + phase.count
        if not isinstance(end, int) or end == 1:
            return self.spell(end)
        made, first = self.made(phase), self.made(role.phases[0])
        if phase.first != 0 and made and made != first:  # another loop in the same programs
            return self.spell.number(f"{made}_end", end, f"positions up to the last tile of {made}")
        if first and made not in ("", first):  # one that begins anew
            return self.spell.number(f"{made}_tiles", end, f"positions of {made}")
        return self.spell.number(f"{role.name}_tiles", end, f"positions of {role.name}")

    @staticmethod
    def made(phase: Phase) -> str:
        """The buffer that the steps of a phase store into, the first one; or nothing."""
        stored = (region.buffer for step in steps_in(phase.body) for region in written(step))
        return next(stored, "")

    def positions(self, phase: Phase) -> bool:
        """Whether the number of the position matters, or there are several."""
        inner = [index for step in steps_in(phase.body) for index in indices(step)]
        inner += [index for _, index in phase.let]
        return phase.first != 0 or phase.count != 1 or any("tile" in names_in(index) for index in inner)

    def _refuse(self, step: Step) -> None:
        """Raises NotPrinted for accesses that have no text."""
        for region in (*read(step), *written(step)):
            if region.access is Access.PACED:
                self.not_printed("a store that is spread over time", step, "Access.POINTER")

    def not_printed(self, what: str, step: Step, legal: str) -> NoReturn:
        raise NotPrinted(what=what, role=self.scope.role, step=in_a_line(step), legal=legal)

    def check_pipelining(self, role: Role, phase: Phase) -> None:
        """Raises NotPrinted. What a prefetch may do early, a program may do in order as well."""
        if not isinstance(phase.pipelining, Plain | Prefetch):
            what = f"{type(phase.pipelining).__name__} of a phase"
            raise NotPrinted(what=what, role=role.name, step=phase.title or "tiles", legal="Plain(), Prefetch()")

    def range(self, count: str, body: tuple[Step, ...], unrolled: bool) -> str:
        return f"range({count})"

    @abstractmethod
    def wait(self, step: Wait) -> None: ...
    @abstractmethod
    def notify(self, step: Notify) -> None: ...
    @abstractmethod
    def load(self, step: Load) -> None: ...
    @abstractmethod
    def store(self, step: Store) -> None: ...
    @abstractmethod
    def move(self, step: Move) -> None: ...
    @abstractmethod
    def compute(self, step: Compute) -> None: ...
    @abstractmethod
    def library(self, step: Call) -> None: ...
    @abstractmethod
    def sync(self, step: Sync) -> None: ...


def _goes_through_ranks(index: Number, variable: str, ranks: int) -> bool:
    """Whether `index` is a rank that depends on a loop variable: a remainder of the number of ranks."""
    if not isinstance(index, Index) or index.is_name:
        return False
    if index.op == "%" and index.args[1] == ranks and {variable, "rank"} <= names_in(index.args[0]):
        return True
    return any(_goes_through_ranks(one, variable, ranks) for one in index.args)
