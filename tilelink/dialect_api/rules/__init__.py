"""The rules, one file a family. Each is a generator of findings over a `Context`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilelink.dialect_api.context import Context
from tilelink.dialect_api.rule import Finding
from tilelink.dialect_api.rules import addresses, barriers, calls, equality, names, places, residency, tokens, values

CHECKS: tuple[Callable[[Context], Iterator[Finding]], ...] = (
    names.check,
    calls.check,
    values.check,
    addresses.check,
    tokens.check,
    barriers.check,
    equality.check,
    residency.check,
    places.check,
)
