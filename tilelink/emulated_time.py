"""How long emulated ranks take at least, by the size of what they compute: to refuse hours before they begin."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise

from tilelink.cli_errors import TooLongToEmulate
from tilelink.ir.spec import BoundSpec, Matmul

# of one core, measured on emitted kernels; kernels that look at single words take ten times as long
_ELEMENTS_PER_S = 3e6
_PRODUCTS_PER_S = 2.5e9
_TOLD_FROM_S = 20.0

Shape = Sequence[int]


def of_spec(spec: BoundSpec, calls: int) -> float:
    """Seconds of `calls` calls of all ranks, at least."""
    elements = sum(math.prod(value.local) for value in spec.inputs)
    products = 0
    for node in spec.nodes:
        if isinstance(node.operation, Matmul):
            left, right = (spec.value(name) for name in node.inputs)
            contracted = right.local[1 if node.operation.transposed else 0]
            products += left.local[0] * contracted * node.output.local[1]
    return _seconds(elements, products, spec.num_ranks * calls)


def of_inputs(shapes: Iterable[Shape], num_ranks: int, calls: int) -> float:
    """Seconds of `calls` calls of all ranks, at least, of an operator of which only the local inputs are known: matrices that
    have an extent in common are taken to be multiplied."""
    known = [tuple(shape) for shape in shapes]
    matrices = [shape for shape in known if len(shape) == 2]
    products = 0
    for left, right in pairwise(matrices):
        if left[1] in right:
            products += left[0] * math.prod(right)
    return _seconds(sum(map(math.prod, known)), products, num_ranks * calls)


def _seconds(elements: int, products: int, times: int) -> float:
    return times * (elements / _ELEMENTS_PER_S + products / _PRODUCTS_PER_S)


def announce(what: str, seconds: float, most_minutes: float, legal: str) -> None:
    """Say on stderr what takes long. Raises TooLongToEmulate."""
    if seconds > 60 * most_minutes:
        raise TooLongToEmulate(what=what, time=_text(seconds), most=f"{most_minutes:g}", legal=legal)
    if seconds > _TOLD_FROM_S:
        print(f"{what}: at least {_text(seconds)}", file=sys.stderr, flush=True)


def _text(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:,.0f} h"
