"""Values of arguments, followed from where they are made: widths of words, bytes, and constants that come from elsewhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelink.dialect_api.context import Context
from tilelink.dialect_api.model import Choice, Function, Parameter, Plain, Symbol, Vendor, Words
from tilelink.dialect_api.rule import Finding, Rule, finding
from tilelink.dialect_api.rules.calls import wrong_constant
from tilelink.dialect_api.state import Event
from tilelink.dialect_api.value import Literal, Value

_ONE_BYTE = ("int8", "uint8", "bool", "float8_e4m3fn", "float8_e5m2")


def check(context: Context) -> Iterator[Finding]:
    """Each argument against the type of its parameter."""
    vendor = context.file.vendor
    for event in context.events:
        function = event.function
        if function is None or vendor not in function.vendors:
            continue
        for parameter in function.signature_on(vendor).parameters:
            node, value = event.argument(parameter.name), event.value(parameter.name)
            if node is None:
                continue
            match parameter.type:
                case Choice() | Symbol() if not isinstance(node, ast.Constant) and parameter.type is not Symbol.TEAM:
                    wrong = sorted(
                        {repr(one): one for one in value.constants if _is_illegal(one, parameter, vendor)}.items()
                    )
                    if wrong:
                        yield wrong_constant(node, wrong[0][1], parameter, function, vendor)
                case Words(elements=legal) if legal:
                    yield from _width(function, parameter, legal, node, value)
                case Plain.BYTES:
                    yield from _bytes(context, event, function, node)
                case _:
                    pass


def _is_illegal(constant: Literal, parameter: Parameter, vendor: Vendor) -> bool:
    if isinstance(parameter.type, Choice):
        known = parameter.type.legal(vendor)
        return bool(known) and constant not in known
    return True  # a symbol is no plain number or text


def _width(
    function: Function, parameter: Parameter, legal: tuple[str, ...], node: ast.expr, value: Value
) -> Iterator[Finding]:
    wrong = sorted(element for element in value.elements if element.dtype not in legal)
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
        for launch in context.file.launches_of(event.entry) if node.id in names else []:
            given = launch.argument(event.entry, node.id)
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
