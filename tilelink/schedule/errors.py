"""What a schedule cannot be made of: one class each, with what is legal."""

from __future__ import annotations

from topologies.errors import TileLinkError


class UnknownDim(TileLinkError):
    template = "{schedule} has no dim {name!r}.{hint}\nLegal: {legal}."


class DerivedDim(TileLinkError):
    template = (
        "{name} of {schedule} is {text}: a value of its own would not be what the steps rely on.\n"
        "Legal: values for {legal}, from which it follows."
    )


class NotAMultiple(TileLinkError):
    template = (
        "{name}={value} of {schedule} is no multiple of {by}={number}: the steps have no masks for what would be left over.\n"
        "Legal: multiples of {number}."
    )


class NoSmallForm(TileLinkError):
    template = (
        "{schedule} has no small form: {reason}, so that at other sizes its steps would not be those of a schedule.\n"
        "Legal: plan the operator at small sizes instead."
    )
