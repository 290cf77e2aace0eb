"""Equality waits: words that step over the value waited for, and waits for more words than a warp has lanes.

Only what follows from constants of the file is reported. The words of one tensor are told apart by the text of the
pointer; a word is taken to start at 0 and to change only through raises. Where any raise of the tensor sets a value,
or adds one that is not known, nothing is said.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from tilelink.dialect_api.context import Context
from tilelink.dialect_api.effects import TL, WAIT, Act
from tilelink.dialect_api.expressions import act_of, pointer
from tilelink.dialect_api.model import Effect, Vendor
from tilelink.dialect_api.rule import Finding, Rule, finding
from tilelink.dialect_api.source import Definition, Launch
from tilelink.dialect_api.state import Event
from tilelink.dialect_api.value import Value
from tilelink.dialect_api.walk import parameters

_MOST_SIGNALS = 32
_AMOUNT = {"notify": "signal", "red_release": "value", "arrive_inc": "value", "atomic_add": "val"}
_LEGAL = ("a set to the value waited for", "signal_wait_until with a GE comparison")
_RESETS = ("zero_", "fill_", "copy_")


def check(context: Context) -> Iterator[Finding]:
    """Each wait by equality for a constant."""
    waits = [event for event in context.device_events() if _target(context, event) is not None]
    changes = [event for event in context.device_events() if _changes(event)]
    for event in context.device_events():
        count = event.value("numBarriers").constant
        many = event.path == WAIT and isinstance(count, int) and count > _MOST_SIGNALS
        node = event.argument("numBarriers")
        if many and node is not None and context.file.vendor is Vendor.NVIDIA:
            what = f"one wait for {count} words: lanes beyond {_MOST_SIGNALS} do not exist"
            yield finding(Rule.TOO_MANY_SIGNALS, node, what, "several waits for up to 32 words each")
    for wait in waits:
        target = _target(context, wait)
        raisers = [event for event in changes if _word(event).origins & _word(wait).origins]
        amounts = [_amount(event) for event in raisers]
        if target is None or not raisers or any(amount is None for amount in amounts):
            continue
        if _starts_elsewhere(context, wait):
            continue
        steps = [amount for amount in amounts if amount]
        reason = _why(context, wait, target, waits, raisers, steps)
        if reason:
            yield finding(Rule.EQUALITY_CAN_PASS, wait.node, reason, *_LEGAL)


def _word(event: Event) -> Value:
    return event.value("sig_addr") if event.argument("sig_addr") is not None else pointer(event)


def _target(context: Context, event: Event) -> int | None:
    """The constant that an equality wait compares with: of a wait, or of `while ld(word) != constant`."""
    if event.function is None:
        return None
    if event.function.effect is Effect.LOAD:
        return _polled_for(context, event)
    if event.function.effect is not Effect.WAIT:
        return None
    name = {"wait": "waitValue", "signal_wait_until": "cmp_val", "wait_eq": "value"}[event.function.name]
    comparison = event.argument("cmp_")
    if comparison is not None and not ast.unparse(comparison).endswith("CMP_EQ"):
        return None
    return _whole(event.given_or_default(name).constant)


def _polled_for(context: Context, event: Event) -> int | None:
    loop = event.loops[-1] if event.loops else None
    match loop:
        case ast.While(test=ast.Compare(left=left, ops=[ast.NotEq()], comparators=[value])) if left is event.node:
            return _whole(context.host.of(value, None).constant)
        case _:
            return None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _changes(event: Event) -> bool:
    raises = event.function is not None and event.function.effect in (Effect.RAISE, Effect.PUT_RAISE)
    counts = event.function is not None and event.function.name == "arrive_inc"
    return raises or counts or act_of(event) in (Act.RAISE, Act.STORE, Act.ATOMIC, Act.PUT)


def _amount(event: Event) -> int | None:
    """What is added to the word; None if it is set, or if the amount is not known."""
    if event.path == f"{TL}.atomic_add":
        value = event.arguments[1][2].constant if len(event.arguments) > 1 else None
    elif event.function is None:
        return None
    elif event.function.name == "notify":
        value = event.given_or_default("signal").constant if event.value("sig_op").constant == "add" else None
    elif event.argument("sig_op") is not None:
        operation = event.argument("sig_op")
        adds = operation is not None and ast.unparse(operation).endswith("SIGNAL_ADD")
        value = event.value("signal").constant if adds else None
    else:
        value = event.value(_AMOUNT.get(event.function.name, "")).constant
    return value if isinstance(value, int) and value > 0 else None


def _why(context: Context, wait: Event, target: int, waits: list[Event], raisers: list[Event], steps: list[int]) -> str:
    """Why the word can pass `target`, empty if nothing says so."""
    step = gcd(*steps)
    if target % step:
        return f"the word grows in steps of {step} and is never {target}"
    text = ast.dump(_pointer_text(wait))
    later = [
        _target(context, other)
        for other in waits
        if ast.dump(_pointer_text(other)) == text and other.entry is wait.entry
    ]
    higher = max((value for value in later if value is not None), default=target)
    if higher > target > 0:
        return f"the word is added up to {higher}, which another wait expects, and may pass {target} unseen"
    most, line = _most_of_one_program(context, wait, waits, raisers, steps)
    if most > target > 0:
        return f"one program adds {most} to the word (line {line}), more than {target}"
    again = _launched_again(context, wait)
    if again is not None and target > 0:
        return f"the launch of line {again.call.lineno} is repeated, and nothing sets the word back from {target}"
    return ""


def _pointer_text(event: Event) -> ast.expr:
    for name in ("barrierPtrs", "sig_addr", "ptr"):
        node = event.argument(name)
        if node is not None:
            return node
    return event.node


def _most_of_one_program(
    context: Context, wait: Event, waits: list[Event], raisers: list[Event], steps: list[int]
) -> tuple[int, int]:
    """The most that one program of one kernel adds to one word in a row, and the line of one of the raises."""
    best = (0, 0)
    words = {id(other.node) for other in waits if _word(other).origins & _word(wait).origins}
    for event in raisers:
        if event.entry is None or event.within is not event.entry:
            continue
        same = [
            (id(other.node), amount)
            for other, amount in zip(raisers, steps, strict=True)
            if other.entry is event.entry and _operands(other) == _operands(event)
        ]
        known = parameters(context.file, context.host, event.entry)
        count = _Count(context, dict(same), words, _names(event), known)
        best = max(best, (count.most(event.entry.node.body), event.node.lineno))
    return best


def _operands(event: Event) -> tuple[str, ...]:
    return tuple(ast.dump(node) for name, node, _ in event.arguments if name not in ("signal", "value", "val"))


def _names(event: Event) -> set[str]:
    """Names that say which word of which rank is meant."""
    operands = [node for name, node, _ in event.arguments if name not in ("signal", "value", "val")]
    return {node.id for operand in operands for node in ast.walk(operand) if isinstance(node, ast.Name)}


@dataclass(frozen=True, slots=True)
class _Count:
    """Adds up raises over statements that follow each other; branches and waits for the word end a row."""

    context: Context
    amounts: dict[int, int]  # by the identity of the call
    waits: set[int]
    names: set[str]
    known: dict[str, Value]

    def most(self, body: list[ast.stmt]) -> int:
        best = total = 0
        for statement in body:
            inner = self._nested(statement)
            best = max(best, *inner) if inner else best
            if any(id(node) in self.waits for node in ast.walk(statement)):
                total = 0
            total += self._surely(statement)
            best = max(best, total)
        return best

    def _nested(self, statement: ast.stmt) -> list[int]:
        suites = [getattr(statement, name, []) for name in ("body", "orelse")]
        return [self.most(suite) for suite in suites if suite]

    def _surely(self, statement: ast.stmt) -> int:
        """What the statement adds on every path through it."""
        if isinstance(statement, ast.Expr | ast.Assign):
            return sum(self.amounts.get(id(node), 0) for node in ast.walk(statement))
        if not isinstance(statement, ast.For):
            return 0
        stored = {
            node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        stops = (ast.Break, ast.Continue, ast.Return)
        leaves = any(id(node) in self.waits or isinstance(node, stops) for node in ast.walk(statement))
        trips = _trips(self.context, statement, self.known)
        if leaves or trips is None or stored & self.names:
            return 0
        return trips * sum(map(self._surely, statement.body))


def _trips(context: Context, loop: ast.For, known: dict[str, Value]) -> int | None:
    if not isinstance(loop.iter, ast.Call) or len(loop.iter.args) != 1:
        return None
    count = loop.iter.args[0]
    value = known[count.id] if isinstance(count, ast.Name) and count.id in known else context.host.of(count, None)
    constant = value.constant
    return constant if isinstance(constant, int) else None


def _starts_elsewhere(context: Context, wait: Event) -> bool:
    """Whether host code gives the words another value than 0."""
    for call, within in context.file.host_calls:
        fills = isinstance(call.func, ast.Attribute) and call.func.attr in ("fill_", "copy_")
        target = call.func.value if fills and isinstance(call.func, ast.Attribute) else None
        value = call.args[0] if target is not None and call.args else None
        if context.file.full_path(call.func).endswith("_set_signal_cuda") and len(call.args) > 1:
            target, value = call.args[0], call.args[1]
        if target is None or value is None or not context.host.of(target, within).origins & _word(wait).origins:
            continue
        if context.host.of(value, within).constant != 0:
            return True
    return False


def _launched_again(context: Context, wait: Event) -> Launch | None:
    """A repeated launch of the kernel, if no host code sets its words back between two of them."""
    for launch in context.file.launches:
        if wait.entry is None or launch.kernel != wait.entry.name or not launch.repeated:
            continue
        origins = {origin for origin in _word(wait).origins if origin.startswith("tensor of line")}
        if origins and not any(_resets(context, call, within, origins) for call, within in context.file.host_calls):
            return launch
    return None


def _resets(context: Context, call: ast.Call, within: Definition | None, origins: set[str]) -> bool:
    """Any fill, copy or stream write of the tensor, except the first fill right where it is made."""
    if isinstance(call.func, ast.Attribute) and call.func.attr in _RESETS:
        if not context.host.of(call.func.value, within).origins & origins:
            return False
        return not _stands_before_loops(within.node if within is not None else context.file.tree, call)
    written = call.args[0] if call.args and context.file.full_path(call.func).endswith("_set_signal_cuda") else None
    return written is not None and bool(context.host.of(written, within).origins & origins)


def _stands_before_loops(scope: ast.AST, call: ast.Call) -> bool:
    loops = [node for node in ast.walk(scope) if isinstance(node, ast.For | ast.While)]
    launching = [loop for loop in loops if any(isinstance(node, ast.Subscript) for node in ast.walk(loop))]
    inside = any(node is call for loop in loops for node in ast.walk(loop))
    return bool(launching) and not inside and call.lineno < min(loop.lineno for loop in launching)
