"""Folds of the user's: which elements a state has seen.

The state of elements a .. b - 1, merged with that of b .. c - 1, is the state of a .. c - 1; that of nothing changes nothing. A
result is made of a state that has seen all elements. Elements count on through the ranks: rank r has r * n .. (r + 1) * n - 1.
So merges happen in the order of elements, and this needs no law of the user's but that `merge` is associative.

In memory a state of a rank is an element [first, end, row] of a value that is as large as there are such states.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilelink.ir.ops.states import Merged
from tilelink.ir.ops.user_fold import UserFold
from tilelink.ir.placement import Partial
from tilelink.ir.spec import BoundNode, BoundSpec, BoundValue
from tilelink.proof.contents.orders import PartOfStates, ResultOf, StatesOf
from tilelink.proof.contents.tile import Full, Held, Nothing, StateOf, Term, Tile
from tilelink.proof.contents.trace import Done
from tilelink.proof.contents.user_ops import column, made_of_user
from tilelink.proof.contents.values import Mismatch, Values
from tilelink.schedule.index import Ints
from tilelink.schedule.steps import Compute

AS_ROW = "as_row"


def with_states_of_folds(spec: BoundSpec) -> BoundSpec:
    """`spec` with the states of folds as values, and results that are made of these."""
    nodes, states = list[BoundNode](), dict[str, tuple[str, Merged]]()
    for node in spec.nodes:
        how = node.operation
        if isinstance(how, Merged) and isinstance(how.how, UserFold):
            fold, name = replace(how.how, number=0), f"states of {node.output.name}"
            shape = how.tokens + 1, how.tokens + 1, how.shape[1]
            plain = replace(how, how=fold, dim=None, others=())
            value = BoundValue(name, shape, shape, Partial(), "fp32")
            nodes.append(BoundNode(StatesOf(fold, plain), node.inputs, value, node.line))  # type: ignore[arg-type]
            for part, _ in fold.parts:
                one = BoundNode(PartOfStates(part), (name,), replace(value, name=part_of(name, part)), node.line)  # type: ignore[arg-type]
                nodes.append(one)
            states[node.output.name] = name, how
            node = replace(node, operation=ResultOf(how.how.number, how.dim), inputs=(name,))  # type: ignore[arg-type]
        elif isinstance(how, UserFold):
            name, of = states[node.inputs[0]]
            node = replace(node, operation=ResultOf(how.number, of.dim), inputs=(name,))  # type: ignore[arg-type]
        nodes.append(node)
    return replace(spec, nodes=tuple(nodes)) if states else spec


def part_of(states: str, part: str) -> str:
    return f"{part} of {states}"


class Folds:
    """What functions of folds make of tiles."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.nodes = {node.output.name: (node, one) for node, one in _states_in(values)}
        every = [one.fold for _, one in self.nodes.values()]
        self.blocks = {fold.block.name for fold in every}
        self.merges = {fold.merge for fold in every}
        self.finishes = {one.function for fold in every for one in fold.finishes}

    def makes(self, op: str, operand: Held | None) -> bool:
        """Whether `op` is of a fold; `operand`: its first one."""
        return op in self.blocks or op in self.merges or op in self.finishes or isinstance(operand, StateOf)

    def made(self, done: Done, step: Compute, held: Mapping[str, Held], ranks: Ints) -> tuple[Held, ...]:
        """Of each result. Raises Mismatch."""
        if step.op in self.blocks:
            found = self._block(step, done, held, ranks)
            if len(found) != len(step.results):
                raise Mismatch(f"a state has {len(found)} parts")
            return found
        named = [one for one in done.operands if isinstance(one, str)]
        tiles = [held.get(one, Nothing(f"{one} is no tile")) for one in named]
        for one in tiles:
            if isinstance(one, Nothing):
                return (one,) * len(step.results)
        states = [self._loaded(one) for one in tiles]
        if step.op in self.merges:
            return self._merged(step.op, states)
        if step.op == AS_ROW:
            return (states[0],)
        return (self._finished(step, done, states, ranks),)

    def _block(self, step: Compute, done: Done, held: Mapping[str, Held], ranks: Ints) -> tuple[Held, ...]:
        """The state of a block; where several folds have the function, of the one whose parts the results are called like. Raises
        Mismatch."""
        reasons = list[Mismatch]()

        def other(named: tuple[str, tuple[BoundNode, StatesOf]]) -> bool:
            parts = [part for part, _ in named[1][1].fold.parts]
            return not all(one.endswith(part) for one, part in zip(step.results, parts, strict=False))

        for name, (node, of) in sorted(self.nodes.items(), key=other):
            if of.fold.block.name == step.op:
                try:
                    return self._of_block(name, node, of, done, held, ranks)
                except Mismatch as mismatch:
                    reasons.append(mismatch)
        raise reasons[0]

    def _of_block(
        self, name: str, node: BoundNode, of: StatesOf, done: Done, held: Mapping[str, Held], ranks: Ints
    ) -> tuple[Held, ...]:
        """Of the own elements that the function is given, if it is told how many come before them."""
        fold, block = of.fold, of.fold.block
        operands = _of_all_rounds(fold, done, held) if done.rounds is not None else done.operands
        tile = made_of_user(self.values, operands, held, ranks, node, block)
        given = dict(zip(block.parameters, done.operands, strict=True))
        before, every = self._counted(of, ranks)
        for one, wanted in ((f"first_{fold.over}", before), (f"all_{fold.over}", every)):
            if one in given and (wrong := tile.some & (column(given[one], ranks) != wanted)).any():
                raise Mismatch(f"{one} is not how many elements there are", wrong)
        first = before + tile.start[1]
        end = first + np.maximum(tile.extent[1], 0)
        rows = replace(tile, axes=(0,), start=tile.start[:1], extent=tile.extent[:1], skip=tile.skip[:1])
        out = self.values.first[name]
        return tuple(StateOf(part, out, rows, first, end) for part, _ in fold.parts)

    def _counted(self, of: StatesOf, ranks: Ints) -> tuple[Ints, int]:
        """Elements on lower ranks, and on all."""
        own = of.how.tokens
        return (ranks * 0, own) if of.how.alone else (ranks * own, own * self.values.ranks)

    def _loaded(self, one: Held) -> Held:
        """A tile from memory as the state that it is."""
        if not isinstance(one, Tile):
            return one
        made = self.values.makers.get(one.term.name)
        if made is None or not isinstance(made.operation, PartOfStates):
            raise Mismatch(f"{one.term} is no state")
        out = made.inputs[0]
        (start, end, row), before = one.start, self._counted(self.nodes[out][1], one.owner)[0]
        rows = replace(one, axes=(0,), start=(row,), extent=one.extent[2:], skip=one.skip[2:], shape=None)
        return StateOf(made.operation.part, self.values.first[out], rows, before + start, before + end)

    def stored(self, state: StateOf, ranks: Ints) -> Tile:
        """A state of one rank as a tile of what lies in memory. Raises Mismatch."""
        of = self.nodes[state.out][1]
        before, _ = self._counted(of, ranks)
        first, end, rows = state.first - before, state.end - before, state.rows
        if (wrong := rows.some & ((first < 0) | (end > of.how.tokens))).any():
            raise Mismatch("it is a state of elements of several ranks", wrong)
        one = first * 0 + 1
        start, extent, skip = (first, end, rows.start[0]), (one, one, rows.extent[0]), (one * 0, one * 0, rows.skip[0])
        term = Term(self.values.first[part_of(state.out, state.part)])
        return Tile(term, (2,), ranks, start, extent, skip, rows.known)

    def _merged(self, op: str, states: Sequence[Held]) -> tuple[Held, ...]:
        """Of two states of the fold that one of them is of. Raises Mismatch."""
        of = next((one.out for one in states if isinstance(one, StateOf)), None)
        if of is None:
            raise Mismatch("it merges no states")
        fold = self.nodes[of][1].fold
        if fold.merge != op:
            raise Mismatch(f"states of {fold.word} are merged by {fold.merge}")
        count = len(fold.parts)
        if len(states) != 2 * count:
            raise Mismatch(f"{fold.merge} merges two states of {count} parts")
        one, other = self._whole(fold, states[:count]), self._whole(fold, states[count:])
        if one is None or other is None:
            found = one or other
            assert found is not None, "one of them is of a fold"
            return tuple(replace(found, part=part) for part, _ in fold.parts)
        if one.out != other.out:
            raise Mismatch("it merges states of different folds")
        some = one.rows.some & other.rows.some
        if (wrong := some & (one.rows.start[0] != other.rows.start[0])).any():
            raise Mismatch("it merges states of different rows", wrong)
        empty, more_empty = one.first == one.end, other.first == other.end
        if (wrong := some & ~empty & ~more_empty & (one.end != other.first)).any():
            raise Mismatch("the second state has not seen what comes behind that of the first one", wrong)
        first = np.where(empty, other.first, one.first)
        end = np.where(more_empty, np.where(empty, other.end, one.end), other.end)
        rows = one.rows.within(other.rows)
        return tuple(StateOf(part, one.out, rows, first, end) for part, _ in fold.parts)

    def _whole(self, fold: UserFold, parts: Sequence[Held]) -> StateOf | None:
        """A state, if all of its parts are there in their order; None for that of nothing."""
        if all(isinstance(one, Full) for one in parts):
            wanted = [number for _, number in fold.parts]
            if [one.number for one in parts if isinstance(one, Full)] != wanted:
                raise Mismatch(f"a state that has seen nothing is {wanted}")
            return None
        first = parts[0]
        for (part, _), one in zip(fold.parts, parts, strict=True):
            if not isinstance(one, StateOf) or not isinstance(first, StateOf):
                raise Mismatch(f"it has no {part} of a state")
            if one.part != part:
                raise Mismatch(f"it has {one.part} where {part} should be")
            if one.out != first.out or not one.like(first):
                raise Mismatch("parts of the state are of different elements")
        assert isinstance(first, StateOf)
        return first

    def _finished(self, step: Compute, done: Done, states: Sequence[Held], ranks: Ints) -> Tile:
        """The result of a state that has seen everything. Raises Mismatch."""
        state = states[0]
        if not isinstance(state, StateOf):
            raise Mismatch("it is not made of a state")
        of = self.nodes[state.out][1]
        _, every = self._counted(of, ranks)
        rows, finishes = state.rows, of.fold.finishes
        if (wrong := rows.some & ((state.first != 0) | (state.end != every))).any():
            raise Mismatch("it has not seen all elements", wrong)
        numbers = [number for number, one in enumerate(finishes) if (one.function or "copy") == step.op]
        results = [
            node
            for node in self.values.spec.nodes
            if isinstance(node.operation, ResultOf)
            and node.operation.number in numbers
            and self.values.first[node.inputs[0]] == state.out
        ]
        if not results:
            raise Mismatch(f"{step.op} makes nothing that is needed of {of.fold.word}")
        node = next((one for one in results if one.output.name == step.results[0]), results[0])
        assert isinstance(node.operation, ResultOf)
        left = list(states)
        for name, operand in zip(finishes[node.operation.number].parameters, done.operands, strict=True):
            if name == f"all_{of.fold.over}":
                if (column(operand, ranks) != every).any():
                    raise Mismatch(f"{name} is not how many elements there are")
                continue
            one = left.pop(0) if left else None
            if not isinstance(one, StateOf) or one.part != name or one.out != state.out or not one.like(state):
                raise Mismatch(f"it has no {name} of that state")
        start = rows.start[0]
        if node.operation.dim is not None:
            own = of.how.shape[1] // self.values.ranks
            start = start - ranks * own
            if (wrong := rows.some & ((start < 0) | (start + rows.extent[0] > own))).any():
                raise Mismatch(f"it is {node.output.name} of another rank", wrong)
        term = self.values.term(node)
        return replace(rows, term=term, owner=ranks, start=(start,), offset=None, shape=None)


def _of_all_rounds(fold: UserFold, done: Done, held: Mapping[str, Held]) -> tuple[str | float | Ints, ...]:
    """Operands of a function as if it made one block of all blocks of a loop: that follow each other along the axis, in what it
    is given as in what it is told. Raises Mismatch."""
    block, over, operands = fold.block, fold.over, list(done.operands)
    place = {name: number for number, name in enumerate(block.parameters)}
    width = f"TILE_{over.upper()}"
    if over not in place or width not in place:
        raise Mismatch(f"its rounds take one block along {over}")
    assert done.rounds is not None, "a loop goes over blocks"
    going = np.arange(int(done.rounds.max()))[:, None] < done.rounds
    behind = np.arange(len(going))[:, None] * column(operands[place[width]], done.rounds)
    if set(done.later) != {place[over]}:
        raise Mismatch(f"its rounds differ in more than the first element along {over}")
    if (wrong := (going & (done.later[place[over]] != behind)).any(axis=0)).any():
        raise Mismatch(f"blocks do not follow each other along {over}", wrong)
    for tensor, index in block.reads:
        tile = held.get(str(operands[place[tensor]]))
        pieces = tile.pieces if isinstance(tile, Tile) else ()
        for one, axis in zip(pieces or (None,) * len(index), index, strict=True):
            if (one is not None) != (axis == over):
                raise Mismatch(f"its rounds go over another axis of {tensor} than {over}")
            if one is not None and (wrong := (going & (one.start != behind)).any(axis=0)).any():
                raise Mismatch(f"blocks of {tensor} do not follow each other along {over}", wrong)
    operands[place[width]] = column(operands[place[width]], done.rounds) * done.rounds
    return tuple(operands)


def _states_in(values: Values) -> Iterator[tuple[BoundNode, StatesOf]]:
    for node in values.spec.nodes:
        if isinstance(node.operation, StatesOf):
            yield node, node.operation
