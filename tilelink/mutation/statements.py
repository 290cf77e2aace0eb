"""Mutators of statements: one that calls, waits or branches is dropped, done twice, or changes places with a neighbour."""

from __future__ import annotations

import ast
from itertools import pairwise

from tilelink.mutation.text import Change, Changes, SourceOperator, SourceText


def drop(text: SourceText) -> Changes:
    """Nothing in place of the statement, on as many lines."""
    for block in text.blocks():
        for statement in block:
            if _acts(statement):
                yield (Change(text.span(statement), "pass" + "\n" * text.text(statement).count("\n")),)


def duplicate(text: SourceText) -> Changes:
    """The statement again, on its last line."""
    for block in text.blocks():
        for statement in block:
            whole = text.function(statement).name == "__call__"  # a call twice is two calls
            if _acts(statement) and isinstance(statement, ast.Expr) and not whole:
                yield (Change(text.span(statement), f"{text.text(statement)}; {ast.unparse(statement)}"),)


def swap(text: SourceText) -> Changes:
    for block in text.blocks():
        for one, other in pairwise(block):
            if (_acts(one) or _acts(other)) and not isinstance(other, ast.Return):  # behind it: as good as dropped
                yield Change(text.span(one), text.text(other)), Change(text.span(other), text.text(one))


def on_one_rank_only(text: SourceText) -> Changes:
    """What the host enqueues depends on the rank."""
    for block in text.blocks():
        for statement in block:
            if isinstance(statement, ast.Expr) and text.on_host(statement) and text.in_call(statement):
                yield (Change(text.span(statement), f"if rank == 0: {text.text(statement)}"),)


def enter_nothing(text: SourceText) -> Changes:
    """The body of a `with`, without what it enters."""
    for node in text.nodes(ast.With):
        first, end = text.span(node)[0], text.span(node.items[-1].context_expr)[1]
        yield (Change((first, end), "if True"),)


def _acts(statement: ast.stmt) -> bool:
    """Whether it does more than name a value: a call, a loop that waits, a branch, a `with`."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call)
    raises = isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Raise)
    return isinstance(statement, ast.While | ast.If | ast.With) and not raises


OPERATORS: tuple[SourceOperator, ...] = (drop, duplicate, swap, on_one_rank_only, enter_nothing)
