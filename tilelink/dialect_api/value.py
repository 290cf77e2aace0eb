"""What the checker knows of a value: where it comes from, what it points to, which tokens it has taken."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple


class Spot(NamedTuple):
    """The place of a call."""

    line: int
    column: int


def spot(node: ast.expr | ast.stmt) -> Spot:
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
    TEAM = "a team"


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
    items: tuple[Value, ...] = field(default=())  # of a tuple

    def has(self, trait: Trait) -> bool:
        return trait in self.traits

    def with_traits(self, *traits: Trait) -> Value:
        return replace(self, traits=self.traits.union(traits))

    def without(self, *traits: Trait) -> Value:
        return replace(self, traits=self.traits.difference(traits))

    @property
    def constant(self) -> Literal | None:
        """The one value that it has on all paths, if it is known."""
        return next(iter(self.constants)) if len(self.constants) == 1 else None


UNKNOWN = Value()


def join(left: Value, right: Value) -> Value:
    """What is known after either of two paths."""
    if left == right:
        return left
    known = bool(left.constants and right.constants)
    same = len(left.items) == len(right.items)
    return Value(
        left.elements | right.elements,
        left.origins | right.origins,
        left.traits | right.traits,
        left.tokens | right.tokens,
        left.taken | right.taken,
        left.constants | right.constants if known else frozenset(),
        tuple(join(a, b) for a, b in zip(left.items, right.items, strict=True)) if same else (),
    )


def arithmetic(operator: ast.operator, left: Value, right: Value) -> Value:
    """`left operator right`: pointers keep their origin under + and -, other operations make numbers."""
    traits = (left.traits | right.traits) & {Trait.BLOCK, Trait.THREAD}
    if left.traits & _RANKS or right.traits & _RANKS:
        traits |= {Trait.OTHER_RANK}
    constants = _fold(operator, left.constant, right.constant)
    taken = left.taken | right.taken
    if isinstance(operator, ast.Add | ast.Sub):
        base = left if left.origins or left.has(Trait.PEER) else right
        kept = base.traits & {Trait.PEER, Trait.SYMMETRIC}
        return Value(base.elements, base.origins, traits | kept | {Trait.SUM}, frozenset(), taken, constants)
    return Value(traits=traits, taken=taken, constants=constants)


_RANKS = frozenset({Trait.OWN_RANK, Trait.OTHER_RANK})


def _fold(operator: ast.operator, left: Literal | None, right: Literal | None) -> frozenset[Literal]:
    if not isinstance(left, int) or not isinstance(right, int):
        return frozenset()
    match operator:
        case ast.Add():
            return frozenset({left + right})
        case ast.Sub():
            return frozenset({left - right})
        case ast.Mult():
            return frozenset({left * right})
        case ast.FloorDiv() if right:
            return frozenset({left // right})
        case ast.Mod() if right:
            return frozenset({left % right})
        case _:
            return frozenset()
