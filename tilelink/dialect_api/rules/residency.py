"""Kernels that spin are resident at once: a cooperative launch, or a grid that the file bounds by its number of SMs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelink.dialect_api.effects import TL
from tilelink.dialect_api.functions import UTILS, find
from tilelink.dialect_api.model import Effect
from tilelink.dialect_api.rule import Finding, Rule, finding
from tilelink.dialect_api.source import Definition, Launch
from tilelink.dialect_api.value import Trait
from tilelink.dialect_api.walk import Context, Walked

_OPTIONS = f"{UTILS}.launch_cooperative_grid_options"
_OPTION = "launch_cooperative_grid"
_DEEPEST = 4


def check(context: Context) -> Iterator[Finding]:
    """Every launch in the file of a kernel that spins."""
    for walked in context.walks:
        why = _spins(context, walked)
        for launch in context.file.launches_of(walked.entry) if why else []:
            if not _is_cooperative(context, launch) and not _is_bounded(context, launch, launch.grid):
                what = f"{walked.entry.name} {why}, and its grid {ast.unparse(launch.grid)} may not be resident at once"
                legal = ("**launch_cooperative_grid_options()", "a grid of at most NUM_SMS programs")
                yield finding(Rule.NOT_RESIDENT, launch.call, what, *legal)


def _spins(context: Context, walked: Walked) -> str:
    """How the kernel spins, empty if it does not."""
    for event in walked.events:
        if event.function is not None:
            grid = event.function.effect is Effect.BARRIER and "grid" in event.function.name
            if event.function.effect is Effect.WAIT or grid:
                return f"waits in line {event.node.lineno}"
        for loop in event.loops:
            if isinstance(loop, ast.While) and _polls(context, loop):
                return f"polls in line {loop.lineno}"
    return ""


def _polls(context: Context, loop: ast.While) -> bool:
    """A loop that reads memory in its test, or whose body does nothing but read memory again."""
    if _reads(context, loop.test):
        return True
    body = [node for node in loop.body if not isinstance(node, ast.Pass)]
    return bool(body) and all(isinstance(node, ast.Assign) and _reads(context, node.value) for node in body)


def _reads(context: Context, node: ast.expr) -> bool:
    for call in ast.walk(node):
        if isinstance(call, ast.Call):
            path = context.file.full_path(call.func)
            function = find(path)
            ours = function is not None and function.effect in (Effect.LOAD, Effect.ATOMIC)
            if ours or path == f"{TL}.load" or path.startswith(f"{TL}.atomic_"):
                return True
    return False


def _is_cooperative(context: Context, launch: Launch) -> bool:
    for word in launch.call.keywords:
        if word.arg == _OPTION:
            return context.host.of(word.value, launch.within).constant is not False
        if word.arg is None and _holds_option(context, word.value, launch.within, 0):
            return True
    return False


def _holds_option(context: Context, node: ast.expr, within: Definition | None, depth: int) -> bool:
    """Whether `**node` may ask for a cooperative grid. What cannot be followed gets the benefit of the doubt."""
    match node:
        case ast.Call(func=ast.Name(id="dict")):
            return any(word.arg in (None, _OPTION) for word in node.keywords) or bool(node.args)
        case ast.Call():
            return context.file.full_path(node.func) == _OPTIONS or not context.file.full_path(node.func)
        case ast.Dict():
            return any(key is None or (isinstance(key, ast.Constant) and key.value == _OPTION) for key in node.keys)
        case _:
            found = context.host.assigned(node, within) if depth < _DEEPEST else []
            return (
                not found
                or _grows(context, node)
                or any(_holds_option(context, value, where, depth + 1) for value, where in found)
            )


def _grows(context: Context, options: ast.expr) -> bool:
    """Whether options get entries later on: `options.update(...)`, `options[...] = ...`."""
    text = ast.dump(options)
    for node in ast.walk(context.file.tree):
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr="update")) if ast.dump(owner) == text:
                return True
            case ast.Subscript(value=owner, ctx=ast.Store()) if ast.dump(owner) == text:
                return True
            case _:
                pass
    return False


def _is_bounded(context: Context, launch: Launch, grid: ast.expr, depth: int = 0) -> bool:
    match grid:
        case ast.Lambda():
            return _is_bounded(context, launch, grid.body, depth)
        case ast.Tuple() | ast.List():
            return _product_is_bounded(context, launch, grid.elts)
        case ast.Name() | ast.Attribute() if depth < _DEEPEST:
            found = context.host.assigned(grid, launch.within)
            return bool(found) and all(_is_bounded(context, launch, value, depth + 1) for value, _ in found)
        case _:
            return False


def _product_is_bounded(context: Context, launch: Launch, dimensions: list[ast.expr]) -> bool:
    """All dimensions but one are 1 and that one is bounded, or all are constants with a small product."""
    values = [context.host.of(node, launch.within) for node in dimensions]
    constants = [value.constant for value in values]
    product = 1
    for constant in constants:
        product *= constant if isinstance(constant, int) else 0
    if all(isinstance(constant, int) for constant in constants):
        return product == 1 or product <= context.host.num_sms() * _programs_on_one(context, launch)
    large = [value for value in values if value.constant != 1]
    return len(large) == 1 and large[0].has(Trait.NUM_SMS)


def _programs_on_one(context: Context, launch: Launch) -> int:
    """`per_sm=` of a launch through a fabric, which refuses kernels of which fewer fit."""
    for word in launch.call.keywords:
        if word.arg == "per_sm":
            value = context.host.of(word.value, launch.within).constant
            return value if isinstance(value, int) else 1
    return 1
