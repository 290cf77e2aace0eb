"""Types of arguments: constants, symbolic constants, widths of words, bytes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelink.dialect_api.context import Context
from tilelink.dialect_api.finding import Finding, finding
from tilelink.dialect_api.functions import constants_of, find_constant
from tilelink.dialect_api.model import Choice, Exact, Function, Parameter, Plain, Symbol, Words
from tilelink.dialect_api.rule import Rule
from tilelink.dialect_api.state import Event
from tilelink.dialect_api.value import Value
from tilelink.dialect_api.walk import launch_argument, launches_of

_ONE_BYTE = ("int8", "uint8", "bool", "float8_e4m3fn", "float8_e5m2")


def check(context: Context) -> Iterator[Finding]:
    """Each argument against the type of its parameter."""
    for event in context.events():
        function = event.function
        if function is None or context.file.vendor not in function.vendors:
            continue
        shape = function.signature_on(context.file.vendor)
        if isinstance(shape, Exact):
            for parameter in shape.parameters:
                node = event.argument(parameter.name)
                if node is not None:
                    yield from _argument(context, event, function, parameter, node, event.value(parameter.name))


def _argument(
    context: Context, event: Event, function: Function, parameter: Parameter, node: ast.expr, value: Value
) -> Iterator[Finding]:
    match parameter.type:
        case Choice():
            yield from _choice(context, function, parameter, parameter.type, node, value)
        case Symbol():
            yield from _symbol(context, function, parameter, parameter.type, node, value)
        case Words(elements=elements):
            yield from _width(function, parameter, elements, node, value)
        case Plain.BYTES:
            yield from _bytes(context, event, function, node)
        case Plain():
            pass


def _choice(
    context: Context, function: Function, parameter: Parameter, choice: Choice, node: ast.expr, value: Value
) -> Iterator[Finding]:
    legal = choice.legal(context.file.vendor)
    wrong = sorted({repr(constant) for constant in value.constants if constant not in legal})
    if legal and wrong:
        what = f"{parameter.name}={' or '.join(wrong)} of {function.name} is none of the legal constants"
        yield finding(Rule.WRONG_CONSTANT, node, what, *map(repr, legal))


def _symbol(
    context: Context, function: Function, parameter: Parameter, symbol: Symbol, node: ast.expr, value: Value
) -> Iterator[Finding]:
    legal = tuple(f"libshmem_device.{constant.name}" for constant in constants_of(symbol, context.file.vendor))
    named = find_constant(context.file.full_path(node))
    if named is not None and named.symbol is not symbol:
        what = f"{parameter.name} of {function.name} is a {symbol.value}, and {named.name} a {named.symbol.value}"
        yield finding(Rule.WRONG_CONSTANT, node, what, *legal)
        return
    if symbol is Symbol.TEAM and not isinstance(node, ast.Constant):
        return
    if not value.constants:
        return
    constant = min(value.constants, key=repr)
    if isinstance(constant, int):
        what = f"{parameter.name}={constant} of {function.name} is a number that differs between vendors"
        yield finding(Rule.LITERAL_CONSTANT, node, what, *legal)
    else:
        what = f"{parameter.name}={constant!r} of {function.name} is a text"
        yield finding(Rule.WRONG_CONSTANT, node, what, *legal)


def _width(
    function: Function, parameter: Parameter, legal: tuple[str, ...], node: ast.expr, value: Value
) -> Iterator[Finding]:
    wrong = sorted(element for element in value.elements if legal and element.dtype not in legal)
    if wrong:
        dtype, line = wrong[0]
        what = f"{parameter.name} of {function.name} is made of {dtype} words (line {line})"
        yield finding(Rule.WRONG_WIDTH, node, what, *legal)


def _bytes(context: Context, event: Event, function: Function, node: ast.expr) -> Iterator[Finding]:
    legal = "x.numel() * x.element_size()"
    if _counts_elements(node):
        yield finding(Rule.BYTES_ARE_ELEMENTS, node, f"{ast.unparse(node)} of {function.name} counts elements", legal)
    elif event.entry is not None and isinstance(node, ast.Name) and event.within is event.entry:
        moved = [element for _, one, value in event.arguments[:2] if one is not node for element in value.elements]
        if any(element.dtype in _ONE_BYTE for element in moved):
            return
        names = [argument.arg for argument in event.entry.parameters]
        for launch in launches_of(context.file, event.entry) if node.id in names else []:
            given = launch_argument(launch, event.entry, node.id)
            if given is not None and _counts_elements(given):
                what = f"{node.id} of {function.name} is {ast.unparse(given)} elements (line {given.lineno})"
                yield finding(Rule.BYTES_ARE_ELEMENTS, node, what, legal)
                return
        if names.count(node.id) and _is_length_of_block(event.entry.node, node.id):
            what = f"{node.id} of {function.name} is the length of a tl.arange, a number of elements"
            yield finding(Rule.BYTES_ARE_ELEMENTS, node, what, legal)


def _counts_elements(node: ast.expr) -> bool:
    """`x.numel()`, and sums of it: a product may hold the size of an element."""
    match node:
        case ast.Call(func=ast.Attribute(attr="numel")):
            return True
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.FloorDiv()):
            return _counts_elements(node.left)
        case _:
            return False


def _is_length_of_block(kernel: ast.FunctionDef, name: str) -> bool:
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "arange"
        and len(node.args) == 2
        and isinstance(node.args[1], ast.Name)
        and node.args[1].id == name
        for node in ast.walk(kernel)
    )
