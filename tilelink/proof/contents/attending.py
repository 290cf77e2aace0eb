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
from tilelink.ir.spec import Attend, BoundNode, BoundSpec, BoundValue, LogWeights
from tilelink.proof.contents.memory import Access
from tilelink.proof.contents.orders import StatesOfParts
from tilelink.proof.contents.tile import Flags, Term, Tile
from tilelink.proof.contents.trace import Done
from tilelink.proof.contents.values import Mismatch, Part, Values, first_made
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
        self.masked = self.call.function == steps.CAUSAL_ATTENTION
        self.none: Ints = np.zeros(len(ranks), np.int64)

    def made(self) -> None:
        """Writes what it makes. Raises Mismatch, and Pending if the call is done again when more is known."""
        made = [(node, op) for node in self.values.spec.nodes if isinstance(op := node.operation, Attend)]
        first_made(self._made, made, "the spec has no attention")

    def _made(self, node: BoundNode, how: Attend) -> None:
        name, (queries, *given) = node.output.name, node.inputs
        if how.window or how.soft_cap or how.zigzag:
            raise Mismatch(f"{name} is attention that the library has no call for")
        access, keys, values, *before = self.step.reads
        self._all_of(self.values.part(self.tile(access), queries), queries)
        found = [self._part(self.tile(one), value, how) for one, value in zip((keys, values), given, strict=True)]
        (number, whole), (beside, _) = found
        if whole != found[1][1] or (number != beside).any():
            raise Mismatch(f"{name}: values of another part than the keys", number != beside)
        rows = self.values.shapes[queries][0]
        apart = how.apart and rows * how.parts == self.values.shapes[given[0]][0]
        many = self.ranks + 1 if how.causal and apart else self.none + how.parts
        every = np.left_shift(self.none + 1, np.minimum(many, _MOST_PARTS)) - 1
        if whole:
            taken = every
            self._told(name, how, how.causal, self.ranks * (rows // how.sequences if how.apart else 0))
        else:
            taken = np.left_shift(self.none + 1, number)
            self._told(name, how, self.masked, self.none)
            self._check_mask(name, how, number, apart)
        seen, known = self._seen(node, before)
        if (wrong := known & ((seen & taken) != 0)).any():
            raise Mismatch(f"{name}: some keys are taken twice", wrong)
        self._write(node, seen | taken, every, known)
        if not known.all():  # those whose turn comes after one of this call
            raise Pending

    def _check_mask(self, name: str, how: Attend, number: Ints, apart: bool) -> None:
        """Of a part."""
        if not how.causal:
            return
        wrong = number != self.ranks if self.masked else number >= self.ranks
        if not apart or wrong.any():
            raise Mismatch(f"{name}: queries see other keys of this part", wrong if apart else None)

    def _write(self, node: BoundNode, made: Ints, every: Ints, known: Flags) -> None:
        """The result where all keys have been seen, with its logarithms if anybody needs them; else a state."""
        (out, *logs), name, both = self.step.writes, node.output.name, (self.none, self.none)
        done = known & (made == every)
        if not logs and (wrong := known & ~done).any():
            raise Mismatch(f"{name}: nobody can go on with a part of the keys without its logarithms", wrong)
        self._put(node, out, self.values.term(node), both, node.output.local, done)
        for access in logs:
            for one in self._logs_of(name):
                self._put(node, access, self.values.term(one), both, one.output.local, done)
        for access, of_logs in zip(self.step.writes, (False, True), strict=False):
            if (some := known & ~done).any():
                state = StatesOfParts(name, of_logs).word
                self._put(node, access, Term(state), (made, *both), self.values.shapes[state][1:], some)

    def _logs_of(self, means: str) -> Iterator[BoundNode]:
        """Natural logarithms that belong to means."""
        first = self.values.first
        for node in self.values.spec.nodes:
            if (
                isinstance(node.operation, LogWeights)
                and not node.operation.base2
                and first[node.inputs[0]] == first[means]
            ):
                yield node
                return

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

    def _part(self, tile: Tile, value: str, how: Attend) -> tuple[Ints, bool]:
        """Which part of all keys, or of all values, the tile is, and whether it is all of them."""
        part, (size, cols) = self.values.part(tile, value), self.values.shapes[value]
        rows = size // how.parts
        whole = bool((part.extent[0] == size).all())
        if whole and how.sequences > 1 and how.parts > 1:
            raise Mismatch(f"tokens of a sequence of {value} do not lie behind each other")
        wrong = ~part.on(self.ranks) | (part.start[1] != 0) | (part.extent[1] != cols)
        wrong |= part.start[0] != 0 if whole else (part.start[0] % rows != 0) | (part.extent[0] != rows)
        if wrong.any() or (not whole and how.parts > _MOST_PARTS):
            raise Mismatch(f"it is no whole part of {value}", wrong)
        found: Ints = part.start[0] // rows
        return found, whole

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
