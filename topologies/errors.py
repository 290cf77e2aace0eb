"""Every mistake a user can make about a topology: one class each, with what is legal in the message."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?` for the closest of `known`, all lower case, or one that `name` begins; empty where there is none."""
    names = list(known)
    close = difflib.get_close_matches(name.lower(), names, n=1)
    close = close or [one for one in names if name and one.startswith(name.lower())]
    return f" Did you mean {close[0]!r}?" if close else ""


def _rebuild(kind: type[TileLinkError], message: str) -> TileLinkError:
    return kind.__new__(kind, message)


class TileLinkError(Exception):
    """Base of all errors that are a user's to fix, those of every layer: `except tilelink.TileLinkError` catches them all.

    `template` is formatted with `facts`, which stay as an attribute: a caller need not parse prose. `location` is the
    user's file:line where there is one, else empty. It stands here because topologies are the lowest layer.
    """

    template: ClassVar[str] = ""
    exit_code: ClassVar[int] = (
        2  # of a command that ends in it: 1 refuted, 2 bad input, 3 no schedule, 4 a mistake of ours
    )
    facts: dict[str, object]

    def __init__(self, location: object = "", **facts: object) -> None:
        super().__init__(self.template.format(**facts))
        self.facts = facts
        self.location = str(location)

    def __str__(self) -> str:
        text = super().__str__()
        return f"{self.location}: {text}" if self.location else text

    def __reduce__(self) -> tuple[object, ...]:
        # the default would call the class with the message, which __init__ refuses in the receiving process
        return _rebuild, (type(self), *self.args), self.__dict__


UserError = TileLinkError  # its name before it was public


class UnknownTopology(TileLinkError):
    """Facts: name, hint, legal."""

    template = (
        "topology {name!r} is not one that ships with this package.{hint}\n"
        "Legal topologies: {legal}; or the path of a descriptor, such as './mine.toml'."
    )


class UnreadableDescriptor(TileLinkError):
    """Facts: file, reason, legal."""

    template = (
        "topology file {file!r} cannot be read: {reason}.\n"
        "Give the path of a TOML descriptor, or a topology by name: {legal}."
    )


class MalformedDescriptor(TileLinkError):
    """Facts: file; where (the dotted key, or `line n, column m`); reason; legal."""

    template = "topology file {file!r}, {where}: {reason}.\n{legal}"


class IllegalRanks(TileLinkError):
    """Facts: num_ranks, topology, reason, legal."""

    template = "num_ranks={num_ranks} does not fit {topology}: {reason}.\nLegal num_ranks: {legal}."


class IllegalNodes(TileLinkError):
    """Facts: nodes, topology, reason."""

    template = (
        "nodes={nodes} does not fit {topology}: {reason}.\n"
        "Legal: 2 or more, of a topology that is one node, which divide the number of ranks."
    )


class NoSuchPair(TileLinkError):
    """Facts: rank, peer, topology, num_ranks, last_rank."""

    template = (
        "rank={rank} and peer={peer} are not a pair of {topology} with {num_ranks} ranks.\n"
        "Legal: two different ranks of 0..{last_rank}."
    )


class UnknownDtype(TileLinkError):
    """Facts: dtype, gpu, hint, legal."""

    template = "the descriptor of {gpu} has no peak for dtype {dtype!r}.{hint}\nDtypes it has: {legal}."


class NothingDetected(TileLinkError):
    """Facts: found (what this machine has), legal."""

    template = (
        "no topology was detected: {found}.\n"
        "Name one instead ({legal}), or write a descriptor of this machine and give its path, "
        "such as './mine.toml'."
    )


class UnknownGpu(NothingDetected):
    """The GPUs are of one kind, and no descriptor has them. Facts: found, nearest, legal."""

    template = (
        "no topology was detected: {found}.\n"
        "The nearest is {nearest}, whose rates are of another GPU: name it, if a guess will do, or write a descriptor of this "
        "machine (`topo detect --calibrate` measures one) and give its path, such as './mine.toml'. Topologies: {legal}."
    )
