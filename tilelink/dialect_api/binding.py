"""Which argument of a call is which parameter."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from tilelink.dialect_api.model import Exact, Parameter, Signature, Unsaid


@dataclass(frozen=True, slots=True)
class Binding:
    """`open` if the call has * or ** arguments, whose number nobody sees."""

    bound: tuple[tuple[Parameter, ast.expr], ...] = ()
    missing: tuple[Parameter, ...] = ()
    duplicate: tuple[ast.keyword, ...] = ()
    unknown: tuple[ast.keyword, ...] = ()
    surplus: tuple[ast.expr, ...] = ()

    def get(self, name: str) -> ast.expr | None:
        return next((value for parameter, value in self.bound if parameter.name == name), None)


def bind(call: ast.Call, signature: Signature) -> Binding:
    """Bind by position, then by keyword, as Python does."""
    match signature:
        case Unsaid():
            return Binding()
        case Exact(parameters):
            return _bind(call, parameters)


def _bind(call: ast.Call, parameters: tuple[Parameter, ...]) -> Binding:
    splat = any(isinstance(argument, ast.Starred) for argument in call.args)
    hidden = splat or any(word.arg is None for word in call.keywords)
    positional = [] if splat else call.args
    bound = list(zip(parameters, positional, strict=False))
    given = {parameter.name for parameter, _ in bound}
    by_name = {parameter.name: parameter for parameter in parameters}
    duplicate, unknown = [], []
    for word in call.keywords:
        if word.arg is None:
            continue
        if word.arg not in by_name:
            unknown.append(word)
        elif word.arg in given:
            duplicate.append(word)
        else:
            given.add(word.arg)
            bound.append((by_name[word.arg], word.value))
    missing = () if hidden else tuple(p for p in parameters if p.required and p.name not in given)
    return Binding(tuple(bound), missing, tuple(duplicate), tuple(unknown), tuple(positional[len(parameters) :]))
