"""Write indented source: `line` adds one, `block` indents what follows its header, names are checked once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


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
    def function(self, name: str, parameters: list[str], what: str = "") -> Iterator[None]:
        """A function of the kernel, with `what` it is for; its parameters may be too many for a line."""
        self.call(f"def {name}(", parameters, "):")
        with self._inside():
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

    def call(self, head: str, arguments: list[str], tail: str = ")") -> None:
        """`head` + `a, b, c` + `tail`, one argument a line if it would be too long; `head` ends with its bracket."""
        text = f"{head}{', '.join(arguments)}{tail}"
        if 4 * self._depth + len(text) <= 110:
            self.line(text)
            return
        self.line(head)
        for argument in arguments:
            self.line(f"    {argument},")
        self.line(tail)

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"
