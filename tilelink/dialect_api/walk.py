"""Walks a kernel over all its paths, into the functions that it calls, and lists its calls with what came before each.

Forward and conservative: branches are both taken unless their test is a known constant, loops run their body twice, and
where paths meet, what happened on any of them may have happened.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from tilelink.dialect_api.expressions import Expressions, pointed_to
from tilelink.dialect_api.host_values import HostValues
from tilelink.dialect_api.source import Definition, Launch, SourceFile
from tilelink.dialect_api.state import Event, State, meet
from tilelink.dialect_api.value import UNKNOWN, Element, Spot, Trait, Value, join

_DEEPEST = 12  # calls inside calls
_OWN_RANK = ("rank", "local_rank")


@dataclass(frozen=True, slots=True)
class Walked:
    """All calls of one kernel. `escaped`: waits whose token, or what took it, the entry returns to its caller."""

    entry: Definition
    events: tuple[Event, ...]
    escaped: frozenset[Spot]


@dataclass(slots=True)
class _Exits:
    """Paths that leave a loop or a function."""

    breaks: list[State] = field(default_factory=list)
    continues: list[State] = field(default_factory=list)
    returns: list[tuple[State, Value]] = field(default_factory=list)


def walk(file: SourceFile, host: HostValues, entry: Definition) -> Walked:
    """The calls of `entry`, in the order of its paths."""
    walker = _Walk(file, host, entry)
    walker.state = State(parameters(file, host, entry))
    returned = walker.function(entry)
    return Walked(entry, tuple(walker.events), returned.tokens | returned.taken)


def launches_of(file: SourceFile, entry: Definition) -> list[Launch]:
    return [launch for launch in file.launches if launch.kernel == entry.name]


def launch_argument(launch: Launch, entry: Definition, name: str) -> ast.expr | None:
    """What a launch passes for a parameter, None if it leaves the default."""
    names = [argument.arg for argument in entry.parameters]
    by_name = [word.value for word in launch.call.keywords if word.arg == name]
    position = names.index(name)
    given = by_name or launch.arguments[position : position + 1]
    return given[0] if given else None


def parameters(file: SourceFile, host: HostValues, entry: Definition) -> dict[str, Value]:
    """The value of each parameter: what all launches of the file pass, an origin of its own if there is none."""
    found = {}
    for argument in entry.parameters:
        values = []
        for launch in launches_of(file, entry):
            given = launch_argument(launch, entry, argument.arg) or entry.defaults.get(argument.arg)
            values.append(host.of(given, launch.within) if given is not None else UNKNOWN)
        if not values and argument.arg in entry.defaults:
            values = [host.of(entry.defaults[argument.arg], None)]
        total = values[0] if values else UNKNOWN
        for value in values[1:]:
            total = join(total, value)
        origins = total.origins or frozenset({f"{entry.name}({argument.arg})"})
        elements = total.elements
        dtype = pointed_to(file, argument.annotation) if argument.annotation is not None else ""
        if dtype:
            elements = frozenset({Element(dtype, argument.lineno)})
        traits = (total.traits & {Trait.SYMMETRIC}) | ({Trait.OWN_RANK} if argument.arg in _OWN_RANK else set())
        found[argument.arg] = Value(elements, origins, traits, constants=total.constants)
    return found


class _Walk(Expressions):
    def __init__(self, file: SourceFile, host: HostValues, entry: Definition) -> None:
        super().__init__(file, host, entry)
        self._exits = _Exits()

    def function(self, definition: Definition) -> Value:
        """Run a body from the current state; afterwards the state is that of all its ends."""
        outer, self._exits = self._exits, _Exits()
        end = self._suite(definition.node.body, self.state)
        ends = [*self._exits.returns, *([(end, UNKNOWN)] if end is not None else [])]
        # a path that only raises or spins has no end: go on with what is known
        self.state = meet([state for state, _ in ends]) or self.state
        values = [value for _, value in self._exits.returns]
        self._exits = outer
        total = values[0] if values else UNKNOWN
        for value in values[1:]:
            total = join(total, value)
        return total

    def call_local(self, definition: Definition, call: ast.Call) -> Value:
        given = [self.value(argument) for argument in call.args]
        by_name = {word.arg: self.value(word.value) for word in call.keywords if word.arg}
        if len(self.frames) > _DEEPEST:
            return UNKNOWN
        names = [argument.arg for argument in definition.parameters]
        own = {name: self.host.of(default, None) for name, default in definition.defaults.items()}
        own |= dict(zip(names, given, strict=False)) | by_name
        caller, loops = self.state.names, self.loops
        # a function that is given one word need not know that it lies in an array
        self.state.names = {name: own.get(name, UNKNOWN).without(Trait.SUM) for name in names}
        self.frames.append(definition)
        value = self.function(definition)
        self.frames.pop()
        self.state.names, self.loops = caller, loops
        return value

    def at_once(self, calls: Sequence[ast.Call]) -> None:
        """Each call begins where all of them do; behind them what happened in any of them may have happened."""
        start, ends = self.state, []
        for call in calls:
            self.state = start.copy()
            self.value(call)
            ends.append(self.state)
        self.state = meet(ends) or start

    def _suite(self, body: list[ast.stmt], state: State) -> State | None:
        """The state behind the last statement, None if no path gets there."""
        self.state = state
        for statement in body:
            end = self._statement(statement)
            if end is None:
                return None
            self.state = end
        return self.state

    def _statement(self, node: ast.stmt) -> State | None:
        match node:
            case ast.Return():
                value = self.value(node.value) if node.value is not None else UNKNOWN
                self._exits.returns.append((self.state, value))
                return None
            case ast.Break():
                self._exits.breaks.append(self.state)
                return None
            case ast.Continue():
                self._exits.continues.append(self.state)
                return None
            case ast.Raise():
                return None
            case ast.If():
                return self._if(node)
            case ast.For():
                self.value(node.iter)
                return self._loop(node)
            case ast.While():
                return self._loop(node)
            case ast.With():
                return self._with(node)
            case _:
                self._simple(node)
                return self.state

    def _simple(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr():
                self.value(node.value)
            case ast.Assign():
                value = self.value(node.value)
                for target in node.targets:
                    self._bind(target, value)
            case ast.AnnAssign() if node.value is not None:
                self._bind(node.target, self.value(node.value))
            case ast.AugAssign():
                changed = ast.BinOp(node.target, node.op, node.value)
                self._bind(node.target, self.value(ast.copy_location(changed, node)))
            case _:
                pass

    def _bind(self, target: ast.expr, value: Value) -> None:
        match target:
            case ast.Name():
                self.state.names[target.id] = value
            case ast.Tuple() | ast.List():
                known = value.items if len(value.items) == len(target.elts) else (UNKNOWN,) * len(target.elts)
                for one, part in zip(target.elts, known, strict=True):
                    self._bind(one, part)
            case _:
                pass

    def _if(self, node: ast.If) -> State | None:
        test = self.value(node.test)
        start = self.state
        taken = test.constant
        guard = test.has(Trait.THREAD)
        ends = []
        for branch, wanted in ((node.body, True), (node.orelse, False)):
            if taken is None or bool(taken) is wanted:
                self.thread_guards += guard
                ends.append(self._suite(branch, start.copy()))
                self.thread_guards -= guard
        return meet([end for end in ends if end is not None])

    def _with(self, node: ast.With) -> State | None:
        for item in node.items:
            value = self.value(item.context_expr)
            if item.optional_vars is not None:
                simt = self.events and self.events[-1].path.endswith(".simt_exec_region")
                thread = Value(traits=frozenset({Trait.THREAD}))
                self._bind(item.optional_vars, Value(items=(thread, UNKNOWN)) if simt else value)
        return self._suite(node.body, self.state)

    def _loop(self, node: ast.For | ast.While) -> State | None:
        """Nothing, one or two rounds. Waits of a round guard the loads of that round only."""
        outer = self._exits.breaks, self._exits.continues
        self._exits.breaks, self._exits.continues = [], []
        before = self.state
        waits, guarded = before.waits, dict(before.guarded)
        head: State | None = before.copy()
        ends = []
        self.loops = [*self.loops, node]
        for _ in range(2):
            if head is None:
                break
            self.state = head
            head.waits, head.guarded = waits, dict(guarded)
            self._enter(node)
            if not (isinstance(node, ast.While) and isinstance(node.test, ast.Constant)):
                ends.append(self.state.copy())
            end = self._suite(node.body, self.state.copy())
            arrived = [state for state in (end, *self._exits.continues) if state is not None]
            self._exits.continues = []
            head = meet([before, *arrived]) if arrived else None
        self.loops = self.loops[:-1]
        if head is not None and ends:
            ends.append(head)
        ends += self._exits.breaks
        self._exits.breaks, self._exits.continues = outer
        after = meet(ends)
        if after is not None:
            after = after.copy()
            after.waits, after.guarded = waits, guarded
            if node.orelse:
                return self._suite(node.orelse, after)
        return after

    def _enter(self, node: ast.For | ast.While) -> None:
        match node:
            case ast.For():
                self._bind(node.target, UNKNOWN)
            case ast.While():
                self.value(node.test)
