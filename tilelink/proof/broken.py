"""Where a rule is broken."""

from __future__ import annotations

from typing import NamedTuple


class Broken(NamedTuple):
    """`fact`: what stands there, a sentence without its full stop; `signal`: the one concerned, if any."""

    where: str
    fact: str
    signal: str = ""
