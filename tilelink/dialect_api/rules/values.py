"""Values as they flow to a call of the API: their constants, the width of words, bytes that are elements."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelink.dialect_api.rule import Finding, Rule, finding
from tilelink.dialect_api.state import Event
from tilelink.dialect_api.value import Value
from tilelink.dialect_api.walk import Context
from tilelink.stubs.functions import legal_of
from tilelink.stubs.model import Choice, Function, Parameter, Plain, Symbol, Words

_ONE_BYTE = ("int8", "uint8", "bool", "float8_e4m3fn", "float8_e5m2")


def check(context: Context) -> Iterator[Finding]:
    """What is known of each argument against the type of its parameter."""
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
                case Choice() | Symbol() as kind if not isinstance(node, ast.Constant) and kind is not Symbol.TEAM:
                    yield from _constant(function, parameter, legal_of(kind, vendor), node, value)
                case Words(elements=legal) if legal:
                    yield from _width(function, parameter, legal, node, value)
                case Plain.BYTES:
                    yield from _bytes(context, event, function, node)


def _constant(
    function: Function, parameter: Parameter, legal: tuple[str, ...], node: ast.expr, value: Value
) -> Iterator[Finding]:
    """Of symbols the names are legal, so that no number or text is; of texts, those that are known."""
    wrong = sorted((one for one in value.constants if repr(one) not in legal), key=repr)
    symbol = isinstance(parameter.type, Symbol)
    if wrong and (legal or symbol):
        rule = Rule.LITERAL_CONSTANT if symbol and isinstance(wrong[0], int) else Rule.WRONG_CONSTANT
        what = f"{parameter.name}={wrong[0]!r} of {function.name} is none of the legal constants"
        yield finding(rule, node, what, *legal)


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
    for node in ast.walk(kernel):
        match node:
            case ast.Call(ast.Attribute(attr="arange"), [_, ast.Name(length)]) if length == name:
                return True
    return False
