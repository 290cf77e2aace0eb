"""Numbers of a schedule -> named constants of the emitted file, said as expressions of each other where they follow."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from lowering.source import Source
from tilelink.ir.schedule import Schedule


class Group(IntEnum):
    """Sections of constants, in the order of the file. A constant follows from those of its own section and of earlier ones."""

    CHOSEN = 0
    SIZES = 1
    LOOPS = 2
    BUFFERS = 3
    WORDS = 4


_TITLES = {
    Group.CHOSEN: "choices of the planner: change them here, and the constants below follow",
    Group.SIZES: "sizes of tensors, ranks and machine: fixed by the schedule",
    Group.LOOPS: "tiles, chunks and programs",
    Group.BUFFERS: "strides, in elements",
    Group.WORDS: "layout of signals and counts, in words",
}


POOL_PLACES = (
    4  # for an output in a pool; `Pool` of lowering/host/pool.py has them, and a published word two bits for one
)
_WIDTH = 106  # of a line with its comment, without what stands between them


@dataclass(frozen=True, slots=True)
class Constant:
    """`name = text` with `value`; `why` says what it counts."""

    name: str
    value: int
    text: str
    why: str
    group: Group

    @property
    def needs(self) -> set[str]:
        """Constants that its text names."""
        return set(re.findall(r"[A-Za-z_]\w*", self.text))


class Constants:
    """The constants of one file. Printers ask for a name where they print a number; what is named is defined at the top.

    `taken` are names that the user's own functions read. Two numbers that would have one name are told apart by their value.
    """

    def __init__(self, schedule: Schedule, taken: Iterable[str] = ()) -> None:
        self.schedule = schedule
        self._taken = frozenset(taken)
        self._found: dict[str, Constant] = {}
        self._required: dict[str, str] = {}

    def name(self, name: str, value: int, why: str, group: Group, text: str = "") -> str:
        """The name of `value`. `text` is an expression of constants that exist already; one that has another value than that
        is left out."""
        name = name.upper()
        if name in self._taken or (name in self._found and self._found[name].value != value):
            name = f"{name}_{value}"
        if name not in self._found:
            text = text if text and self.value(text) == value else str(value)
            self._found[name] = Constant(name, value, text, why, group)
        return name

    def value(self, text: str) -> int:
        """What an expression of constants is."""
        known = {name: constant.value for name, constant in self._found.items()}
        return int(eval(text, {"__builtins__": {}}, known))

    def require(self, text: str, why: str) -> None:
        """The code holds only if `text`, an expression of constants, is true, as it is now: `why`."""
        assert self.value(text), f"{text} does not hold"
        self._required.setdefault(text, why)

    def text(self, used: str) -> str:
        """Definitions of what the source `used` names, and of what those follow from; then what the code relies on."""
        wanted = self._closure(set(re.findall(r"[A-Z]\w*", used)))
        required = [(text, why) for text, why in self._required.items() if self._leaves(_names(text)) <= wanted]
        wanted |= self._closure({name for text, _ in required for name in _names(text)})
        out = Source()
        for group in Group:
            constants = [
                constant for name, constant in self._found.items() if name in wanted and constant.group is group
            ]
            if group is Group.CHOSEN:
                constants.sort(key=lambda constant: "TILE_" not in constant.name)
            if constants:
                out.line()
                out.comment(_TITLES[group])
            for constant in constants:
                text = f"tl.constexpr({constant.text})" if constant.text.isdigit() else constant.text
                line = f"{constant.name} = {text}"
                if len(line) + len(constant.why) < _WIDTH:
                    out.line(f"{line}  # {constant.why}")
                else:
                    out.comment(constant.why)
                    out.line(line)
        if required:
            out.line()
            out.comment("the code below relies on these; where one does not hold, emit another file")
        for text, why in required:
            out.line(f'assert {text}, "{why}"')
        return out.text().strip("\n")

    def _leaves(self, names: set[str]) -> set[str]:
        """Constants from which `names` follow, and which follow from no others."""
        return {name for name in self._closure(names) if not self._found[name].needs}

    def _closure(self, names: set[str]) -> set[str]:
        wanted: set[str] = set()
        waiting = [name for name in names if name in self._found]
        while waiting:
            name = waiting.pop()
            if name not in wanted:
                wanted.add(name)
                waiting += self._found[name].needs & self._found.keys()
        return wanted


def on_host(text: str) -> str:
    """The expression of constants `text` as host code has it, in plain integers."""
    return re.sub(r"[A-Za-z_]\w*", r"\g<0>.value", text)


def _names(text: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
