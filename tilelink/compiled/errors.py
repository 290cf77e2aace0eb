"""What the check of compiled kernels cannot follow."""

from __future__ import annotations

from tilelink.errors import TileLinkError


class CannotFollow(TileLinkError):
    """The order of a kernel is not known: its trace would depend on data, or it has an operation that is not known here."""

    template = "the compiled kernel cannot be followed at {what}: {text}.\nNothing is said about its order."
