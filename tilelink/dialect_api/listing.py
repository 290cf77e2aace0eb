"""Every module of the public repository and the names in it, from `names.txt`: what exists there, of which no more is known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Listed:
    """`whole`: the module has no other names."""

    names: tuple[str, ...]
    whole: bool

    def __contains__(self, name: str) -> bool:
        return name in self.names


def _read() -> dict[str, Listed]:
    found = {}
    for line in (Path(__file__).parent / "names.txt").read_text(encoding="utf-8").splitlines():
        path, _, names = line.partition(":")
        if not line.startswith("#"):
            found[path.rstrip("!")] = Listed(tuple(names.split()), path.endswith("!"))
    return found


LISTED = _read()  # by import path
