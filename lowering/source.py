"""Write indented source: `line` adds one, `block` indents what follows its header, names are checked once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

WIDTH = 110


@dataclass(frozen=True, slots=True)
class Chain:
    """`parts` joined by an operator, behind `before`: an argument that may take several lines."""

    parts: tuple[str, ...]
    operator: str = "+"
    before: str = ""

    def __str__(self) -> str:
        return self.before + f" {self.operator} ".join(self.parts)


class Source:
    """A printer. The Python that prints is indented like what it prints."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0

    def line(self, text: str = "") -> None:
        self._lines.append("    " * self._depth + text if text else "")

    def comment(self, why: str) -> None:
        self.line(f"# {why}")

    def lines(self, text: str) -> None:
        """Several lines as they are, indented to here."""
        for line in text.splitlines():
            self.line(line)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header)
        with self._inside():
            yield

    @contextmanager
    def condition(self, head: str, arguments: Sequence[str | Chain], tail: str) -> Iterator[None]:
        """A block with a call in its header, which may take several lines."""
        self.call(head, arguments, tail)
        with self._inside():
            yield

    @contextmanager
    def function(self, name: str, parameters: list[str], what: str = "") -> Iterator[None]:
        """A function of the kernel, with `what` it is for; its parameters may be too many for a line."""
        with self.condition(f"def {name}(", parameters, "):"):
            if what:
                self.line(f'"""{what}"""')
            yield

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """The block whose header has just been printed."""
        self._depth += 1
        before = len(self._lines)
        yield
        if len(self._lines) == before:
            self.line("pass")
        self._depth -= 1

    @contextmanager
    def maybe(self, header: str) -> Iterator[None]:
        """A block if `header` is not empty, else nothing."""
        if header:
            with self.block(header):
                yield
        else:
            yield

    def assigned(self, name: str, terms: Sequence[str]) -> None:
        """`name = a + b` in a line, or a term a line; terms but the first begin with their sign."""
        if len(terms) == 1 or self._fits(f"{name} = {' '.join(terms)}"):
            self.line(f"{name} = {' '.join(terms)}")
            return
        self.line(f"{name} = (")
        for term in terms:
            self.line(f"    {term}")
        self.line(")")

    def call(self, head: str, arguments: Sequence[str | Chain], tail: str = ")") -> None:
        """`head` + arguments + `tail` in a line, or an argument a line, or a part of an argument a line; `head` ends with its
        bracket."""
        whole = f"{head}{', '.join(map(str, arguments))}{tail}"
        if self._fits(whole):
            self.line(whole)
            return
        self.line(head)
        for argument in arguments:
            if isinstance(argument, Chain) and len(argument.parts) > 1 and not self._fits(f"    {argument},"):
                first, *rest = argument.parts
                self.line(f"    {argument.before}{first}")
                for number, part in enumerate(rest):
                    self.line(f"    {argument.operator} {part}{',' * (number == len(rest) - 1)}")
            else:
                self.line(f"    {argument},")
        self.line(tail)

    def _fits(self, text: str) -> bool:
        return 4 * self._depth + len(text) <= WIDTH

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"
