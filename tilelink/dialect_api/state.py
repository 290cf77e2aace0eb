"""What a walk through a kernel carries along, and what it reports at each call."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from tilelink.dialect_api.model import Function
from tilelink.dialect_api.source import Definition
from tilelink.dialect_api.value import UNKNOWN, Spot, Value, join


@dataclass(slots=True)
class State:
    """One path, or several that met. Sets are unions: what may have happened on some path."""

    names: dict[str, Value] = field(default_factory=dict)
    stores: frozenset[Spot] = frozenset()  # of the whole program, since its last barrier
    peer_stores: frozenset[Spot] = frozenset()  # into peers, since the last signal
    waits: frozenset[Spot] = frozenset()  # in this suite, since the last barrier
    lone_waits: frozenset[Spot] = frozenset()  # of some threads only, since the last barrier
    guarded: dict[str, frozenset[Spot]] = field(default_factory=dict)  # origin: waits whose token it was given

    def copy(self) -> State:
        return State(dict(self.names), self.stores, self.peer_stores, self.waits, self.lone_waits, dict(self.guarded))

    def joined(self, other: State) -> State:
        names = {
            name: join(self.names.get(name, UNKNOWN), other.names.get(name, UNKNOWN))
            for name in (*self.names, *(name for name in other.names if name not in self.names))
        }
        guarded = {
            name: self.guarded.get(name, frozenset()) | other.guarded.get(name, frozenset())
            for name in (*self.guarded, *other.guarded)
        }
        return State(
            names,
            self.stores | other.stores,
            self.peer_stores | other.peer_stores,
            self.waits | other.waits,
            self.lone_waits | other.lone_waits,
            guarded,
        )


def meet(states: list[State]) -> State | None:
    """Where several paths meet; None if no path arrives."""
    if not states:
        return None
    total = states[0]
    for state in states[1:]:
        total = total.joined(state)
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
    receiver: Value  # of a method
    loops: tuple[ast.For | ast.While, ...]
    stores: frozenset[Spot]
    peer_stores: frozenset[Spot]
    waits: frozenset[Spot]
    lone_waits: frozenset[Spot]
    guarded: tuple[tuple[str, frozenset[Spot]], ...]

    def value(self, name: str) -> Value:
        return next((value for one, _, value in self.arguments if one == name), UNKNOWN)

    def argument(self, name: str) -> ast.expr | None:
        return next((node for one, node, _ in self.arguments if one == name), None)

    def given_or_default(self, name: str) -> Value:
        """The argument, or the default of the parameter."""
        if self.argument(name) is not None or self.function is None:
            return self.value(name)
        signature = self.function.signature
        for parameter in getattr(signature, "parameters", ()):
            if parameter.name == name and parameter.default:
                try:
                    return Value(constants=frozenset({ast.literal_eval(parameter.default)}))
                except ValueError:
                    return UNKNOWN
        return UNKNOWN
