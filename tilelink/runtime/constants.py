"""Named constants of a source, as plain integers, for whoever reads its text: `TILE_M = tl.constexpr(128)` and what follows."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def constants_of(tree: ast.Module) -> dict[str, int]:
    """The integers that a module names at its top level, by name."""
    found: dict[str, int] = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=expression):
                value = number(expression, found)
                if value is not None:
                    found[name] = value
            case _:
                pass
    return found


def number(node: ast.expr, constants: Mapping[str, int]) -> int | None:
    """The integer that an expression of numbers and `constants` is; None for any other expression. On the host a constant may
    be `NAME.value`."""
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return value
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(id=name), attr="value"):
            return constants.get(name)
        case ast.Call(func=ast.Attribute(attr="constexpr"), args=[argument]):
            return number(argument, constants)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            negated = number(operand, constants)
            return None if negated is None else -negated
        case ast.BinOp(left=left, op=op, right=right):
            one, other = number(left, constants), number(right, constants)
            apply = _OPERATORS.get(type(op))
            zero = other == 0 and isinstance(op, ast.FloorDiv | ast.Mod)
            return None if one is None or other is None or apply is None or zero else apply(one, other)
    return None
