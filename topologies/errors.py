"""Every mistake a user can make about a topology: one class each, with what is legal in the message."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?` for the closest of `known`, all lower case; empty where none is close."""
    close = difflib.get_close_matches(name.lower(), list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _rebuild(kind: type[UserError], message: str) -> UserError:
    return kind.__new__(kind, message)


class UserError(Exception):
    """Base of all errors that are a user's to fix.

    `template` is formatted with `facts`, which stay as an attribute: a caller need not parse prose.
    """

    template: ClassVar[str] = ""
    facts: dict[str, object]

    def __init__(self, **facts: object) -> None:
        super().__init__(self.template.format(**facts))
        self.facts = facts

    def __reduce__(self) -> tuple[object, ...]:
        # the default would call the class with the message, which __init__ refuses in the receiving process
        return _rebuild, (type(self), *self.args), self.__dict__


class UnknownTopology(UserError):
    """Facts: name, hint, legal."""

    template = (
        "topology {name!r} is not one that ships with this package.{hint}\n"
        "Legal topologies: {legal}; or the path of a descriptor, such as './mine.toml'."
    )


class UnreadableDescriptor(UserError):
    """Facts: file, reason, legal."""

    template = (
        "topology file {file!r} cannot be read: {reason}.\n"
        "Give the path of a TOML descriptor, or a topology by name: {legal}."
    )


class MalformedDescriptor(UserError):
    """Facts: file; where (the dotted key, or `line n, column m`); reason; legal."""

    template = "topology file {file!r}, {where}: {reason}.\n{legal}"


class IllegalRanks(UserError):
    """Facts: num_ranks, topology, reason, legal."""

    template = "num_ranks={num_ranks} does not fit {topology}: {reason}.\nLegal num_ranks: {legal}."


class NoSuchPair(UserError):
    """Facts: rank, peer, topology, num_ranks, last_rank."""

    template = (
        "rank={rank} and peer={peer} are not a pair of {topology} with {num_ranks} ranks.\n"
        "Legal: two different ranks of 0..{last_rank}."
    )


class UnknownDtype(UserError):
    """Facts: dtype, gpu, hint, legal."""

    template = "the descriptor of {gpu} has no peak for dtype {dtype!r}.{hint}\nDtypes it has: {legal}."


class NothingDetected(UserError):
    """Facts: found (what this machine has), legal."""

    template = (
        "no topology was detected: {found}.\n"
        "Name one instead ({legal}), or write a descriptor of this machine and give its path, "
        "such as './mine.toml'."
    )
