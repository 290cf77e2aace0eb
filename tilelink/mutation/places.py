"""Mutators of expressions that say where and how much: ranks, parts, chunks, bounds, masks, sizes, streams."""

from __future__ import annotations

import ast
from itertools import pairwise

from tilelink.mutation.text import Change, Changes, SourceOperator, SourceText, called, dotted, in_language, last_word

_ORDERS = ("rank_major", "chunk_major", "node_major", "tiles_in_rows", "copy_share")


def another_peer(text: SourceText) -> Changes:
    """The next peer of a rotated order, or this rank itself; the table of addresses read at this rank's place."""
    for node in text.nodes(ast.BinOp):
        if isinstance(node.op, ast.Mod) and "rank" in _names(node.left):
            yield (Change(text.span(node), f"({text.text(node.left)} + 1) % {text.text(node.right)}"),)
            yield (Change(text.span(node), "rank"),)
    for call in text.nodes(ast.Call):
        if called(call) == "on_peer" and len(call.args) == 3 and "rank" in text.names(call):
            yield (Change(text.span(call.args[1]), "rank"),)


def another_part(text: SourceText) -> Changes:
    """The part of another rank, or the first: `peer * size` becomes `rank * size` or `0`, `[rank]` becomes `[peer]`."""
    for node in text.nodes(ast.Name):
        parent = text.parent(node)
        factor = isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Mult) and node is parent.left
        index = isinstance(parent, ast.Subscript | ast.Tuple) and text.on_host(node) and isinstance(node.ctx, ast.Load)
        if (factor or index) and _is_part(node.id):
            for other in sorted(text.names(node)):
                if _is_part(other) and other != node.id and (other != "chunk" or node.id == "chunk"):
                    yield (Change(text.span(node), other),)
            yield (Change(text.span(node), "0"),)


def bounds(text: SourceText) -> Changes:
    """A loop that ends or starts one iteration early or late; a slice of other rows."""
    for call in text.nodes(ast.Call):
        if called(call) not in ("range", "tl.range", "slice") or not 1 <= len(call.args) <= 3:
            continue
        step = text.text(call.args[2]) if len(call.args) == 3 else "1"
        first, last = call.args[0], call.args[min(1, len(call.args) - 1)]
        yield (Change(text.span(last), f"{text.text(last)} - {step}"),)
        yield (Change(text.span(last), f"{text.text(last)} + {step}"),)
        if first is not last:
            yield (Change(text.span(first), f"{text.text(first)} + {step}"),)
        else:
            yield (Change(text.span(first), f"1, {text.text(first)}"),)
        if len(call.args) == 3:
            yield (Change(text.span(call.args[2]), f"{step} + 1"),)


def rounding(text: SourceText) -> Changes:
    """Up instead of down; the last chunk left out where one is added behind a division."""
    for node in text.nodes(ast.BinOp):
        if isinstance(node.op, ast.FloorDiv):
            left, right = text.text(node.left), text.text(node.right)  # kernels round to zero, whatever the sign
            yield (Change(text.span(node), f"(({left} + ({right}) - 1) // ({right}))"),)
        elif (
            isinstance(node.op, ast.Add) and isinstance(node.left, ast.BinOp) and isinstance(node.left.op, ast.FloorDiv)
        ):
            yield (Change(text.span(node), text.text(node.left)),)


def offset(text: SourceText) -> Changes:
    """A term of an address left out, or its stride one off."""
    for node in text.nodes(ast.BinOp):
        if isinstance(node.op, ast.Add) and text.number(node.right) is None and not text.on_host(node):
            yield (Change(text.span(node), text.text(node.left)),)
        if isinstance(node.op, ast.Mult) and text.number(node.right) is not None:
            yield (Change(text.span(node.right), f"({text.text(node.right)} + 1)"),)


def mask(text: SourceText) -> Changes:
    """A load or a store of lanes that do not exist."""
    for call in text.nodes(ast.Call):
        masks = [keyword for keyword in call.keywords if keyword.arg in ("mask", "other")]
        if masks and in_language(call, "load", "store"):
            yield tuple(Change(text.span(keyword.value), "None") for keyword in masks)


def constant(text: SourceText) -> Changes:
    """A number given to a helper that orders tiles or shares chunks is one off; so is which program has which role."""
    for call in text.nodes(ast.Call):
        for argument in call.args:
            if last_word(called(call)) in _ORDERS and text.number(argument) is not None:
                yield from _one_off(text, argument)
    for compare in text.nodes(ast.Compare):
        if text.text(compare.left) == "program" and text.number(compare.comparators[0]) is not None:
            yield from _one_off(text, compare.comparators[0])
    for node in text.nodes(ast.BinOp):
        if text.text(node.left) == "program" and isinstance(node.op, ast.Sub):
            yield from _one_off(text, node.right)


def grid(text: SourceText) -> Changes:
    """A program more or less."""
    for call in text.nodes(ast.Call):
        if called(call).endswith(".launch") and len(call.args) > 1 and isinstance(call.args[1], ast.Tuple):
            for size in call.args[1].elts:
                yield from _one_off(text, size)


def constexpr(text: SourceText) -> Changes:
    """A size that a launch passes by name is one off; a tile is half or twice as large."""
    for call in text.nodes(ast.Call):
        for keyword in call.keywords:
            known = text.number(keyword.value) is not None
            if called(call).endswith(".launch") and (keyword.arg or "").isupper() and known:
                if keyword.arg == "BLOCK":
                    yield (Change(text.span(keyword.value), f"{text.text(keyword.value)} // 2"),)
                else:
                    yield from _one_off(text, keyword.value)
    for node in text.nodes(ast.AnnAssign):
        if text.text(node.target).startswith("TILE") and node.value is not None and text.number(node.value) is not None:
            yield (Change(text.span(node.value), f"{text.text(node.value)} // 2"),)
            yield (Change(text.span(node.value), f"{text.text(node.value)} * 2"),)


def allocation(text: SourceText) -> Changes:
    """Half of the words or rows."""
    for call in text.nodes(ast.Call):
        if last_word(called(call)) in ("symmetric", "empty", "zeros") and call.args:
            first = call.args[0]
            size = first.elts[0] if isinstance(first, ast.Tuple) and first.elts else first
            if (text.number(size) or 0) > 1:
                yield (Change(text.span(size), f"{text.text(size)} // 2"),)


def another_stream(text: SourceText) -> Changes:
    """A copy, a write or a wait on the main stream instead of a side stream, or the other way round."""
    streams = _side_streams(text)
    for call in text.nodes(ast.Call):
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in (
            "copy",
            "write",
            "wait_at_least",
            "launch",
        ):
            continue
        if not text.in_call(call):
            continue
        if dotted(call.func.value) == "main":
            for stream in streams:
                yield (Change(text.span(call.func.value), stream),)
        elif dotted(call.func.value) != "self":
            yield (Change(text.span(call.func.value), "main"),)


def copy_direction(text: SourceText) -> Changes:
    """Source and target exchanged."""
    for call in text.nodes(ast.Call):
        if last_word(called(call)) == "copy" and len(call.args) == 2 and text.on_host(call):
            one, other = call.args
            yield Change(text.span(one), text.text(other)), Change(text.span(other), text.text(one))


def asynchronous_store(text: SourceText) -> Changes:
    """A tile that a notify follows is stored through a descriptor, which the release does not wait for."""
    for block in text.blocks():
        for store, later in pairwise(block):
            raising = any(
                last_word(called(node)) in ("notify", "count_arrival", "count_up") for node in ast.walk(later)
            )
            if raising and called(store) == "tl.store" and isinstance(store, ast.Expr):
                call = store.value
                assert isinstance(call, ast.Call)
                written = _by_descriptor(text, call)
                if written:
                    yield (Change(text.span(store), written),)


def _by_descriptor(text: SourceText, call: ast.Call) -> str:
    """`base + rows[:, None] * stride + cols[None, :]` as a descriptor of that base; empty for other addresses."""
    match call.args[0]:
        case ast.BinOp(
            left=ast.BinOp(left=base, right=ast.BinOp(left=ast.Subscript(value=ast.Name(id=rows)), right=stride)),
            right=ast.Subscript(value=ast.Name(id=cols)),
        ):
            row, col = rows.removesuffix("_offsets"), cols.removesuffix("_offsets")
            tile = f"[TILE_{row.upper()}, TILE_{col.upper()}]"
            pitch = text.text(stride)
            shape, strides = f"[{row} + TILE_{row.upper()}, {pitch}]", f"[{pitch}, 1]"
            made = f"tl.make_tensor_descriptor({text.text(base)}, {shape}, {strides}, {tile})"
            return f"{made}.store([{row}, {col}], {text.text(call.args[1])})"
        case _:
            return ""


def _side_streams(text: SourceText) -> list[str]:
    found = []
    for assign in text.nodes(ast.Assign):
        if called(assign.value) == "fabric.stream":
            found.append(text.text(assign.targets[0]))
        elif isinstance(assign.value, ast.ListComp) and called(assign.value.elt) == "fabric.stream":
            found.append(f"{text.text(assign.targets[0])}[0]")
    return found


def _one_off(text: SourceText, node: ast.expr) -> Changes:
    yield (Change(text.span(node), f"{text.text(node)} + 1"),)
    yield (Change(text.span(node), f"{text.text(node)} - 1"),)


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _is_part(name: str) -> bool:
    return name in ("rank", "peer", "part", "chunk") or name.endswith("_segment")


OPERATORS: tuple[tuple[str, SourceOperator], ...] = (
    ("another peer", another_peer),
    ("another part", another_part),
    ("bounds", bounds),
    ("rounding", rounding),
    ("offset", offset),
    ("mask", mask),
    ("constant", constant),
    ("grid", grid),
    ("constexpr", constexpr),
    ("allocation", allocation),
    ("another stream", another_stream),
    ("copy direction", copy_direction),
    ("asynchronous store", asynchronous_store),
)
