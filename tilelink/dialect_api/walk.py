"""Walks a kernel over all its paths, into the functions that it calls, and lists its calls with what came before each.

Forward and conservative: branches are both taken unless their test is a known constant, loops run their body twice, and
where paths meet, what happened on any of them may have happened.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tilelink.dialect_api.effects import CONSUME, WAIT, act_of, is_near, pointed_to, pointer, reaches_peers, result
from tilelink.dialect_api.host_values import HostValues
from tilelink.dialect_api.source import Definition, SourceFile, bind
from tilelink.dialect_api.state import Event, Fact, State, meet
from tilelink.dialect_api.value import UNKNOWN, Element, Spot, Trait, Value, join_all, of_traits, simple, spot
from tilelink.stubs.functions import find
from tilelink.stubs.model import Effect
from tilelink.stubs.typecheck import Message

_DEEPEST = 12  # calls inside calls
_OWN_RANK = ("rank", "local_rank")


@dataclass(frozen=True, slots=True)
class Walked:
    """All calls of one kernel. `escaped`: waits whose token, or what took it, the entry returns to its caller."""

    entry: Definition
    events: tuple[Event, ...]
    escaped: frozenset[Spot]


@dataclass(frozen=True, slots=True)
class Context:
    file: SourceFile
    host: HostValues
    walks: tuple[Walked, ...]
    device_events: tuple[Event, ...]  # calls of all kernels; a function that two kernels call is seen twice
    host_events: tuple[Event, ...]  # calls of API functions only
    messages: tuple[Message, ...]  # of the type checker

    @property
    def events(self) -> tuple[Event, ...]:
        return self.device_events + self.host_events


def context(file: SourceFile, messages: tuple[Message, ...]) -> Context:
    """Walk every kernel of a file, of which a type checker says `messages`."""
    host = HostValues(file)
    walks = tuple(walk(file, host, entry) for entry in file.entries())
    device = tuple(event for walked in walks for event in walked.events)
    return Context(file, host, walks, device, tuple(_host_events(file, host)), messages)


def _host_events(file: SourceFile, host: HostValues) -> Iterator[Event]:
    for call, within in file.host_calls:
        path = file.full_path(call.func)
        function = find(path)
        if function is not None:
            bound = bind(call, function.signature_on(file.vendor))
            arguments = tuple((parameter.name, node, host.of(node, within)) for parameter, node in bound)
            yield Event(None, within, call, path, function, arguments)


@dataclass(slots=True)
class _Exits:
    """Paths that leave a loop or a function."""

    breaks: list[State] = field(default_factory=list)
    continues: list[State] = field(default_factory=list)
    returns: list[tuple[State, Value]] = field(default_factory=list)


def walk(file: SourceFile, host: HostValues, entry: Definition) -> Walked:
    """The calls of `entry`, in the order of its paths."""
    walker = _Walk(file, host, entry)
    returned = walker.function(entry)
    return Walked(entry, tuple(walker.events), returned.tokens | returned.taken)


def parameters(file: SourceFile, host: HostValues, entry: Definition) -> dict[str, Value]:
    """The value of each parameter: what all launches of the file pass, an origin of its own if there is none."""
    found = {}
    for argument in entry.parameters:
        name, default = argument.arg, entry.defaults.get(argument.arg)
        launches = file.launches_of(entry)
        values = [host.of(launch.argument(entry, name) or default, launch.within) for launch in launches]
        total = join_all(values) if launches else host.of(default, None)
        dtype = pointed_to(file, argument.annotation)
        found[name] = Value(
            frozenset({Element(dtype, argument.lineno)}) if dtype else total.elements,
            total.origins or frozenset({f"{entry.name}({name})"}),
            (total.traits & {Trait.SYMMETRIC}) | ({Trait.OWN_RANK} if name in _OWN_RANK else set()),
            constants=total.constants,
        )
    return found


class _Walk:
    def __init__(self, file: SourceFile, host: HostValues, entry: Definition) -> None:
        self._file = file
        self._host = host
        self._entry = entry
        self.events: list[Event] = []
        self._state = State(parameters(file, host, entry))
        self._frames: list[Definition] = [entry]
        self._loops: tuple[ast.For | ast.While, ...] = ()
        self._thread_guards = 0
        self._exits = _Exits()

    def function(self, definition: Definition) -> Value:
        """Run a body from the current state; afterwards the state is that of all its ends."""
        outer, self._exits = self._exits, _Exits()
        end = self._suite(definition.node.body, self._state)
        returns = self._exits.returns
        # a path that only raises or spins has no end: go on with what is known
        self._state = meet([*(state for state, _ in returns), *([end] if end else [])]) or self._state
        self._exits = outer
        return join_all(value for _, value in returns)

    # Expressions: their values, and an event for each call

    def _value(self, node: ast.expr) -> Value:
        """Evaluate, in Python's order."""
        match node:
            case ast.Name():
                return self._name(node)
            case ast.Attribute(attr=name):
                value = UNKNOWN if self._file.full_path(node) else self._value(node.value)
                return value if name in ("T", "value") else UNKNOWN
            case ast.Subscript():
                value = self._value(node.value)
                self._children(node.slice)
                match node.slice:
                    case ast.Constant(value=int() as index) if 0 <= index < len(value.items):
                        return value.items[index]
                    case _:
                        return value
            case ast.Tuple() | ast.List():
                return Value(items=tuple(map(self._value, node.elts)))
            case ast.Call():
                return self._call(node)
            case _:
                if isinstance(node, ast.IfExp):
                    self._value(node.test)
                return simple(node, self._value) or self._children(node)

    def _children(self, node: ast.AST) -> Value:
        """Comparisons and the like: only whether they depend on the thread is kept."""
        values = [self._value(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        return Value(traits=frozenset[Trait]().union(*(one.traits for one in values)) & {Trait.THREAD, Trait.BLOCK})

    def _name(self, node: ast.Name) -> Value:
        if node.id in self._state.names:
            return self._state.names[node.id]
        return self._host.of(node, None)

    def _call(self, node: ast.Call) -> Value:
        local = self._file.definitions.get(node.func.id) if isinstance(node.func, ast.Name) else None
        known = local is not None and local.name not in self._state.names
        if local is not None and known and local.on_device and local not in self._frames:
            return self._call_local(local, node)
        groups = self._file.groups(node)
        if groups:
            self._at_once(groups)
            return UNKNOWN
        path, receiver = self._file.full_path(node.func), UNKNOWN
        if not path and isinstance(node.func, ast.Attribute):
            path, receiver = f".{node.func.attr}", self._value(node.func.value)
        event = self._event(node, path, receiver)
        self.events.append(event)
        self._happen(event)
        return result(self._file, event)

    def _event(self, node: ast.Call, path: str, receiver: Value) -> Event:
        given = [(str(index), argument) for index, argument in enumerate(node.args)]
        given += [(word.arg or "**", word.value) for word in node.keywords]
        values = {id(argument): self._value(argument) for _, argument in given}
        function = find(path)
        bound = bind(node, function.signature_on(self._file.vendor)) if function is not None else []
        names = [(parameter.name, argument) for parameter, argument in bound] or given
        arguments = tuple((name, argument, values[id(argument)]) for name, argument in names)
        before = {
            key: at for key, at in self._state.seen.items() if key is not Fact.LONE_WAITS or not self._thread_guards
        }
        return Event(self._entry, self._frames[-1], node, path, function, arguments, receiver, self._loops, before)

    def _happen(self, event: Event) -> None:
        """What the call changes for what comes after it."""
        state, at = self._state, frozenset({spot(event.node)})
        polls = any(isinstance(loop, ast.While) for loop in self._loops)
        match act_of(event):
            case Effect.STORE:
                if not self._thread_guards:
                    state.add(Fact.STORES, at)
                if pointer(event).has(Trait.PEER):
                    state.add(Fact.PEER_STORES, at)
            case Effect.RAISE:
                # one missing barrier is reported once, at the first raise behind it
                state.forget(Fact.STORES)
                if not is_near(event) and reaches_peers(event):
                    state.forget(Fact.PEER_STORES)
            case Effect.FENCE:
                state.forget(Fact.PEER_STORES)
            case Effect.BARRIER:
                state.forget(Fact.STORES, Fact.LONE_WAITS, of_suite=True)
            case Effect.WAIT if event.path == WAIT:
                state.add(Fact.WAITS, at)
            case (Effect.WAIT | Effect.LOAD) as act if self._thread_guards and (polls or act is Effect.WAIT):
                state.add(Fact.LONE_WAITS, at)
        if event.path == CONSUME:
            for origin in event.value("value").origins:
                state.add(origin, event.value("token").tokens)

    def _call_local(self, definition: Definition, call: ast.Call) -> Value:
        """A call to a function of the file."""
        names = [argument.arg for argument in definition.parameters]
        own = {name: self._host.of(default, None) for name, default in definition.defaults.items()}
        own |= dict(zip(names, map(self._value, call.args), strict=False))
        own |= {word.arg: self._value(word.value) for word in call.keywords if word.arg}
        if len(self._frames) > _DEEPEST:
            return UNKNOWN
        caller, loops = self._state.names, self._loops
        # a function that is given one word need not know that it lies in an array
        given = {name: own.get(name, UNKNOWN) for name in names}
        self._state.names = {name: replace(one, traits=one.traits - {Trait.SUM}) for name, one in given.items()}
        self._frames.append(definition)
        value = self.function(definition)
        self._frames.pop()
        self._state.names, self._loops = caller, loops
        return value

    def _at_once(self, calls: Sequence[ast.Call]) -> None:
        """Each call begins where all of them do; behind them what happened in any of them may have happened."""
        start, ends = self._state, []
        for call in calls:
            self._state = start.copy()
            self._value(call)
            ends.append(self._state)
        self._state = meet(ends) or start

    # Statements: the state behind each, None if no path gets there

    def _suite(self, body: list[ast.stmt], state: State) -> State | None:
        self._state = state
        for statement in body:
            end = self._statement(statement)
            if end is None:
                return None
            self._state = end
        return self._state

    def _statement(self, node: ast.stmt) -> State | None:
        match node:
            case ast.Return():
                value = self._value(node.value) if node.value is not None else UNKNOWN
                self._exits.returns.append((self._state, value))
                return None
            case ast.Break():
                self._exits.breaks.append(self._state)
                return None
            case ast.Continue():
                self._exits.continues.append(self._state)
                return None
            case ast.Raise():
                return None
            case ast.If():
                return self._if(node)
            case ast.For():
                self._value(node.iter)
                return self._loop(node)
            case ast.While():
                return self._loop(node)
            case ast.With():
                return self._with(node)
            case ast.Expr():
                self._value(node.value)
            case ast.Assign():
                value = self._value(node.value)
                for target in node.targets:
                    self._bind(target, value)
            case ast.AnnAssign(value=ast.expr() as right):
                self._bind(node.target, self._value(right))
            case ast.AugAssign():
                changed = ast.BinOp(node.target, node.op, node.value)
                self._bind(node.target, self._value(ast.copy_location(changed, node)))
        return self._state

    def _bind(self, target: ast.expr, value: Value) -> None:
        match target:
            case ast.Name():
                self._state.names[target.id] = value
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                known = value.items if len(value.items) == len(targets) else (UNKNOWN,) * len(targets)
                for one, part in zip(targets, known, strict=True):
                    self._bind(one, part)

    def _if(self, node: ast.If) -> State | None:
        test = self._value(node.test)
        start, guard, ends = self._state, test.has(Trait.THREAD), []
        for branch, wanted in ((node.body, True), (node.orelse, False)):
            if test.constant is None or bool(test.constant) is wanted:
                self._thread_guards += guard
                ends.append(self._suite(branch, start.copy()))
                self._thread_guards -= guard
        return meet([end for end in ends if end is not None])

    def _with(self, node: ast.With) -> State | None:
        for item in node.items:
            value = self._value(item.context_expr)
            if item.optional_vars is not None:
                simt = self.events and self.events[-1].path.endswith(".simt_exec_region")
                self._bind(item.optional_vars, Value(items=(of_traits(Trait.THREAD), UNKNOWN)) if simt else value)
        return self._suite(node.body, self._state)

    def _loop(self, node: ast.For | ast.While) -> State | None:
        """Nothing, one or two rounds. Waits of a round guard the loads of that round only."""
        outer = self._exits.breaks, self._exits.continues
        self._exits.breaks, self._exits.continues = [], []
        before, head = self._state, self._state.copy()
        of_suite = self._state.copy().forget(of_suite=True)
        endless = isinstance(node, ast.While) and isinstance(node.test, ast.Constant)
        ends: list[State] = []
        self._loops = (*self._loops, node)
        for _ in range(2):
            self._state = head
            head.forget(of_suite=True)
            head.seen |= of_suite
            if isinstance(node, ast.For):
                self._bind(node.target, UNKNOWN)
            else:
                self._value(node.test)
            ends += [] if endless else [self._state.copy()]
            end = self._suite(node.body, self._state.copy())
            arrived = [state for state in (end, *self._exits.continues) if state is not None]
            self._exits.continues = []
            if not arrived:
                break
            head = meet([before, *arrived]) or head
        else:
            ends += [head] if ends else []
        self._loops = self._loops[:-1]
        after = meet([*ends, *self._exits.breaks])
        self._exits.breaks, self._exits.continues = outer
        if after is None:
            return None
        after.forget(of_suite=True)
        after.seen |= of_suite
        return self._suite(node.orelse, after)
