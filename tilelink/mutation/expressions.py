"""Mutators of expressions, by the kind of syntax: comparisons, conditions, numbers, names, calls with their arguments."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from tilelink.mutation.text import Change, Changes, SourceOperator, SourceText, called, dotted

_COMPARISONS: dict[type[ast.cmpop], tuple[str, ...]] = {  # equality with a value that can pass, one off, the opposite
    ast.Lt: ("<=", "!=", ">="),
    ast.LtE: ("<",),
    ast.Gt: (">=", "!="),
    ast.GtE: (">", "=="),
    ast.Eq: (">=", "!="),
    ast.NotEq: ("==",),
}
_WEAKER = {  # semantics and scopes of an access, as it names them
    "acquire": ("relaxed",),
    "release": ("relaxed",),
    "acq_rel": ("acquire", "release", "relaxed"),
    "sys": ("gpu", "cta"),
    "gpu": ("cta",),
}


def comparison(text: SourceText) -> Changes:
    for node in text.nodes(ast.Compare):
        if len(node.ops) == 1:
            for other in _COMPARISONS.get(type(node.ops[0]), ()):
                yield (Change(text.between(node.left, node.comparators[0]), f" {other} "),)


def condition(text: SourceText) -> Changes:
    """A branch taken always or never."""
    for node in text.nodes(ast.If):
        if not isinstance(node.body[0], ast.Raise):
            yield (Change(text.span(node.test), "True"),)
            yield (Change(text.span(node.test), "False"),)


def weaker(text: SourceText) -> Changes:
    """Weaker semantics, a narrower scope."""
    for keyword in text.nodes(ast.keyword):
        if isinstance(keyword.value, ast.Constant):
            for other in _WEAKER.get(str(keyword.value.value), ()):
                yield (Change(text.span(keyword.value), f'"{other}"'),)


def one_off(text: SourceText) -> Changes:
    """A number that a call or a comparison is given, alone or in a tuple of sizes, is one more or less."""
    for node in text.nodes(ast.expr):
        given = _given(node)
        for one in (*given, *(size for item in given if isinstance(item, ast.Tuple) for size in item.elts)):
            if isinstance(one, ast.BinOp) or text.number(one) is not None:
                yield from ((Change(text.span(one), f"{text.text(one)} {change}"),) for change in ("+ 1", "- 1"))


def _given(node: ast.expr) -> list[ast.expr]:
    match node:
        case ast.Call(args=args, keywords=keywords):
            return [*args, *(keyword.value for keyword in keywords)]
        case ast.Compare(comparators=comparators):
            return comparators
    return []


def an_argument_alone(text: SourceText) -> Changes:
    """A term, a factor or a divisor left out."""
    for node in text.nodes(ast.BinOp):
        yield (Change(text.span(node), text.text(node.left)),)
        if isinstance(node.op, ast.Add | ast.Mult):
            yield (Change(text.span(node), text.text(node.right)),)


def another_name(text: SourceText) -> Changes:
    """The next one of the names in arithmetic and subscripts of the function."""
    used: dict[ast.AST, dict[str, None]] = {}
    found = [node for node in text.nodes(ast.Name) if isinstance(text.parent(node), ast.BinOp | ast.Subscript)]
    for node in found:
        used.setdefault(text.function(node), {})[node.id] = None
    for node in found:
        other = _next(tuple(used[text.function(node)]), node.id)
        if isinstance(node.ctx, ast.Load) and other:
            yield (Change(text.span(node), other),)


def arguments_exchanged(text: SourceText) -> Changes:
    """Of a call that is a statement, and has two."""
    for call in _statements(text):
        if len(call.args) == 2:
            one, other = call.args
            yield Change(text.span(one), text.text(other)), Change(text.span(other), text.text(one))


def another_function(text: SourceText) -> Changes:
    """The next one that is called as a statement with as many arguments, in the same module or on the same object."""
    return _another(text, lambda call: (dotted(call.func).rpartition(".")[0], len(call.args), text.on_host(call)))


def another_receiver(text: SourceText) -> Changes:
    """The next stream, or other object, that the same method is called on."""
    return _another(text, lambda call: (called(call).rpartition(".")[2], text.function(call)))


def _another(text: SourceText, group: Callable[[ast.Call], object]) -> Changes:
    used: dict[object, dict[str, None]] = {}
    for call in _statements(text):
        used.setdefault(group(call), {})[text.text(call.func)] = None
    for call in _statements(text):
        name = text.text(call.func)
        other = _next(tuple(used[group(call)]), name)
        if other and not ("atomic" in other and "atomic" not in name):  # more order than there was changes nothing
            yield (Change(text.span(call.func), other),)


def no_mask(text: SourceText) -> Changes:
    """A load or a store of lanes that do not exist."""
    for call in text.nodes(ast.Call):
        masks = [keyword for keyword in call.keywords if keyword.arg in ("mask", "other")]
        if masks:
            yield tuple(Change(text.span(keyword.value), "None") for keyword in masks)


def a_copy(text: SourceText) -> Changes:
    """A word of the operator's as it is when the call is enqueued, or captured, instead of the word itself."""
    for node in text.nodes(ast.Attribute):
        given = isinstance(text.parent(node), ast.Call) and text.parent(node).func is not node  # type: ignore[attr-defined]
        if given and dotted(node).startswith("self.") and text.in_call(node):
            yield (Change(text.span(node), f"{text.text(node)}.clone()"),)


def _statements(text: SourceText) -> Iterator[ast.Call]:
    """Calls whose result nobody uses."""
    return (node.value for node in text.nodes(ast.Expr) if isinstance(node.value, ast.Call))


def _next(names: tuple[str, ...], name: str) -> str:
    """The one behind `name`, the first behind the last; empty if there is no other."""
    return names[(names.index(name) + 1) % len(names)] if len(names) > 1 else ""


OPERATORS: tuple[SourceOperator, ...] = (
    comparison,
    condition,
    weaker,
    one_off,
    an_argument_alone,
    another_name,
    arguments_exchanged,
    another_function,
    another_receiver,
    no_mask,
    a_copy,
)
