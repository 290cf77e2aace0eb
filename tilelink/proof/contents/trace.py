"""A schedule as what it does to tiles: each step with its regions evaluated, for all ranks and positions of a phase at once.

Waits and raises are left out: which write a read sees follows from the order of steps, which `happens_before` proves. Loops are
gone through round by round, but for those that multiply: these go over a dimension of their operands once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tilelink.proof.contents.alike import Alike
from tilelink.proof.contents.anew import Touch
from tilelink.proof.contents.memory import Access, split
from tilelink.proof.contents.swept import Blocks, Sweep, folds, merges_blocks, rounds_of
from tilelink.proof.contents.tile import Flags, Pieces
from tilelink.proof.happens_before.lanes import Lanes
from tilelink.schedule.index import Index, Ints, Number, names_in, replaced
from tilelink.schedule.memory import Region
from tilelink.schedule.printing import in_a_line
from tilelink.schedule.roles import Host, Launch, Phase, Role, Schedule, Who
from tilelink.schedule.steps import Call, Compute, For, If, Let, Load, Move, Notify, Step, Store, Sync, Wait
from tilelink.schedule.walk import all_steps, indices, read, steps_in, written


@dataclass(eq=False)
class Done:
    """A step in some lanes. `operands`: of a Compute, names of tiles, numbers, and a column for each index; of a Call numbers.
    `pieces`: along each dimension of a region that is loaded, if a loop goes over it."""

    step: Load | Store | Move | Compute | Call
    reads: tuple[Access, ...] = ()
    writes: tuple[Access, ...] = ()
    operands: tuple[str | float | Ints, ...] = ()
    shape: tuple[int, ...] = ()
    pieces: tuple[Pieces | None, ...] = ()
    offset: tuple[Ints, ...] | None = None  # from the origin of a load
    rows: Ints | None = None  # that a loop goes over, where it folds
    rounds: Ints | None = None  # of a loop over blocks
    later: Mapping[int, Ints] = field(default_factory=dict)  # how far behind the first round operands of later ones are
    torn: bool = False  # a loop goes over a dimension, but not piece by piece
    parts: tuple[Access | None, ...] = ()  # of a Call: those of its operands, then of its results


@dataclass(eq=False)
class Chosen:
    """`body` in the lanes `where`, `others` in the others."""

    where: Flags
    body: Block
    others: Block


@dataclass(eq=False)
class Block:
    """Steps in order, of `ranks` and positions `tiles` of a phase of `place`."""

    place: str
    ranks: Ints
    tiles: Ints
    steps: list[Done | Chosen] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ranks)

    def done(self) -> Iterator[Done]:
        for step in self.steps:
            if isinstance(step, Done):
                yield step
            else:
                yield from step.body.done()
                yield from step.others.done()


def traced(schedule: Schedule, call: int, ranks: Alike) -> tuple[list[Block], list[Touch]]:
    """What ranks that stand for all do in call number `call`, a block for each phase, in the order of launches; and what launches
    do to places in which they leave something new."""
    trace, found = _Trace(schedule, call, ranks), list[Block]()
    for number, launch in enumerate(schedule.launches):
        trace.begin(number, launch)
        for role in launch.roles:
            found += [trace.phase(f"launch {number}, {role.name}", role, one) for one in role.phases]
    return [block for block in found if block.steps and len(block)], trace.touches


def acts(step: Step) -> bool:
    """Whether the step, or one in it, does more than wait and raise."""
    return any(not isinstance(one, Wait | Notify | Sync | For | If) for one in steps_in((step,)))


class _Trace:
    def __init__(self, schedule: Schedule, call: int, ranks: Alike) -> None:
        self.schedule, self.call, self.ranks = schedule, call, ranks
        self.shapes = schedule.shapes
        self.made_anew: dict[str, int] = {}  # how often a launch has put its result in the place of its operand
        self.anew: frozenset[str] = frozenset()  # where the one at hand does
        self.in_turn: dict[str, int] = {}  # where each position of it does, which come one after the other: how many
        self.made: set[str] = set()
        self.touches: list[Touch] = []
        self.launch = self.phases = self.step = 0
        waits = (step for step in all_steps(schedule) if isinstance(step, Wait))
        # places of these are used several times a call: a wait tells of which use
        self.reused = {name for wait in waits if not _of_call(wait.until) for name in wait.covers}

    def begin(self, number: int, launch: Launch) -> None:
        """A launch that reads what lay somewhere before it, and writes there, leaves something new in that place."""
        self.launch = number
        self.made_anew |= {name: self.made_anew.get(name, 0) + 1 for name in self.anew}
        self.made_anew |= {name: self.made_anew.get(name, 0) + many for name, many in self.in_turn.items()}
        steps = [step for role in launch.roles for phase in role.phases for step in steps_in(phase.body)]
        covered = {name for step in steps if isinstance(step, Wait) for name in step.covers}
        taken = {region.buffer for step in steps for region in read(step)} - covered
        written_to = {region.buffer for step in steps for region in written(step)}
        many = _in_turn(launch)
        self.in_turn = dict.fromkeys(taken & written_to if many else (), many)
        self.anew = frozenset(() if many else taken & written_to & self.made)
        self.made |= written_to

    def phase(self, place: str, role: Role, phase: Phase) -> Block:
        self.phases += 1
        number = np.arange(self.ranks.period)
        lanes = Lanes({"rank": number, "call": self.call, "program": 0, "tile": 0}, number, number)
        needed = _needed(phase.body, phase.let)
        counts = np.maximum(lanes.value(phase.count, {}), 0)
        first = lanes.value(phase.first, {})
        lanes, tile = lanes.repeated(counts)
        tile = tile + np.repeat(first, counts)
        programs = 1 if phase.who is Who.FIRST else max(role.programs, 1)  # without any, the order is refuted
        program: int | Ints = tile % programs
        if phase.every and "program" in needed and programs > 1:
            lanes, program = lanes.having(tile=tile).repeated(np.full(len(lanes), programs))
            tile = lanes.value(Index("tile"), {})
        lanes = lanes.having(tile=tile, program=program)
        let = tuple(one for one in phase.let if one[0] in needed)
        lanes = lanes.with_let(let, {}) if len(lanes) else lanes
        block = Block(place, lanes.value(Index("rank"), {}), tile)
        self.steps(block, phase.body, lanes)
        return block

    def steps(self, block: Block, body: tuple[Step, ...], lanes: Lanes) -> None:
        if not len(lanes):
            return
        use: dict[str, Number] = {}  # of a place that is used several times, as the last wait says
        for at, step in enumerate(body):
            self.step += 1
            match step:
                case Wait(until=until, covers=covers):
                    use |= dict.fromkeys(covers, until)
                case For() if acts(step):
                    self.loop(block, step, lanes)
                case If(left, right, inner, others) if acts(step):
                    same = lanes.value(left, {}) == lanes.value(right, {})
                    self.branch(block, same, inner, others, lanes)
                case Load():
                    block.steps.append(self.load(step, lanes, use.get(step.region.buffer, 0)))
                case Store() | Move():
                    told = next((one.to for one in body[at:] if isinstance(one, Notify) and one.to is not None), 0)
                    block.steps.append(self.written(step, lanes, use, told))
                case Call():
                    block.steps.append(self.called(step, lanes))
                case Compute():
                    operands = tuple(lanes.value(one, {}) if isinstance(one, Index) else one for one in step.operands)
                    shape = tuple(int(lanes.value(one, {})[0]) for one in step.shape)
                    block.steps.append(Done(step, operands=operands, shape=shape))

    def branch(
        self, block: Block, same: Flags, inner: tuple[Step, ...], others: tuple[Step, ...], lanes: Lanes
    ) -> None:
        if same.all() or not same.any():
            self.steps(block, inner if same.all() else others, lanes)
            return
        sides = []
        for where, body in ((same, inner), (~same, others)):
            side = Block(block.place, block.ranks[where], block.tiles[where])
            self.steps(side, body, lanes.at(where))
            sides.append(side)
        block.steps.append(Chosen(same, *sides))

    def loop(self, block: Block, loop: For, lanes: Lanes) -> None:
        counts = np.maximum(lanes.value(loop.count, {}), 0)
        rounds, even = int(counts.max()), bool(counts.min() == counts.max())
        if folds(loop) and rounds:
            self.steps_folded(block, loop, lanes, counts)
            return
        if merges_blocks(loop) and counts.min() > 0 and rounds > 1 and self.steps_of_blocks(block, loop, lanes, counts):
            return
        if even and _multiplies(loop) and rounds:
            self.steps_swept(block, loop, lanes, rounds)
            return
        for number in range(rounds):
            going = lanes.having(**{loop.variable: number})
            if even or bool((counts > number).all()):
                self.steps(block, loop.body, going.with_let(_used(loop.let, loop.body), {}))
                continue
            where = counts > number
            side = Block(block.place, block.ranks[where], block.tiles[where])
            self.steps(side, loop.body, going.at(where).with_let(_used(loop.let, loop.body), {}))
            block.steps.append(Chosen(where, side, Block(block.place, block.ranks[~where], block.tiles[~where])))

    def steps_swept(self, block: Block, loop: For, lanes: Lanes, rounds: int) -> None:
        """A loop of loads and products as one round, in which loads have all that they go over."""
        by: dict[str, Number] = {}
        for name, index in loop.let:
            by[name] = replaced(index, by)
        first = lanes.having(**{loop.variable: 0}).with_let(loop.let, {})
        before = len(block.steps)
        self.steps(block, loop.body, first)
        for one in block.steps[before:]:
            self._sweep(one, by, loop.variable, lanes, rounds)

    def steps_folded(self, block: Block, loop: For, lanes: Lanes, counts: Ints) -> None:
        """A loop that folds as one round, in the lanes that have any."""
        where = counts > 0
        side = block if where.all() else Block(block.place, block.ranks[where], block.tiles[where])
        lanes, sweep = lanes.at(where), Sweep(loop, lanes.at(where), counts[where])
        first, before = lanes.having(**{loop.variable: 0}).with_let(loop.let, {}), len(side.steps)
        self.steps(side, loop.body, first)
        loads = list[Done]()
        for one in side.steps[before:]:
            assert isinstance(one, Done)
            if isinstance(one.step, Load):
                (start, extent), one.torn = sweep.box(one.step)
                access = one.reads[0]
                one.reads = (self._box(access.buffer, access.at, start, extent, access.version),)
                one.rows = extent[-2]
                loads.append(one)
            elif isinstance(one.step, Compute):
                load = loads[0].step
                assert isinstance(load, Load)
                changed, torn = sweep.mask(one.step, load)
                loads[0].torn |= torn
                one.operands = tuple(changed.get(at, operand) for at, operand in enumerate(one.operands))
        if side is not block:
            block.steps.append(Chosen(where, side, Block(block.place, block.ranks[~where], block.tiles[~where])))

    def steps_of_blocks(self, block: Block, loop: For, lanes: Lanes, counts: Ints) -> bool:
        """A loop over blocks as one round, if it goes over them one behind the other."""
        sweep = Blocks(loop, lanes, counts)
        boxes = {one.result: sweep.boxes(one) for one in loop.body if isinstance(one, Load)}
        if None in boxes.values():
            return False
        before = len(block.steps)
        self.steps(block, loop.body, lanes.having(**{loop.variable: 0}).with_let(loop.let, {}))
        for one in block.steps[before:]:
            assert isinstance(one, Done)
            if isinstance(one.step, Load) and (box := boxes[one.step.result]) is not None:
                (start, extent), one.pieces = box
                access = one.reads[0]
                access = self._box(access.buffer, access.at, start, extent, access.version)
                one.reads, one.parts = (access,), (split(access, self.schedule.num_ranks),)
            elif isinstance(one.step, Compute):
                one.rounds, one.later = counts, sweep.operands(one.step)
        return True

    def _sweep(self, one: Done | Chosen, by: Mapping[str, Number], variable: str, lanes: Lanes, rounds: int) -> None:
        if isinstance(one, Chosen):
            for side, where in ((one.body, one.where), (one.others, ~one.where)):
                for inner in side.steps:
                    self._sweep(inner, by, variable, lanes.at(where), rounds)
        elif isinstance(one.step, Load):
            self._widen(one, one.step.region, by, variable, lanes, rounds)

    def _widen(
        self, one: Done, region: Region, by: Mapping[str, Number], variable: str, lanes: Lanes, rounds: int
    ) -> None:
        """Along each dimension, from where the first round begins to where the last one ends."""
        first = lanes.having(**{variable: 0})
        start = tuple(first.value(replaced(index, by), {}) for index in region.start)
        extents = [first.value(replaced(index, by), {}) for index in region.extent]
        pieces = list[Pieces | None]()
        for dim, (index, extent) in enumerate(zip(region.start, region.extent, strict=True)):
            index, extent = replaced(index, by), replaced(extent, by)
            if variable not in names_in(index) | names_in(extent):
                pieces.append(None)
                continue
            firsts, sizes = rounds_of(index, extent, variable, lanes, rounds)
            one.torn |= bool((firsts[1:] != firsts[:-1] + sizes[:-1]).any())
            pieces.append(Pieces(firsts - firsts[:1], sizes))
            extents[dim] = extents[dim] * 0 + sizes.sum(axis=0)
        one.pieces = tuple(pieces)
        # each round multiplies again what does not move with the rounds
        one.torn |= variable in names_in(replaced(region.at, by)) or (rounds > 1 and not any(pieces))
        at = first.value(replaced(region.at, by), {})
        one.reads = (self._box(region.buffer, at, start, tuple(extents), one.reads[0].version),)

    def called(self, step: Call, lanes: Lanes) -> Done:
        reads = tuple(self.access(one, lanes) for one in step.operands)
        writes = tuple(self.access(one, lanes, writes=True) for one in step.results)
        parts = tuple(split(one, self.schedule.num_ranks) for one in (*reads, *writes))
        return Done(step, reads, writes, tuple(lanes.value(one, {}) for one in step.numbers), parts=parts)

    def load(self, step: Load, lanes: Lanes, use: Number) -> Done:
        access = self.access(step.region, lanes, use)
        pieces = (None,) * len(access.start)
        if not step.origin:
            return Done(step, (access,), pieces=pieces)
        begins = (lanes.value(one, {}) for one in step.region.start)
        offset = tuple(a - lanes.value(b, {}) for a, b in zip(begins, step.origin, strict=True))
        return Done(step, (access,), offset=offset, pieces=pieces, parts=(split(access, self.schedule.num_ranks),))

    def written(self, step: Store | Move, lanes: Lanes, use: Mapping[str, Number], told: Number) -> Done:
        match step:
            case Store(region=region, skip=skip):
                access = self.access(region, lanes, told, writes=True)
                if skip != 0:  # the tile begins so many rows earlier
                    *lead, row, col = access.start
                    access = replace(access, start=(*lead, row - lanes.value(skip, {}), col))
                return Done(step, writes=(access,))
            case Move(source, target):
                reads = tuple(self.access(one, lanes, use.get(one.buffer, 0)) for one in source)
                writes = tuple(self.access(one, lanes, told, writes=True) for one in target)
                pairs = [_alike(*pair) for pair in zip(reads, writes, strict=True)]
                return Done(step, tuple(a for a, _ in pairs), tuple(b for _, b in pairs))

    def access(self, region: Region, lanes: Lanes, use: Number = 0, *, writes: bool = False) -> Access:
        start = tuple(lanes.value(one, {}) for one in region.start)
        extent = tuple(lanes.value(one, {}) for one in region.extent)
        name = region.buffer
        anew: Number = self.made_anew.get(name, 0) + (writes and (name in self.anew or name in self.in_turn))
        if name in self.in_turn:
            anew = Index("tile") + anew
        version = lanes.value(use if name in self.reused else anew, {})
        access = self._box(region.buffer, lanes.value(region.at, {}), start, extent, version)
        if name in self.anew:
            ranks, tiles = (lanes.value(Index(one), {}) for one in ("rank", "tile"))
            place = f"launch {self.launch}, {name}"
            self.touches.append(Touch(self.launch, self.phases, self.step, access, ranks, tiles, writes, place))
        return access

    def _box(self, buffer: str, at: Ints, start: tuple[Ints, ...], extent: tuple[Ints, ...], version: Ints) -> Access:
        shape = self.shapes[buffer]
        low = tuple(np.clip(one, 0, most) for one, most in zip(start, shape, strict=True))
        high = tuple(np.clip(np.maximum(a + b, a), 0, most) for a, b, most in zip(start, extent, shape, strict=True))
        return self.ranks.image(Access(buffer, at, start, low, high, version), shape)


def _in_turn(launch: Launch) -> int:
    """How many positions of a launch come one after the other: of one phase of a host, if there are several; else 0."""
    match launch.roles:
        case (Role(engine=Host(), phases=(Phase(count=int(count)),)),) if count > 1:
            return count
    return 0


def _multiplies(loop: For) -> bool:
    """Whether the loop does nothing but load and multiply, in branches that all rounds take. What is done to each piece of a
    product would be done once, were all rounds one."""
    names = {loop.variable, *(name for name, _ in loop.let)}
    found = [step for step in steps_in(loop.body) if acts(step)]
    computed = {one.op for one in found if isinstance(one, Compute)}
    alike = all(isinstance(one, Load | Compute) or (isinstance(one, If) and not names & _names(one)) for one in found)
    return alike and "dot" in computed and computed <= {"dot", "trans"}


def _names(step: If) -> frozenset[str]:
    return names_in(step.left) | names_in(step.right)


def _alike(source: Access, target: Access) -> tuple[Access, Access]:
    """Both ends of a copy, part by part where one has rows and the other one parts of rows."""
    for one, other in ((source, target), (target, source)):
        if len(one.start) == len(other.start) + 1 and len(one) and (one.sizes[0] == one.sizes[0][0]).all():
            parts = split(source, int(one.sizes[0][0])), split(target, int(one.sizes[0][0]))
            return (parts[0] or source), (parts[1] or target)
    return source, target


def _of_call(until: Number) -> bool:
    """Whether what is awaited grows with the number of the call alone."""
    if isinstance(until, int) or names_in(until) <= {"call"}:
        return True
    return until.op == "*" and any(isinstance(one, Index) and names_in(one) == {"call"} for one in until.args)


def _used(let: Let, body: tuple[Step, ...]) -> Let:
    needed = _needed(body, let)
    return tuple(one for one in let if one[0] in needed)


def _needed(body: tuple[Step, ...], let: Let) -> frozenset[str]:
    """Names on which the steps depend, through `let` too."""
    found = frozenset[str]().union(*(names_in(index) for step in steps_in(body) for index in indices(step)))
    for step in steps_in(body):
        for name, index in step.let if isinstance(step, For) else ():
            found |= names_in(index) | {name}
        if isinstance(step, Compute):
            found = found.union(*(names_in(one) for one in step.shape))
    for name, index in reversed(let):
        if name in found:
            found |= names_in(index)
    return found


def where(block: Block, step: Step, lane: int) -> tuple[str, str]:
    """(place, example) of a finding."""
    return f"{block.place}, {in_a_line(step)}", f"rank {block.ranks[lane]}, tile {block.tiles[lane]}"
