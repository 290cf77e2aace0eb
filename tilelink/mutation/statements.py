"""Mutators of statements: one that synchronises or moves data is dropped, done twice, or changes places."""

from __future__ import annotations

import ast
from functools import partial
from itertools import pairwise

from tilelink.mutation.text import Change, Changes, SourceOperator, SourceText, called, last_word

# what a statement is for -> names of the calls that do it, of which the last word counts; first match
_DEVICE = {
    "barrier": ("debug_barrier", "program_barrier", "thread_barrier"),
    "fence": ("inline_asm_elementwise",),
    "raise": (
        "notify",
        "notify_all",
        "count_arrival",
        "count_up",
        "count_at_peer",
        "count_at_peers",
        "atomic_add",
        "atomic_xchg",
        "atomic_cas",
        "atomic_max",
        "arrive",
        "expect",
    ),
    "move": ("copy_share", "async_copy_global_to_shared", "async_copy_shared_to_global"),
    "store": ("store",),
}
_HOST = {
    "stream wait": ("wait_at_least",),
    "stream write": ("write",),
    "join": ("after",),
    "library": ("matmul", "all_gather", "reduce_scatter", "all_reduce"),
    "setup": ("agree", "barrier"),
}
CATEGORIES = ("wait", *_DEVICE, "copy", "signal copy", "launch", *_HOST, "last stream")


def category(text: SourceText, statement: ast.stmt) -> str:
    """What the statement is for (one of CATEGORIES), or empty: it is no matter of ordering."""
    name = last_word(called(statement))
    if text.on_host(statement):
        return _on_host(statement, name)
    if isinstance(statement, ast.While) or name.startswith(("wait", "await")) or name == "store_wait":
        return "wait"
    if name.startswith("fence"):
        return "fence"
    if isinstance(statement, ast.If):
        calls = [last_word(called(node)) for node in ast.walk(statement.test)]
        return "raise" if any(call in _DEVICE["raise"] for call in calls) else ""
    return next((what for what, names in _DEVICE.items() if name in names), "")


def _on_host(statement: ast.stmt, name: str) -> str:
    if isinstance(statement, ast.Assign) and ast.unparse(statement) == "self.last = main":
        return "last stream"
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return ""
    arguments = [ast.unparse(argument) for argument in statement.value.args]
    if name == "launch":
        return "stream wait" if arguments and arguments[0].startswith("wait") else "launch"
    if name == "copy":
        return "signal copy" if arguments and arguments[-1] == "self.epoch" else "copy"
    return next((what for what, names in _HOST.items() if name in names), "")


def drop(what: str, text: SourceText) -> Changes:
    """Nothing in place of the statement, on as many lines."""
    for block in text.blocks():
        for statement in block:
            if category(text, statement) == what:
                yield (Change(text.span(statement), "pass" + "\n" * text.text(statement).count("\n")),)


def duplicate(what: str, text: SourceText) -> Changes:
    """The statement again, on its last line."""
    for block in text.blocks():
        for statement in block:
            if category(text, statement) == what and isinstance(statement, ast.Expr):
                yield (Change(text.span(statement), f"{text.text(statement)}; {ast.unparse(statement)}"),)


def swap(what: str, text: SourceText) -> Changes:
    """The statement and a neighbour; two that both matter count for the first of CATEGORIES."""
    for block in text.blocks():
        for one, other in pairwise(block):
            kinds = {category(text, one), category(text, other)}
            if what == next((kind for kind in CATEGORIES if kind in kinds), ""):
                yield Change(text.span(one), text.text(other)), Change(text.span(other), text.text(one))


def on_one_rank_only(text: SourceText) -> Changes:
    """What the host enqueues depends on the rank."""
    for block in text.blocks():
        for statement in block:
            kind = category(text, statement)
            if kind and text.on_host(statement) and text.in_call(statement) and kind != "last stream":
                yield (Change(text.span(statement), f"if rank == 0: {text.text(statement)}"),)


def drop_loading(text: SourceText) -> Changes:
    """No call before the first one, so that kernels are loaded when others spin; and that call made in earnest."""
    for node in text.nodes(ast.With):
        if "loading" in ast.unparse(node.items[0].context_expr):
            first, end = text.span(node)[0], text.span(node.items[-1].context_expr)[1]
            yield (Change(text.span(node), "pass" + "\n" * text.text(node).count("\n")),)
            yield (Change((first, end), "if True"),)


def _named(operator: SourceOperator, name: str) -> tuple[str, SourceOperator]:
    return name, operator


OPERATORS: tuple[tuple[str, SourceOperator], ...] = (
    *(_named(partial(drop, what), f"drop {what}") for what in CATEGORIES),
    *(_named(partial(duplicate, what), f"duplicate {what}") for what in CATEGORIES if what != "last stream"),
    *(_named(partial(swap, what), f"swap {what}") for what in CATEGORIES),
    _named(on_one_rank_only, "on one rank only"),
    _named(drop_loading, "drop loading"),
)
