"""Equality waits: words that step over the value waited for.

Only what follows from constants of the file is reported. The words of one tensor are told apart by the text of the
pointer; a word is taken to start at 0 and to change only through raises. Where any raise of the tensor sets a value,
or adds one that is not known, nothing is said.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from tilelink.dialect_api.effects import TL, act_of, word
from tilelink.dialect_api.rule import Finding, Rule, finding
from tilelink.dialect_api.source import Definition, Launch
from tilelink.dialect_api.state import Event
from tilelink.dialect_api.value import Value
from tilelink.dialect_api.walk import Context, parameters
from tilelink.stubs.model import Effect

_LEGAL = ("a set to the value waited for", "signal_wait_until with a GE comparison")
_TARGETS = {"wait": "waitValue", "signal_wait_until": "cmp_val", "wait_eq": "value"}
_AMOUNTS = {"notify": "signal", "red_release": "value", "arrive_inc": "value", "atomic_add": "val"}
_CHANGES = (Effect.RAISE, Effect.STORE, Effect.ATOMIC, Effect.PUT)


def check(context: Context) -> Iterator[Finding]:
    """Each wait by equality for a constant."""
    targets = [(event, _target(context, event)) for event in context.device_events]
    waits = [(event, target) for event, target in targets if target is not None]
    changes = [event for event in context.device_events if _changes(event)]
    for wait, target in waits:
        raises = [(event, _amount(event)) for event in changes if word(event).origins & word(wait).origins]
        steps = [(event, amount) for event, amount in raises if amount is not None]
        if raises and len(steps) == len(raises) and not _starts_elsewhere(context, wait):
            reason = _why(context, wait, target, waits, steps)
            if reason:
                yield finding(Rule.EQUALITY_CAN_PASS, wait.node, reason, *_LEGAL)


def _target(context: Context, event: Event) -> int | None:
    """The constant that an equality wait compares with: of a wait, or of `while ld(word) != constant`."""
    effect = event.function.effect if event.function is not None else Effect.NONE
    comparison = event.argument("cmp_")
    value: object = None
    if effect is Effect.WAIT and (comparison is None or ast.unparse(comparison).endswith("CMP_EQ")):
        value = event.given_or_default(_TARGETS[event.function.name if event.function else ""]).constant
    elif effect is Effect.LOAD and event.loops:
        match event.loops[-1]:
            case ast.While(ast.Compare(left, [ast.NotEq()], [compared])) if left is event.node:
                value = context.host.of(compared, None).constant
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _changes(event: Event) -> bool:
    return act_of(event) in _CHANGES or (event.function is not None and event.function.name == "arrive_inc")


def _amount(event: Event) -> int | None:
    """What is added to the word; None if it is set, or if the amount is not known."""
    name = event.function.name if event.function is not None else ""
    operation = event.argument("sig_op")
    if event.path == f"{TL}.atomic_add":
        value = event.arguments[1][2] if len(event.arguments) > 1 else Value()
    elif operation is None or name == "notify":
        adds = name != "notify" or event.value("sig_op").constant == "add"
        value = event.given_or_default(_AMOUNTS.get(name, "")) if adds else Value()
    else:
        value = event.value("signal") if ast.unparse(operation).endswith("SIGNAL_ADD") else Value()
    return value.constant if isinstance(value.constant, int) and value.constant > 0 else None


Known = list[tuple[Event, int]]  # waits with what they compare with, raises with what they add


def _why(context: Context, wait: Event, target: int, waits: Known, steps: Known) -> str:
    """Why the word can pass `target`, empty if nothing says so."""
    step = gcd(*(amount for _, amount in steps))
    if target % step:
        return f"the word grows in steps of {step} and is never {target}"
    if target <= 0:
        return ""
    text = _text_of_pointer(wait)
    higher = max(to for other, to in waits if other.entry is wait.entry and _text_of_pointer(other) == text)
    if higher > target:
        return f"the word is added up to {higher}, which another wait expects, and may pass {target} unseen"
    most, line = _most_of_one_program(context, wait, waits, steps)
    if most > target:
        return f"one program adds {most} to the word (line {line}), more than {target}"
    again = _launched_again(context, wait)
    if again is not None:
        return f"the launch of line {again.call.lineno} is repeated, and nothing sets the word back from {target}"
    return ""


def _text_of_pointer(event: Event) -> str:
    nodes = (event.argument(name) for name in ("barrierPtrs", "sig_addr", "ptr"))
    return ast.dump(next((node for node in nodes if node is not None), event.node))


def _most_of_one_program(context: Context, wait: Event, waits: Known, steps: Known) -> tuple[int, int]:
    """The most that one program of one kernel adds to one word in a row, and the line of one of the raises."""
    best = (0, 0)
    ends = {id(other.node) for other, _ in waits if word(other).origins & word(wait).origins}
    for event, _ in steps:
        if event.entry is None or event.within is not event.entry:
            continue
        which = [ast.dump(node) for node in _operands(event)]
        same = [one for one in steps if one[0].entry is event.entry]
        amounts = {id(one.node): add for one, add in same if [ast.dump(node) for node in _operands(one)] == which}
        names = {node.id for operand in _operands(event) for node in ast.walk(operand) if isinstance(node, ast.Name)}
        count = _Count(context, amounts, ends, names, parameters(context.file, context.host, event.entry))
        best = max(best, (count.most(event.entry.node.body), event.node.lineno))
    return best


def _operands(event: Event) -> list[ast.expr]:
    """Arguments that say which word of which rank is meant."""
    return [node for name, node, _ in event.arguments if name not in ("signal", "value", "val")]


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
            suites = [getattr(statement, name, []) for name in ("body", "orelse")]
            if any(id(node) in self.waits for node in ast.walk(statement)):
                total = 0
            total += self._surely(statement)
            best = max(best, total, *(self.most(suite) for suite in suites if suite))
        return best

    def _surely(self, statement: ast.stmt) -> int:
        """What the statement adds on every path through it."""
        nodes = list(ast.walk(statement))
        if isinstance(statement, ast.Expr | ast.Assign):
            return sum(self.amounts.get(id(node), 0) for node in nodes)
        if not isinstance(statement, ast.For):
            return 0
        stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        stops = (ast.Break, ast.Continue, ast.Return)
        leaves = any(id(node) in self.waits or isinstance(node, stops) for node in nodes)
        return 0 if leaves or stored & self.names else self._trips(statement) * sum(map(self._surely, statement.body))

    def _trips(self, loop: ast.For) -> int:
        """How often a loop over `range(constant)` runs, 0 if that is not known."""
        match loop.iter:
            case ast.Call(_, [ast.Name(name)]) if name in self.known:
                value = self.known[name]
            case ast.Call(_, [count]):
                value = self.context.host.of(count, None)
            case _:
                return 0
        return value.constant if isinstance(value.constant, int) else 0


def _host_writes(
    context: Context, origins: frozenset[str]
) -> Iterator[tuple[ast.Call, Definition | None, ast.expr | None]]:
    """Calls of host code that give words another value: the call, where it stands, and the value unless that is 0."""
    for call, within in context.file.host_calls:
        value: ast.expr | None = None
        match call:
            case ast.Call(ast.Attribute(target, "zero_")):
                pass
            case ast.Call(ast.Attribute(target, "fill_" | "copy_"), [value, *_]):
                pass
            case ast.Call(function, [target, value, *_]) if context.file.full_path(function).endswith(
                "_set_signal_cuda"
            ):
                pass
            case _:
                continue
        if context.host.of(target, within).origins & origins:
            yield call, within, value


def _starts_elsewhere(context: Context, wait: Event) -> bool:
    """Whether host code gives the words another value than 0."""
    writes = _host_writes(context, word(wait).origins)
    return any(value is not None and context.host.of(value, within).constant != 0 for _, within, value in writes)


def _launched_again(context: Context, wait: Event) -> Launch | None:
    """A repeated launch of the kernel, if no host code sets its words back between two of them."""
    origins = frozenset(origin for origin in word(wait).origins if origin.startswith("tensor of line"))
    repeated = [one for one in context.file.launches_of(wait.entry) if one.repeated] if wait.entry and origins else []
    if not repeated:
        return None
    for call, within, _ in _host_writes(context, origins):
        if not _stands_before_loops(within.node if within is not None else context.file.tree, call):
            return None
    return repeated[0]


def _stands_before_loops(scope: ast.AST, call: ast.Call) -> bool:
    """Whether a call fills the words once, before the loops that launch."""
    loops = [node for node in ast.walk(scope) if isinstance(node, ast.For | ast.While)]
    launching = [loop for loop in loops if any(isinstance(node, ast.Subscript) for node in ast.walk(loop))]
    inside = any(node is call for loop in loops for node in ast.walk(loop))
    return bool(launching) and not inside and call.lineno < min(loop.lineno for loop in launching)
