"""Every operator at every place of a source: what lowering with one bug, or a hand that edits the file, could have written."""

from __future__ import annotations

from collections.abc import Iterator

from tilelink.mutation import expressions, statements
from tilelink.mutation.mutant import SourceMutant
from tilelink.mutation.text import SourceText

_OPERATORS = {one.__name__.replace("_", " "): one for one in (*statements.OPERATORS, *expressions.OPERATORS)}


def source_operators() -> tuple[str, ...]:
    """Names of all operators, in the order in which `mutants` applies them."""
    return tuple(_OPERATORS)


def mutants(source: str) -> Iterator[SourceMutant]:
    """Sources that parse and differ from `source` and from each other in one place; the same ones in the same order each
    time. Only kernels, the helpers that they use and the host class are changed, and no line changes its number.

    Raises NoHostClass.
    """
    text = SourceText(source)
    seen = {source}
    for name, operator in _OPERATORS.items():
        for changes in operator(text):
            mutant = text.mutant(name, changes)
            if mutant is not None and mutant.source not in seen:
                seen.add(mutant.source)
                yield mutant
