"""Numbers with a name: sizes of tiles, buffers and loops, and places of words, at the top of the printed file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Constants:
    """`taken`: names that mean something else. One name has one value; it is printed once, with what it is."""

    taken: frozenset[str]
    found: dict[str, tuple[int, str]] = field(default_factory=dict)

    def name(self, base: str, value: int, what: str, role: str = "") -> str:
        """What `value` is called: `base`, or that of `role` where `base` is another number already, or else the number."""
        for name in (base, f"{role}_{base}") if role else (base,):
            name = name.upper()
            if name not in self.taken and self.found.setdefault(name, (value, what))[0] == value:
                return name
        return str(value)

    def lines(self, used: Iterable[str]) -> list[str]:
        """Definitions of those that are `used`, in the order in which they were named."""
        kept = set(used)
        return [
            f"{name} = tl.constexpr({value})  # {what}" for name, (value, what) in self.found.items() if name in kept
        ]
