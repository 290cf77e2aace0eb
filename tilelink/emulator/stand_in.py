"""What host code holds in the emulator in place of an object of a GPU library's."""

from __future__ import annotations


class StandIn:
    """A name that such an object lacks is a gap of the emulator, not a mistake of the file."""
