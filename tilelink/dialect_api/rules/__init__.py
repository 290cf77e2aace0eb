"""The rules, one file a family. Each is a generator of findings over a `Context`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilelink.dialect_api.context import Context
from tilelink.dialect_api.finding import Finding
from tilelink.dialect_api.rules import addresses, arguments, barriers, equality, names, places, residency, tokens, types

CHECKS: tuple[Callable[[Context], Iterator[Finding]], ...] = (
    names.check,
    arguments.check,
    types.check,
    addresses.check,
    tokens.check,
    barriers.check,
    equality.check,
    residency.check,
    places.check,
)
