"""Arguments: their number, their keywords, and that comm_scope is said."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelink.dialect_api.binding import bind
from tilelink.dialect_api.context import Context
from tilelink.dialect_api.effects import NOTIFY
from tilelink.dialect_api.finding import Finding, finding
from tilelink.dialect_api.functions import find
from tilelink.dialect_api.model import Function
from tilelink.dialect_api.rule import Rule


def check(context: Context) -> Iterator[Finding]:
    """Every call of an API function, reached by a kernel or not."""
    for node in ast.walk(context.file.tree):
        if not isinstance(node, ast.Call):
            continue
        target = node.func.value if isinstance(node.func, ast.Subscript) else node.func
        function = find(context.file.full_path(target))
        if function is not None and context.file.vendor in function.vendors:
            launched = isinstance(node.func, ast.Subscript)
            yield from _call(context, node, function, launched=launched)


def _call(context: Context, node: ast.Call, function: Function, *, launched: bool) -> Iterator[Finding]:
    vendor = context.file.vendor
    shape = function.text(vendor)
    found = bind(node, function.signature_on(vendor))
    for argument in found.surplus[:1]:
        yield finding(Rule.TOO_MANY_ARGUMENTS, argument, f"{function.name} takes no argument more than {shape}", shape)
    for word in found.duplicate:
        yield finding(Rule.DUPLICATE_ARGUMENT, word, f"{function.name} is given {word.arg!r} twice", shape)
    for word in found.unknown:
        if not launched:  # a launch has options of the compiler beside the arguments
            yield finding(Rule.UNKNOWN_KEYWORD, word, f"{function.name} has no parameter {word.arg!r}", shape)
    for parameter in found.missing:
        message = f"{function.name} lacks its argument {parameter.name!r}"
        yield finding(Rule.MISSING_ARGUMENT, node, message, shape, about=parameter.name)
    if function.path == NOTIFY and found.get("comm_scope") is None and not any(w.arg is None for w in node.keywords):
        legal = ('comm_scope="intra_node"', 'comm_scope="inter_node"', 'comm_scope="gpu"')
        yield finding(
            Rule.IMPLICIT_COMM_SCOPE, node, "notify without comm_scope goes the slow way of inter_node", *legal
        )
