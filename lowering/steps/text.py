"""Source text of kernels, whose addresses may be longer than a line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lowering.source import Source

WIDTH = 110


@dataclass(frozen=True, slots=True)
class Chain:
    """`parts` joined by an operator, behind `before`: an argument that may take several lines."""

    parts: tuple[str, ...]
    operator: str = "+"
    before: str = ""

    def __str__(self) -> str:
        return self.before + f" {self.operator} ".join(self.parts)


class Text(Source):
    @contextmanager
    def condition(self, head: str, arguments: list[str | Chain], tail: str) -> Iterator[None]:
        """A block with a call in its header, which may take several lines."""
        self.wrapped(head, arguments, tail)
        with self._inside():
            yield

    def wrapped(self, head: str, arguments: list[str | Chain], tail: str = ")") -> None:
        """`head` + arguments + `tail` in a line, or an argument a line, or a part of an argument a line."""
        whole = f"{head}{', '.join(map(str, arguments))}{tail}"
        if 4 * self._depth + len(whole) <= WIDTH:
            self.line(whole)
            return
        self.line(head)
        for argument in arguments:
            too_long = 4 * self._depth + len(str(argument)) + 5 > WIDTH
            if isinstance(argument, Chain) and len(argument.parts) > 1 and too_long:
                first, *rest = argument.parts
                self.line(f"    {argument.before}{first}")
                for number, part in enumerate(rest):
                    self.line(f"    {argument.operator} {part}{',' * (number == len(rest) - 1)}")
            else:
                self.line(f"    {argument},")
        self.line(tail)
