"""Fields of tile loops that the search leaves open, since what is good there follows from all others: how the last tiles are
computed (`halves`), and when tiles are counted (`late`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal, TypeGuard

from tilelink.planner.choices import ComputeChoice, ExchangeChoice, TritonLoop

Field = Literal["halves", "late"]
FIELDS: tuple[Field, ...] = ("halves", "late")


def with_field(option: ComputeChoice, field: Field, value: bool | None) -> ComputeChoice:
    """The option with that field set, or open (None), if it is a tile loop."""
    if not isinstance(option.loop, TritonLoop):
        return option
    loop = replace(option.loop, halves=value) if field == "halves" else replace(option.loop, late=value)
    return replace(option, loop=loop)


def is_open(option: ExchangeChoice | ComputeChoice, field: Field) -> TypeGuard[ComputeChoice]:
    if not (isinstance(option, ComputeChoice) and isinstance(option.loop, TritonLoop)):
        return False
    return (option.loop.halves if field == "halves" else option.loop.late) is None


def settled(option: ExchangeChoice | ComputeChoice) -> ExchangeChoice | ComputeChoice:
    """The option with what is open as it would be without the field: tiles are whole, and are counted at once."""
    for field in FIELDS:
        option = with_field(option, field, False) if is_open(option, field) else option
    return option


def opened(options: list[ComputeChoice]) -> Iterator[ComputeChoice]:
    """Options that differ in these fields alone as one; what a pin has fixed is not open."""
    found = options
    for field in FIELDS:
        held = set(found)
        both = {o for o in found if with_field(o, field, True) in held and with_field(o, field, False) in held}
        found = list(dict.fromkeys(with_field(o, field, None) if o in both else o for o in found))
    yield from found
