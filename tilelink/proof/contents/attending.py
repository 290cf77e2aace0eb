"""Attention by calls of libraries: over all keys and values, or part by part, each merged into the state of those before.

The merge of states, in any order, is the state of all that they have seen. So a state is the set of parts that it has: bit p of
its number is part p. What has all parts that its queries see is the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

import numpy as np

from tilelink.ir.placement import Partial
from tilelink.ir.spec import Attend, BoundNode, BoundSpec, BoundValue
from tilelink.proof.contents.memory import Access
from tilelink.proof.contents.orders import StatesOfParts
from tilelink.proof.contents.tile import Flags, Term, Tile
from tilelink.proof.contents.trace import Done
from tilelink.proof.contents.values import Mismatch, Part, Values, likeliest
from tilelink.schedule import steps
from tilelink.schedule.index import Ints

Write = Callable[[Access, Tile], None]

_MOST_PARTS = 62  # bits of a number


def with_states_of_parts(spec: BoundSpec) -> BoundSpec:
    """`spec` with the states that attention has on its way, by sets of parts of its keys."""
    states = tuple(one for node in spec.nodes for one in _states(node))
    return replace(spec, nodes=(*spec.nodes, *states)) if states else spec


def _states(node: BoundNode) -> Iterator[BoundNode]:
    how = node.operation
    if not isinstance(how, Attend) or not 1 < how.parts <= _MOST_PARTS:
        return
    rows, cols = node.output.local
    for logs, width, dtype in ((False, cols, node.output.dtype), (True, how.heads, "fp32")):
        made = StatesOfParts(node.output.name, logs)
        shape = (1 << how.parts, rows, width)
        yield BoundNode(made, node.inputs, BoundValue(made.word, shape, shape, Partial(), dtype), node.line)  # type: ignore[arg-type]


class Pending(Exception):
    """What the call takes has not been found yet."""


class Read(Protocol):
    def __call__(self, access: Access, *, some: bool = False) -> Tile: ...


class Attending:
    """One call. `tile`: what lies in boxes."""

    def __init__(self, values: Values, ranks: Ints, step: Done, tile: Read, write: Write) -> None:
        self.values, self.ranks, self.step, self.tile, self.write = values, ranks, step, tile, write
        assert isinstance(step.step, steps.Call), "it is one"
        self.call = step.step
        self.masked = self.call.function in steps.CAUSAL
        self.none: Ints = np.zeros(len(ranks), np.int64)

    def whole(self) -> None:
        """All of it."""
        self._first_of(self._whole)

    def of_part(self) -> None:
        """A state of one part more."""
        self._first_of(self._of_part)

    def _first_of(self, made: Callable[[BoundNode, Attend], None]) -> None:
        reasons = list[Mismatch]()
        for node in self.values.spec.nodes:
            if isinstance(node.operation, Attend):
                try:
                    made(node, node.operation)
                    return
                except Mismatch as mismatch:
                    reasons.append(mismatch)
        raise likeliest(reasons, "the spec has no attention")

    def _whole(self, node: BoundNode, how: Attend) -> None:
        name = node.output.name
        self._plain(name, how)
        if how.sequences > 1 and how.parts > 1:
            raise Mismatch(f"keys of a sequence of {name} do not lie behind each other")
        for access, value in zip(self.step.reads, node.inputs, strict=True):
            self._all_of(self.values.part(self.tile(access), value), value)
        rows = self.values.shapes[node.inputs[0]][0]
        self._told(name, how, how.causal, self.ranks * (rows // how.sequences if how.apart else 0))
        self._put(node, self.step.writes[0], self.values.term(node), (self.none, self.none), node.output.local)

    def _of_part(self, node: BoundNode, how: Attend) -> None:
        name, (queries, *given) = node.output.name, node.inputs
        self._plain(name, how)
        if not 1 < how.parts <= _MOST_PARTS:
            raise Mismatch(f"keys of {name} do not come in 2 to {_MOST_PARTS} parts")
        access, keys, values, *before = self.step.reads
        self._all_of(self.values.part(self.tile(access), queries), queries)
        number, beside = (
            self._number(self.tile(one), value, how) for one, value in zip((keys, values), given, strict=True)
        )
        if (wrong := number != beside).any():
            raise Mismatch(f"{name}: values of another part than the keys", wrong)
        rows = self.values.shapes[queries][0]
        self._told(name, how, self.masked, self.none)
        if how.causal:
            alike = how.apart and rows * how.parts == self.values.shapes[given[0]][0]
            if not alike or (wrong := number != self.ranks if self.masked else number >= self.ranks).any():
                raise Mismatch(f"{name}: queries see other keys of this part", wrong if alike else None)
        elif self.masked:
            raise Mismatch(f"{name} has no mask")
        seen, known = self._seen(node, before)
        taken = np.left_shift(np.ones_like(number), number)
        if (wrong := known & ((seen & taken) != 0)).any():
            raise Mismatch(f"{name}: some keys are taken twice", wrong)
        every = np.left_shift(self.none + 1, self.ranks + 1 if how.causal else how.parts) - 1
        made = seen | taken
        done = known & (made == every)
        out, logs = self.step.writes
        self._put(node, out, self.values.term(node), (self.none, self.none), node.output.local, done)
        for access, of_logs in ((out, False), (logs, True)):
            state = StatesOfParts(name, of_logs).word
            self._put(
                node, access, Term(state), (made, self.none, self.none), self.values.shapes[state][1:], known & ~done
            )
        if not known.all():  # those whose turn comes after one of this call
            raise Pending

    def _seen(self, node: BoundNode, before: list[Access]) -> tuple[Ints, Flags]:
        """The parts in the state that the call goes on with, none if it begins one; and where that is known."""
        known = np.ones(len(self.ranks), bool)
        if self.call.function != steps.MERGED_ATTENTION:
            return self.none, known
        found = list[Ints]()
        for access, logs in zip(before, (False, True), strict=True):
            tile, state = self.tile(access, some=True), StatesOfParts(node.output.name, logs).word
            if tile.term != Term(state):
                raise Mismatch(f"it is {tile.term}, not {state}")
            wrong = tile.owner != self.ranks
            for dim, size in enumerate(self.values.shapes[state][1:], start=1):
                wrong |= (tile.start[dim] != 0) | (tile.extent[dim] != size)
            if (wrong & tile.known).any():
                raise Mismatch(f"not all of {state} of this rank", wrong & tile.known)
            found.append(tile.start[0])
            known &= tile.known
        means, weights = found
        if (wrong := known & (means != weights)).any():
            raise Mismatch(f"means and logarithms of {node.output.name} are of different parts", wrong)
        return means, known

    def _number(self, tile: Tile, value: str, how: Attend) -> Ints:
        """Which part of all keys, or of all values, the tile is."""
        part, (size, cols) = self.values.part(tile, value), self.values.shapes[value]
        rows = size // how.parts
        wrong = ~part.on(self.ranks) | (part.start[0] % rows != 0) | (part.extent[0] != rows)
        wrong |= (part.start[1] != 0) | (part.extent[1] != cols)
        if wrong.any():
            raise Mismatch(f"it is no whole part of {value}", wrong)
        found: Ints = part.start[0] // rows
        return found

    def _plain(self, name: str, how: Attend) -> None:
        if how.window or how.soft_cap or how.zigzag or how.logs:
            raise Mismatch(f"{name} is attention that the library has no call for")

    def _told(self, name: str, how: Attend, masked: bool, first: Ints) -> None:
        """The numbers of the call are those of the operation, with a mask from key `first` on."""
        wanted = (how.sequences, how.width, *((first,) if masked else ()))
        told = [np.asarray(one) for one in self.step.operands]
        if self.masked != masked or self.call.scale != how.scale or len(told) != len(wanted):
            raise Mismatch(f"{name} has {'a' if how.causal else 'no'} mask, and scores are scaled by {how.scale}")
        for one, other in zip(told, wanted, strict=True):
            if (wrong := one != other).any():
                fact = f"{name} has {how.sequences} sequences, heads of {how.width}, and its queries begin elsewhere"
                raise Mismatch(fact, wrong)

    def _all_of(self, part: Part, value: str) -> None:
        wrong = ~part.on(self.ranks)
        for dim in (0, 1):
            wrong |= (part.start[dim] != 0) | (part.extent[dim] != self.values.shapes[value][dim])
        if wrong.any():
            raise Mismatch(f"it is not all of {value} of this rank", wrong)

    def _put(
        self,
        node: BoundNode,
        out: Access,
        term: Term,
        start: tuple[Ints, ...],
        shape: tuple[int, ...],
        where: Flags | None = None,
    ) -> None:
        """All of what is made."""
        if any((size != extent).any() for size, extent in zip(out.sizes[-2:], shape, strict=True)):
            raise Mismatch(f"{node.output.name} is not of the size of what is made")
        extent = (*(one * 0 + 1 for one in start[:-2]), *(self.none + one for one in shape))
        known = np.ones(len(self.ranks), bool) if where is None else where
        axes = tuple(range(len(start)))[-2:]
        self.write(out, Tile(term, axes, self.ranks, start, extent, tuple(one * 0 for one in start), known))
