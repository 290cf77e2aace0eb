"""Arguments: their number, names and constants as mypy sees them; widths, bytes and constants as they flow to a call.

Messages of mypy that are about calls of the API become findings, in the words and at the places of this checker.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tilelink.dialect_api.functions import constants_of, find, find_constant
from tilelink.dialect_api.model import Choice, Function, Parameter, Plain, Symbol, Vendor, Words
from tilelink.dialect_api.rule import Finding, Rule, finding
from tilelink.dialect_api.source import bind
from tilelink.dialect_api.state import Event
from tilelink.dialect_api.typecheck import span
from tilelink.dialect_api.value import Literal, Value
from tilelink.dialect_api.walk import Context

_ONE_BYTE = ("int8", "uint8", "bool", "float8_e4m3fn", "float8_e5m2")


def check(context: Context) -> Iterator[Finding]:
    """Every call of an API function, reached by a kernel or not."""
    calls, arguments = {}, {}
    for node in ast.walk(context.file.tree) if context.messages else ():
        if isinstance(node, ast.Call):
            target = node.func.value if isinstance(node.func, ast.Subscript) else node.func
            function = find(context.file.full_path(target))
            if function is not None and context.file.vendor in function.vendors:
                calls[span(node)] = node, function
                for parameter, value in bind(node, function.signature_on(context.file.vendor)):
                    arguments[span(value)] = value, parameter, function, node
    for message in context.messages:
        if message.span in calls:
            yield from _of_call(context, message.text, *calls[message.span])
        if message.span in arguments:
            argument, parameter, function, call = arguments[message.span]
            if "has incompatible type" in message.text:
                yield from _of_argument(context, argument, parameter, function)
            elif message.text.endswith(f'in call to "{function.name}"'):  # where mypy guesses that one was left out
                yield from _of_call(context, message.text, call, function)
    yield from _values(context)


def _of_call(context: Context, message: str, call: ast.Call, function: Function) -> Iterator[Finding]:
    shape = function.text(context.file.vendor)
    names = re.findall(r'"(\w+)"', message.partition(" in call to ")[0])
    words = {word.arg: word for word in call.keywords}
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return  # mypy takes `*` for as many arguments as there may be
    if message.startswith(("Too many arguments", "Too many positional arguments")):
        known = function.signature_on(context.file.vendor).parameters
        node = call.args[len(known)] if len(known) < len(call.args) else call
        yield finding(Rule.TOO_MANY_ARGUMENTS, node, f"{function.name} takes no argument more than {shape}", shape)
    elif message.startswith("Missing positional argument"):
        for name in names:
            what = f"{function.name} lacks its argument {name!r}"
            yield finding(Rule.MISSING_ARGUMENT, call, what, shape, about=name)
    elif message.startswith("Unexpected keyword argument"):
        what = f"{function.name} has no parameter {names[0]!r}"
        yield finding(Rule.UNKNOWN_KEYWORD, words.get(names[0], call), what, shape)
    elif "gets multiple values for keyword argument" in message:
        what = f"{function.name} is given {names[-1]!r} twice"
        yield finding(Rule.DUPLICATE_ARGUMENT, words.get(names[-1], call), what, shape)


def _of_argument(context: Context, node: ast.expr, parameter: Parameter, function: Function) -> Iterator[Finding]:
    """Constants that are written in the call itself; `_values` follows those that come from elsewhere."""
    vendor, named = context.file.vendor, find_constant(context.file.full_path(node))
    if named is not None and isinstance(parameter.type, Symbol):
        what = (
            f"{parameter.name} of {function.name} is a {parameter.type.value}, and {named.name} a {named.symbol.value}"
        )
        yield finding(Rule.WRONG_CONSTANT, node, what, *_legal(parameter, vendor))
    elif isinstance(node, ast.Constant):
        yield _wrong_constant(node, node.value, parameter, function, vendor)


def _wrong_constant(node: ast.expr, value: object, parameter: Parameter, function: Function, vendor: Vendor) -> Finding:
    """A constant that is none of the legal ones, or the number of one that has a name."""
    given = f"{parameter.name}={value!r} of {function.name}"
    if isinstance(parameter.type, Symbol) and isinstance(value, int):
        what = f"{given} is a number that differs between vendors"
        return finding(Rule.LITERAL_CONSTANT, node, what, *_legal(parameter, vendor))
    return finding(Rule.WRONG_CONSTANT, node, f"{given} is none of the legal constants", *_legal(parameter, vendor))


def _legal(parameter: Parameter, vendor: Vendor) -> tuple[str, ...]:
    """The constants that a parameter takes, as one would write them; empty where it takes others, or all."""
    match parameter.type:
        case Choice() as choice:
            return tuple(map(repr, choice.legal(vendor)))
        case Symbol() as symbol:
            return tuple(f"libshmem_device.{constant.name}" for constant in constants_of(symbol, vendor))
        case _:
            return ()


def _values(context: Context) -> Iterator[Finding]:
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
                case Choice() | Symbol() if not isinstance(node, ast.Constant) and parameter.type is not Symbol.TEAM:
                    wrong = [one for one in value.constants if _is_illegal(one, parameter, vendor)]
                    if wrong:
                        yield _wrong_constant(node, min(wrong, key=repr), parameter, function, vendor)
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
    for node in ast.walk(kernel):
        match node:
            case ast.Call(ast.Attribute(attr="arange"), [_, ast.Name(length)]) if length == name:
                return True
            case _:
                pass
    return False
