"""Mutators of expressions of the signal protocol: semantics, scopes, values, slots, comparisons."""

from __future__ import annotations

import ast

from tilelink.mutation.text import Change, Changes, SourceOperator, SourceText, called, dotted, in_language, last_word

_WEAKER_SEM = {
    "acquire": ("relaxed",),
    "release": ("relaxed",),
    "acq_rel": ("acquire", "release", "relaxed"),
}
_NARROWER_SCOPE = {"sys": ("gpu", "cta"), "gpu": ("cta",)}
_OTHER_COMPARISONS: dict[type[ast.cmpop], tuple[str, ...]] = {
    ast.Lt: ("<=", "!=", ">="),
    ast.LtE: ("<",),
    ast.Gt: (">=", "!="),
    ast.GtE: (">", "=="),
    ast.Eq: (">=", "!="),
    ast.NotEq: ("==",),
}
_WORDS = (
    "wait_epoch",
    "wait_epochs",
    "wait_count",
    "await_peers",
    "notify",
    "count_arrival",
    "count_up",
)  # on a word
# calls that wait for a value, or raise to it, which is the second of so many arguments
_VALUE_IS_SECOND_OF = {
    "wait_epoch": 2,
    "wait_epochs": 3,
    "wait_count": 2,
    "await_peers": 2,
    "wait_at_least": 2,
    "notify": 2,
}
_EXCHANGE_AND_ADD = ("atomic_xchg", "atomic_add")
_ATOMICS = ("atomic_add", "atomic_xchg", "atomic_cas", "atomic_max")


def weaker_semantics(text: SourceText) -> Changes:
    for keyword in text.nodes(ast.keyword):
        if keyword.arg == "sem" and isinstance(keyword.value, ast.Constant):
            for weaker in _WEAKER_SEM.get(str(keyword.value.value), ()):
                yield (Change(text.span(keyword.value), f'"{weaker}"'),)


def narrower_scope(text: SourceText) -> Changes:
    for keyword in text.nodes(ast.keyword):
        if keyword.arg == "scope" and isinstance(keyword.value, ast.Constant):
            for narrower in _NARROWER_SCOPE.get(str(keyword.value.value), ()):
                yield (Change(text.span(keyword.value), f'"{narrower}"'),)


def comparison(text: SourceText) -> Changes:
    """Another comparison: equality with a value that can pass, off by one, the opposite."""
    for node in text.nodes(ast.Compare):
        if len(node.ops) == 1:
            for other in _OTHER_COMPARISONS.get(type(node.ops[0]), ()):
                yield (Change(text.between(node.left, node.comparators[0]), f" {other} "),)


def condition(text: SourceText) -> Changes:
    """A branch taken always or never."""
    for node in text.nodes(ast.If):
        if not isinstance(node.body[0], ast.Raise):
            yield (Change(text.span(node.test), "True"),)
            yield (Change(text.span(node.test), "False"),)


def slot(text: SourceText) -> Changes:
    """The next or the previous word of the signals."""
    for call in text.nodes(ast.Call):
        name = last_word(called(call))
        if call.args and (name in _WORDS or name in _ATOMICS):
            yield from _off_by_one(text, call.args[0])
    for assign in text.nodes(ast.Assign):
        if [ast.unparse(target) for target in assign.targets] == ["slot"]:
            yield from _off_by_one(text, assign.value)


def awaited_value(text: SourceText) -> Changes:
    """An epoch of another call, an arrival more or less."""
    for call in text.nodes(ast.Call):
        name = last_word(called(call))
        if _VALUE_IS_SECOND_OF.get(name) == len(call.args):
            yield from _off_by_one(text, call.args[1])
        elif called(call).endswith(".launch") and call.args and ast.unparse(call.args[0]) == "wait_count_on_stream":
            yield from _off_by_one(text, call.args[-1])
    for compare in text.nodes(ast.Compare):
        left, right = compare.left, compare.comparators[0]
        if isinstance(left, ast.Call) and last_word(called(left)) in ("count_arrival", *_ATOMICS):
            yield from _off_by_one(text, right)


def epoch_step(text: SourceText) -> Changes:
    """The epoch does not go on, or by two; a number known when the kernel was launched instead of the word."""
    for node in text.nodes(ast.BinOp):
        if in_language(node.left, "load") and isinstance(node.op, ast.Add) and "epoch" in text.text(node.left):
            yield (Change(text.span(node), text.text(node.left)),)
            yield (Change(text.span(node.right), f"{text.text(node.right)} + 1"),)
    for assign in text.nodes(ast.Assign):
        if in_language(assign.value, "load") and "epoch" in text.text(assign.value):
            yield (Change(text.span(assign.value), "1"),)


def baked_epoch(text: SourceText) -> Changes:
    """The epoch as it is when the call is enqueued, or captured, instead of the word that `begin` raises."""
    for node in text.nodes(ast.Attribute):
        inside = isinstance(text.parent(node), ast.Call) and isinstance(node.ctx, ast.Load)
        if dotted(node) == "self.epoch" and inside and text.in_call(node):
            yield (Change(text.span(node), "self.epoch.clone()"),)


def plain_access(text: SourceText) -> Changes:
    """An ordinary store or load of a word instead of an atomic one."""
    for call in text.nodes(ast.Call):
        language = in_language(call, *_EXCHANGE_AND_ADD)
        if not language or len(call.args) != 2:
            continue
        word, value = (text.text(argument) for argument in call.args)
        masked = [keyword for keyword in call.keywords if keyword.arg == "mask"]
        mask = "".join(f", mask={text.text(keyword.value)}" for keyword in masked)
        if last_word(called(call)) == "atomic_xchg":
            yield (Change(text.span(call), f"{language}.store({word}, {value}{mask})"),)
            continue
        loaded = f"{language}.load({word}{mask})"
        yield (Change(text.span(call), loaded),)
        if not _adds_nothing(value) and isinstance(text.parent(call), ast.Expr):
            yield (Change(text.span(call), f"{language}.store({word}, {loaded} + {value}{mask})"),)


def another_atomic(text: SourceText) -> Changes:
    """An exchange that counts, a count that overwrites, one that counts twice."""
    for call in text.nodes(ast.Call):
        language = in_language(call, *_EXCHANGE_AND_ADD)
        if language and len(call.args) == 2 and not _adds_nothing(text.text(call.args[1])):
            other = next(name for name in _EXCHANGE_AND_ADD if name != last_word(called(call)))
            yield (Change(text.span(call.func), f"{language}.{other}"),)
            yield (Change(text.span(call.args[1]), f"2 * {text.text(call.args[1])}"),)


def _adds_nothing(value: str) -> bool:
    return value == "0" or "zeros_like(" in value


def _off_by_one(text: SourceText, node: ast.expr) -> Changes:
    shown = text.text(node)
    simple = isinstance(node, ast.Name | ast.Constant | ast.Attribute | ast.Subscript | ast.Call | ast.BinOp)
    whole = shown if simple else f"({shown})"
    yield (Change(text.span(node), f"{whole} + 1"),)
    yield (Change(text.span(node), f"{whole} - 1"),)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and text.text(node.right) == "1":
        yield (Change(text.span(node), text.text(node.left)),)


OPERATORS: tuple[tuple[str, SourceOperator], ...] = (
    ("weaker semantics", weaker_semantics),
    ("narrower scope", narrower_scope),
    ("comparison", comparison),
    ("condition", condition),
    ("slot", slot),
    ("awaited value", awaited_value),
    ("epoch step", epoch_step),
    ("baked epoch", baked_epoch),
    ("plain access", plain_access),
    ("another atomic", another_atomic),
)
