"""What a walk through a kernel carries along, and what it reports at each call."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from enum import Enum

from tilelink.dialect_api.source import Definition
from tilelink.dialect_api.value import UNKNOWN, Spot, Value, join
from tilelink.stubs.model import Function


class Fact(Enum):
    """What the places of some calls are remembered for."""

    STORES = "of the whole program, since its last barrier"
    PEER_STORES = "into peers, since the last signal"
    WAITS = "in this suite, since the last barrier"
    LONE_WAITS = "of some threads only, since the last barrier"


Key = Fact | str  # a text is an origin: the waits in this suite whose token it was given
Seen = dict[Key, frozenset[Spot]]


@dataclass(slots=True)
class State:
    """One path, or several that met. Sets are unions: what may have happened on some path."""

    names: dict[str, Value] = field(default_factory=dict)
    seen: Seen = field(default_factory=dict)

    def copy(self) -> State:
        return State(dict(self.names), dict(self.seen))

    def add(self, key: Key, spots: frozenset[Spot]) -> None:
        self.seen[key] = self.seen.get(key, frozenset()) | spots

    def forget(self, *facts: Fact, of_suite: bool = False) -> Seen:
        """Drop facts, with `of_suite` all that holds in one suite only; returns what was dropped."""
        gone = {
            key: spots
            for key, spots in self.seen.items()
            if key in facts or (of_suite and (isinstance(key, str) or key is Fact.WAITS))
        }
        self.seen = {key: spots for key, spots in self.seen.items() if key not in gone}
        return gone


def meet(states: list[State]) -> State | None:
    """Where several paths meet; None if no path arrives."""
    if not states:
        return None
    total = states[0].copy()
    for other in states[1:]:
        for name in {**total.names, **other.names}:
            total.names[name] = join(total.names.get(name, UNKNOWN), other.names.get(name, UNKNOWN))
        for key, spots in other.seen.items():
            total.add(key, spots)
    return total


@dataclass(frozen=True, slots=True)
class Event:
    """One call, with its arguments as values and what had happened before it."""

    entry: Definition | None  # None on the host
    within: Definition | None  # the function that the call stands in
    node: ast.Call
    path: str  # full import path, or `.store` for a method
    function: Function | None
    arguments: tuple[tuple[str, ast.expr, Value], ...]  # by parameter name; `0`, `1`, ... where names are not known
    receiver: Value = UNKNOWN  # of a method
    loops: tuple[ast.For | ast.While, ...] = ()
    before: Seen = field(default_factory=dict)

    def seen(self, key: Key) -> frozenset[Spot]:
        return self.before.get(key, frozenset())

    def value(self, name: str) -> Value:
        return next((value for one, _, value in self.arguments if one == name), UNKNOWN)

    def argument(self, name: str) -> ast.expr | None:
        return next((node for one, node, _ in self.arguments if one == name), None)

    def given_or_default(self, name: str) -> Value:
        """The argument, or the default of the parameter."""
        for parameter in self.function.signature.parameters if self.function and not self.argument(name) else ():
            if parameter.name == name and parameter.default:
                return Value(constants=frozenset({ast.literal_eval(parameter.default)}))
        return self.value(name)
