"""PTX of ours in TTGIR, and how the elements that it is run for lie in threads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tilelink.compiled.errors import CannotFollow

_ALIAS = re.compile(r"^(#\w+) = (#.*)$", re.MULTILINE)
_OPERATION = re.compile(
    r'tt\.elementwise_inline_asm "(?P<text>[^"]*)" \{[^}]*\} (?P<operands>%[^:]*) : '
    r"tensor<(?P<shape>[0-9x]+)x\w+, (?P<layout>#\w+)>"
)
OPERAND = re.compile(r"%[\w$.-]+(?:#\d+)?")
_LIST = r"{} = \[([^\]]*)\]"
_BASES = r"{} = \[((?:\[[-0-9, ]*\](?:, )?)*)\]"


@dataclass(frozen=True, slots=True)
class Assembly:
    """PTX that runs for each element of tensors of `shape`, in `layout`; it begins at place `at` of the text."""

    text: str
    operands: tuple[str, ...]
    shape: tuple[int, ...]
    layout: str
    at: int


def assembly_in(ttgir: str) -> Iterator[Assembly]:
    """All of it, in the order of the text."""
    layouts = dict(_ALIAS.findall(ttgir))
    for found in _OPERATION.finditer(ttgir):
        shape, operands = tuple(map(int, found["shape"].split("x"))), tuple(OPERAND.findall(found["operands"]))
        yield Assembly(found["text"], operands, shape, layouts[found["layout"]], found.start())


def numbers(layout: str, name: str) -> list[int]:
    """The list of that name, one number for each dimension. Raises CannotFollow."""
    found = re.search(_LIST.format(name), layout)
    if found is None:
        raise CannotFollow(what="a layout", text=layout)
    return [int(one) for one in found[1].split(",")]


def bases(layout: str, name: str) -> list[tuple[int, ...]]:
    """Of a linear layout: how far each bit of the register, of the lane or of the warp goes along each dimension."""
    found = re.search(_BASES.format(name), layout)
    each = re.findall(r"\[([-0-9, ]*)\]", found[1]) if found else []
    return [tuple(int(number) for number in base.split(",")) for base in each]
