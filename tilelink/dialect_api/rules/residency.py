"""Kernels that spin are resident at once: a cooperative launch, or a grid that the file bounds by its number of SMs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from math import prod

from tilelink.dialect_api.effects import TL
from tilelink.dialect_api.rule import Finding, Rule, finding
from tilelink.dialect_api.source import Definition, Launch
from tilelink.dialect_api.value import Trait
from tilelink.dialect_api.walk import Context, Walked
from tilelink.stubs.functions import UTILS, find
from tilelink.stubs.model import Effect

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
    words = {word.arg: word.value for word in launch.call.keywords}
    if _OPTION in words:
        return context.host.of(words[_OPTION], launch.within).constant is not False
    return any(_may_ask(context, word.value, launch.within) for word in launch.call.keywords if word.arg is None)


def _may_ask(context: Context, options: ast.expr, within: Definition | None, depth: int = 0) -> bool:
    """Whether `**options` may ask for a cooperative grid. What cannot be followed gets the benefit of the doubt."""
    match options:
        case ast.Call(ast.Name("dict"), arguments, words):
            return any(word.arg in (None, _OPTION) for word in words) or bool(arguments)
        case ast.Call(function):
            return context.file.full_path(function) in ("", _OPTIONS)
        case ast.Dict(keys):
            return any(key is None or (isinstance(key, ast.Constant) and key.value == _OPTION) for key in keys)
        case _:
            found = context.host.assigned(options, within) if depth < _DEEPEST else []
            # `options.update(...)`, `options[...] = ...`: they get entries later on
            later = re.compile(rf"\b{re.escape(ast.unparse(options))}(\.update\(|\[[^=\n]*\] = )")
            asked = any(_may_ask(context, value, where, depth + 1) for value, where in found)
            return not found or asked or bool(later.search(ast.unparse(context.file.tree)))


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
    constants = [value.constant for value in values if isinstance(value.constant, int)]
    if len(constants) == len(values):
        return prod(constants) <= max(1, context.host.num_sms() * _programs_on_one(context, launch))
    large = [value for value in values if value.constant != 1]
    return len(large) == 1 and large[0].has(Trait.NUM_SMS)


def _programs_on_one(context: Context, launch: Launch) -> int:
    """`per_sm=` of a launch through a fabric, which refuses kernels of which fewer fit."""
    given = (word.value for word in launch.call.keywords if word.arg == "per_sm")
    constant = context.host.of(next(given, None), launch.within).constant
    return constant if isinstance(constant, int) else 1
