"""Calls, as a type checker sees them: the number and names of arguments, and constants as they are written.

Messages of mypy that are about calls of the API become findings, in the words and at the places of this checker.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tilelink.dialect_api.binding import bind
from tilelink.dialect_api.context import Context
from tilelink.dialect_api.functions import constants_of, find, find_constant
from tilelink.dialect_api.model import Choice, Function, Parameter, Symbol, Vendor
from tilelink.dialect_api.rule import Finding, Rule, finding
from tilelink.dialect_api.typecheck import span


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
                    arguments[span(value)] = value, parameter, function
    for message in context.messages:
        if message.span in calls:
            yield from _of_call(context, message.text, *calls[message.span])
        if message.span in arguments and "has incompatible type" in message.text:
            yield from _of_argument(context, *arguments[message.span])


def _of_call(context: Context, message: str, call: ast.Call, function: Function) -> Iterator[Finding]:
    shape = function.text(context.file.vendor)
    names = re.findall(r'"(\w+)"', message.partition(" in call to ")[0])
    words = {word.arg: word for word in call.keywords}
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
        yield finding(Rule.UNKNOWN_KEYWORD, words[names[0]], what, shape)
    elif "gets multiple values for keyword argument" in message:
        what = f"{function.name} is given {names[-1]!r} twice"
        yield finding(Rule.DUPLICATE_ARGUMENT, words[names[-1]], what, shape)


def _of_argument(context: Context, node: ast.expr, parameter: Parameter, function: Function) -> Iterator[Finding]:
    """Constants that are written in the call itself; `values.py` follows those that come from elsewhere."""
    vendor, named = context.file.vendor, find_constant(context.file.full_path(node))
    if named is not None and isinstance(parameter.type, Symbol):
        what = (
            f"{parameter.name} of {function.name} is a {parameter.type.value}, and {named.name} a {named.symbol.value}"
        )
        yield finding(Rule.WRONG_CONSTANT, node, what, *legal(parameter, vendor))
    elif isinstance(node, ast.Constant):
        yield wrong_constant(node, node.value, parameter, function, vendor)


def wrong_constant(node: ast.expr, value: object, parameter: Parameter, function: Function, vendor: Vendor) -> Finding:
    """A constant that is none of the legal ones, or the number of one that has a name."""
    given = f"{parameter.name}={value!r} of {function.name}"
    if isinstance(parameter.type, Symbol) and isinstance(value, int):
        what = f"{given} is a number that differs between vendors"
        return finding(Rule.LITERAL_CONSTANT, node, what, *legal(parameter, vendor))
    return finding(Rule.WRONG_CONSTANT, node, f"{given} is none of the legal constants", *legal(parameter, vendor))


def legal(parameter: Parameter, vendor: Vendor) -> tuple[str, ...]:
    """The constants that a parameter takes, as one would write them; empty where it takes others, or all."""
    match parameter.type:
        case Choice() as choice:
            return tuple(map(repr, choice.legal(vendor)))
        case Symbol() as symbol:
            return tuple(f"libshmem_device.{constant.name}" for constant in constants_of(symbol, vendor))
        case _:
            return ()
