"""Which argument of a call is which parameter."""

from __future__ import annotations

import ast

from tilelink.dialect_api.model import Parameter, Signature


def bind(call: ast.Call, signature: Signature) -> list[tuple[Parameter, ast.expr]]:
    """By position up to the first `*`, then by keyword; what fits no parameter is left out."""
    plain = [] if any(isinstance(argument, ast.Starred) for argument in call.args) else call.args
    bound = list(zip(signature.parameters, plain, strict=False))
    rest = {parameter.name: parameter for parameter in signature.parameters[len(bound) :]}
    return bound + [(rest[word.arg], word.value) for word in call.keywords if word.arg in rest]
