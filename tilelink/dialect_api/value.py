"""What the checker knows of a value: where it comes from, what it points to, which tokens it has taken."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from functools import reduce
from typing import NamedTuple


class Spot(NamedTuple):
    """The place of a call."""

    line: int
    column: int


def spot(node: ast.expr) -> Spot:
    return Spot(node.lineno, node.col_offset + 1)


class Trait(Enum):
    BLOCK = "a tensor of values, not one"
    SUM = "something was added to it"
    PEER = "a pointer into a peer's memory"
    TOKEN = "a token"
    THREAD = "depends on the index of the thread"
    OWN_RANK = "the rank of this GPU"
    OTHER_RANK = "computed from the own rank"
    SYMMETRIC = "a symmetric tensor of the host"
    NUM_SMS = "the number of SMs, or fewer"


class Element(NamedTuple):
    """A dtype, and the line that says so."""

    dtype: str
    line: int


Literal = int | str | bool


@dataclass(frozen=True, slots=True)
class Value:
    """Sets are joined over paths: empty `elements`, `constants` and `origins` mean that nothing is known."""

    elements: frozenset[Element] = frozenset()
    origins: frozenset[str] = frozenset()  # kernel parameters or allocations that a pointer derives from
    traits: frozenset[Trait] = frozenset()
    tokens: frozenset[Spot] = frozenset()  # of a token: the waits that made it
    taken: frozenset[Spot] = frozenset()  # waits whose tokens it went through
    constants: frozenset[Literal] = frozenset()
    items: tuple[Value, ...] = ()  # of a tuple

    def has(self, trait: Trait) -> bool:
        return trait in self.traits

    def with_traits(self, *traits: Trait) -> Value:
        return replace(self, traits=self.traits.union(traits))

    @property
    def constant(self) -> Literal | None:
        """The one value that it has on all paths, if it is known."""
        return next(iter(self.constants)) if len(self.constants) == 1 else None


UNKNOWN = Value()


def of_traits(*traits: Trait) -> Value:
    """A value of which no more is known."""
    return Value(traits=frozenset(traits))


def join(left: Value, right: Value) -> Value:
    """What is known after either of two paths."""
    if left == right:
        return left
    same = len(left.items) == len(right.items)
    return Value(
        left.elements | right.elements,
        left.origins | right.origins,
        left.traits | right.traits,
        left.tokens | right.tokens,
        left.taken | right.taken,
        left.constants | right.constants if left.constants and right.constants else frozenset(),
        tuple(map(join, left.items, right.items)) if same else (),
    )


def join_all(values: Iterable[Value]) -> Value:
    """What is known after any of several paths; nothing if there are none."""
    found = list(values)
    return reduce(join, found) if found else UNKNOWN


def simple(node: ast.expr, of: Callable[[ast.expr], Value]) -> Value | None:
    """Constants, arithmetic and choices, whose parts `of` evaluates; None for other expressions."""
    match node:
        case ast.Constant(value=bool() | int() | str() as constant):
            return Value(constants=frozenset({constant}))
        case ast.BinOp():
            return arithmetic(node.op, of(node.left), of(node.right))
        case ast.IfExp():
            return join(of(node.body), of(node.orelse))
        case _:
            return None


_RANKS = frozenset({Trait.OWN_RANK, Trait.OTHER_RANK})
_FOLDS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def arithmetic(op: ast.operator, left: Value, right: Value) -> Value:
    """`left op right`: pointers keep their origin under + and -, other operations make numbers."""
    traits = (left.traits | right.traits) & {Trait.BLOCK, Trait.THREAD}
    if (left.traits | right.traits) & _RANKS:
        traits |= {Trait.OTHER_RANK}
    constants = _fold(op, left.constant, right.constant)
    taken = left.taken | right.taken
    if not isinstance(op, ast.Add | ast.Sub):
        return Value(traits=traits, taken=taken, constants=constants)
    base = left if left.origins or left.has(Trait.PEER) else right
    kept = base.traits & {Trait.PEER, Trait.SYMMETRIC} | {Trait.SUM}
    return Value(base.elements, base.origins, traits | kept, frozenset(), taken, constants)


def _fold(op: ast.operator, left: Literal | None, right: Literal | None) -> frozenset[Literal]:
    fold = _FOLDS.get(type(op))
    divides = isinstance(op, ast.FloorDiv | ast.Mod)
    if fold is None or not isinstance(left, int) or not isinstance(right, int) or (divides and not right):
        return frozenset()
    return frozenset({fold(left, right)})
