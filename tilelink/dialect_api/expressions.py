"""Expressions of a kernel: their values, and an event for each call."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from tilelink.dialect_api.binding import bind
from tilelink.dialect_api.effects import CONSUME, NOTIFY, SYMM_AT, TL, WAIT, Act, act, act_of_assembly
from tilelink.dialect_api.functions import SHMEM, find, find_constant
from tilelink.dialect_api.host_values import HostValues
from tilelink.dialect_api.model import Function, Symbol
from tilelink.dialect_api.source import Definition, SourceFile
from tilelink.dialect_api.state import Event, State
from tilelink.dialect_api.value import UNKNOWN, Element, Trait, Value, arithmetic, join, spot

_MAKES_BLOCKS = tuple(f"{TL}.{name}" for name in ("arange", "zeros", "full", "zeros_like"))
_KEEPS_FIRST = tuple(
    f"{TL}.{name}"
    for name in (
        "multiple_of",
        "max_contiguous",
        "make_tensor_descriptor",
        "make_block_ptr",
        "advance",
        "cast",
        "where",
    )
)
_REDUCES = tuple(f"{TL}.{name}" for name in ("sum", "max", "min", "reduce", "argmax", "argmin", "xor_sum"))
_RANKS = ("triton_dist.language.rank", f"{SHMEM}.my_pe")
_REMOTE = (SYMM_AT, f"{SHMEM}.remote_ptr", f"{SHMEM}.remote_mc_ptr")
_NEAR = ("cta", "gpu", "workgroup", "agent")
_WIDTHS = {"i32": "int32", "u32": "uint32", "i64": "int64", "u64": "uint64"}


class Expressions:
    """Evaluates in the current state. `call_local` and `at_once` are the business of the walk over statements."""

    def __init__(self, file: SourceFile, host: HostValues, entry: Definition) -> None:
        self.file = file
        self.host = host
        self.entry = entry
        self.events: list[Event] = []
        self.state = State()
        self.frames: list[Definition] = [entry]
        self.loops: list[ast.For | ast.While] = []
        self.thread_guards = 0

    def at_once(self, calls: Sequence[ast.Call]) -> None:
        """Calls to functions of the file that run at the same time."""
        raise NotImplementedError(calls)

    def call_local(self, definition: Definition, call: ast.Call) -> Value:
        """The value of a call to a function of the file."""
        raise NotImplementedError(definition.name, call)

    def value(self, node: ast.expr) -> Value:
        """Evaluate, in Python's order."""
        match node:
            case ast.Constant(value=bool() | int() | str() as constant):
                return Value(constants=frozenset({constant}))
            case ast.Name():
                return self._name(node)
            case ast.Attribute():
                return self._attribute(node)
            case ast.BinOp():
                return arithmetic(node.op, self.value(node.left), self.value(node.right))
            case ast.Subscript():
                value = self.value(node.value)
                self._children(node.slice)
                index = node.slice.value if isinstance(node.slice, ast.Constant) else None
                known = isinstance(index, int) and 0 <= index < len(value.items)
                return value.items[index] if known and isinstance(index, int) else value
            case ast.Tuple() | ast.List():
                return Value(items=tuple(map(self.value, node.elts)))
            case ast.IfExp():
                self.value(node.test)
                return join(self.value(node.body), self.value(node.orelse))
            case ast.Call():
                return self._call(node)
            case _:
                return self._children(node)

    def _children(self, node: ast.AST) -> Value:
        """Comparisons and the like: only whether they depend on the thread is kept."""
        traits: frozenset[Trait] = frozenset()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                traits |= self.value(child).traits & {Trait.THREAD, Trait.BLOCK}
        return Value(traits=traits)

    def _name(self, node: ast.Name) -> Value:
        if node.id in self.state.names:
            return self.state.names[node.id]
        constant = find_constant(self.file.full_path(node))
        if constant is not None and constant.symbol is Symbol.TEAM:
            return Value(traits=frozenset({Trait.TEAM}))
        return self.host.of(node, None)

    def _attribute(self, node: ast.Attribute) -> Value:
        path = self.file.full_path(node)
        constant = find_constant(path)
        if path:
            return Value(traits=frozenset({Trait.TEAM} if constant and constant.symbol is Symbol.TEAM else ()))
        value = self.value(node.value)
        return value if node.attr in ("T", "value") else UNKNOWN

    def _call(self, node: ast.Call) -> Value:
        local = self.file.definitions.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if local is not None and local.on_device and local not in self.frames and local.name not in self.state.names:
            return self.call_local(local, node)
        groups = self.file.groups(node)
        if groups:
            self.at_once(groups)
            return UNKNOWN
        path = self.file.full_path(node.func)
        receiver = UNKNOWN
        if not path and isinstance(node.func, ast.Attribute):
            receiver = self.value(node.func.value)
            path = f".{node.func.attr}"
        function = find(path)
        event = self._event(node, path, function, receiver)
        self.events.append(event)
        self._happen(event)
        return self._result(event)

    def _event(self, node: ast.Call, path: str, function: Function | None, receiver: Value) -> Event:
        values = {id(argument): self.value(argument) for argument in node.args}
        values |= {id(word.value): self.value(word.value) for word in node.keywords}
        named: list[tuple[str, ast.expr, Value]] = []
        if function is not None:
            bound = bind(node, function.signature_on(self.file.vendor))
            named = [(parameter.name, argument, values[id(argument)]) for parameter, argument in bound]
        if not named:
            named = [(str(index), argument, values[id(argument)]) for index, argument in enumerate(node.args)]
            named += [(word.arg or "**", word.value, values[id(word.value)]) for word in node.keywords]
        state = self.state
        return Event(
            self.entry,
            self.frames[-1],
            node,
            path,
            function,
            tuple(named),
            receiver,
            tuple(self.loops),
            state.stores,
            state.peer_stores,
            state.waits,
            state.lone_waits if not self.thread_guards else frozenset(),
            tuple(state.guarded.items()),
        )

    def _happen(self, event: Event) -> None:
        """What the call changes for what comes after it."""
        at = spot(event.node)
        match act_of(event):
            case Act.STORE:
                if not self.thread_guards:
                    self.state.stores |= {at}
                if pointer(event).has(Trait.PEER):
                    self.state.peer_stores |= {at}
            case Act.RAISE:
                # one missing barrier is reported once, at the first raise behind it
                self.state.stores = frozenset()
                if not is_near(event) and _reaches_peers(event):
                    self.state.peer_stores = frozenset()
            case Act.FENCE:
                self.state.peer_stores = frozenset()
            case Act.BARRIER:
                self.state.stores = self.state.waits = self.state.lone_waits = frozenset()
                self.state.guarded = {}
            case Act.WAIT:
                if event.path == WAIT:
                    self.state.waits |= {at}
                elif self.thread_guards:
                    self.state.lone_waits |= {at}
            case Act.LOAD:
                if self.thread_guards and any(isinstance(loop, ast.While) for loop in self.loops):
                    self.state.lone_waits |= {at}
            case Act.NOTHING | Act.ATOMIC | Act.PUT:
                pass
        if event.path == CONSUME:
            tokens = event.value("token").tokens
            for origin in event.value("value").origins:
                self.state.guarded[origin] = self.state.guarded.get(origin, frozenset()) | tokens

    def _result(self, event: Event) -> Value:
        values = [value for _, _, value in event.arguments]
        first = values[0] if values else UNKNOWN
        path = event.path
        if path == WAIT:
            return Value(traits=frozenset({Trait.TOKEN}), tokens=frozenset({spot(event.node)}))
        if path == CONSUME:
            value = event.value("value")
            return replace(value, taken=value.taken | event.value("token").tokens)
        if path in _REMOTE:
            base = event.value("ptr") if path != f"{SHMEM}.remote_ptr" else event.value("local_ptr")
            return replace(base, traits=(base.traits - {Trait.SUM}) | {Trait.PEER})
        if path in _RANKS:
            return Value(traits=frozenset({Trait.OWN_RANK}))
        if event.function is not None and event.function.name in ("tid", "laneid"):
            return Value(traits=frozenset({Trait.THREAD}))
        if path in _MAKES_BLOCKS:
            return Value(traits=frozenset({Trait.BLOCK}))
        if path in (".to", f"{TL}.cast"):
            base = event.receiver if path == ".to" else first
            dtype = pointed_to(self.file, event.arguments[-1][1]) if event.arguments else ""
            # a cast to the type of something else: nothing is known of the width
            return replace(base, elements=frozenset({Element(dtype, event.node.lineno)} if dtype else ()))
        if path in _KEEPS_FIRST:
            return first
        gone = {Trait.BLOCK} if path in _REDUCES else set()
        traits = frozenset(trait for value in (event.receiver, *values) for trait in value.traits) - gone
        taken = frozenset(at for value in (event.receiver, *values) for at in value.taken)
        return Value(traits=traits & {Trait.BLOCK, Trait.THREAD}, taken=taken)


def act_of(event: Event) -> Act:
    """What the call of an event does."""
    if event.path == f"{TL}.inline_asm_elementwise":
        return act_of_assembly(str((event.arguments[0][2] if event.arguments else UNKNOWN).constant))
    semantic = event.given_or_default("semantic").constant
    return act(event.path, event.function, semantic if event.function is not None else event.value("sem").constant)


def scope_of(event: Event) -> object:
    """The scope of a raise or wait, None if it is not known."""
    if event.path == NOTIFY:
        return event.given_or_default("comm_scope").constant
    if event.function is None:  # an atomic of stock Triton
        return "gpu" if event.argument("scope") is None else event.value("scope").constant
    return event.given_or_default("scope").constant


def is_near(event: Event) -> bool:
    """Whether the scope is known to end at this GPU."""
    return scope_of(event) in _NEAR


def _reaches_peers(event: Event) -> bool:
    """Whether a raise can be one of a peer's words; a count on this GPU publishes nothing to others by itself."""
    return event.path == NOTIFY or event.argument("sig_addr") is not None or pointer(event).has(Trait.PEER)


def pointer(event: Event) -> Value:
    """The address that a load, store or raise works on."""
    if event.path.startswith("."):
        return event.receiver
    return event.arguments[0][2] if event.arguments else UNKNOWN


def pointed_to(file: SourceFile, node: ast.expr) -> str:
    """`int32` for `tl.pointer_type(tl.int32)` and for the annotation `"*i32"`, else empty."""
    if isinstance(node, ast.Call) and file.full_path(node.func).endswith(".pointer_type") and node.args:
        return file.full_path(node.args[0]).rpartition(".")[2]
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("*"):
        return _WIDTHS.get(node.value[1:], node.value[1:])
    return ""
