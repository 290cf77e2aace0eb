"""Sizes that only bounds of slices have: in a small form they cut in the same proportion as at full size."""

from __future__ import annotations

from collections.abc import Mapping

import sympy

from tilelink.ir.spec import Slice, Spec


def in_proportion(spec: Spec, small: Mapping[str, int], full: Mapping[str, int]) -> dict[str, int]:
    """The `small` sizes, of which those that no input has are as large, compared with what they cut, as the `full` ones."""
    shapes = {value.name: value.shape for value in (*spec.inputs, *(node.output for node in spec.nodes))}
    known = {str(symbol) for value in spec.inputs for extent in value.shape for symbol in extent.free_symbols}
    found = dict(small)
    for node in spec.nodes:
        if not isinstance(node.operation, Slice):
            continue
        extent = shapes[node.inputs[0]][node.operation.dim]
        for bound in (node.operation.start, node.operation.stop):
            for name in sorted(str(symbol) for symbol in sympy.sympify(bound).free_symbols if str(symbol) not in known):
                found[name] = max(1, full[name] * _at(extent, found) // _at(extent, full))
                known.add(name)
    return found


def _at(extent: sympy.Expr, sizes: Mapping[str, int]) -> int:
    return int(extent.subs({symbol: sizes[str(symbol)] for symbol in extent.free_symbols}))
