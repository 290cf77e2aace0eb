"""Text of Triton's IR, of any stage, as operations with regions. MLIR prints one operation a line, which is what is read here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

VALUE = r"%[\w$.\-]+(?:#\d+)?"
_VALUES = re.compile(VALUE)
_RESULTS = re.compile(r"^((?:%[\w$.\-]+(?::\d+)?(?:, )?)+) = ")
_NAME = re.compile(r'^"?([\w.]+)"?')
_CALLEE = re.compile(r'@("(?:[^"\\]|\\.)*"|[\w$.\-]+)')
_LABEL = re.compile(r"^(\^[\w]+)(?:\((.*)\))?:")
_LOCATION = re.compile(r' loc\((?:[^()"]|"[^"]*"|\([^()]*\))*\)')

# operations whose results are all that they are for: what nobody reads need not be computed
_PURE = ("arith.", "math.", "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.make_range", "tt.addptr", "ub.poison")


@dataclass(slots=True)
class Op:
    """`results = name(operands)`: `text` is the line without results, `types` what stands behind the last colon."""

    name: str
    results: list[str]
    operands: list[str]
    text: str
    types: str
    regions: list[Region] = field(default_factory=list)


@dataclass(slots=True)
class Block:
    label: str
    arguments: list[str]
    ops: list[Op] = field(default_factory=list)


@dataclass(slots=True)
class Region:
    """`blocks[0]` is where it begins; most regions have no other."""

    blocks: list[Block]


@dataclass(slots=True)
class Function:
    """`parameters` with their types."""

    name: str
    parameters: list[tuple[str, str]]
    body: Region
    public: bool


class _Lines:
    """The lines of a module, without locations, and how far they are read."""

    def __init__(self, text: str) -> None:
        self.lines = [_LOCATION.sub("", line).strip() for line in text.splitlines()]
        self.at = 0

    def peek(self) -> str:
        return self.lines[self.at] if self.at < len(self.lines) else "}"

    def take(self) -> str:
        self.at += 1
        return self.lines[self.at - 1]


def parse(text: str) -> dict[str, Function]:
    """The functions of a module, by name."""
    lines, found = _Lines(text), {}
    while lines.at < len(lines.lines):
        line = lines.take()
        if line.startswith("tt.func"):
            function = _function(lines, line)
            found[function.name] = function
    return found


def _function(lines: _Lines, line: str) -> Function:
    name = _callee(line)
    signature = line[line.index(name) + len(name) :].lstrip('"')
    parameters = [_parameter(one) for one in split(_inside(signature, "("))]
    region, _ = _region(lines, [])
    _without_unread(region)
    return Function(name, parameters, region, "public" in line.split("@")[0])


def _parameter(text: str) -> tuple[str, str]:
    name, _, rest = text.partition(":")
    return name.strip(), re.split(r" \{", rest, maxsplit=1)[0].strip()


def _inside(text: str, opening: str) -> str:
    """What stands between the first bracket of this kind and the one that closes it."""
    closing = {"(": ")", "[": "]"}[opening]
    start = text.index(opening)
    depth = 0
    for end in range(start, len(text)):
        depth += (text[end] == opening) - (text[end] == closing)
        if depth == 0:
            return text[start + 1 : end]
    raise ValueError(f"no {closing} in {text}")


def split(text: str) -> list[str]:
    """At commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "<([{") - (letter in ">)]}" and text[at - 1 : at + 1] != "->")
        if letter == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def _callee(text: str) -> str:
    found = _CALLEE.search(text)
    assert found is not None, text
    return found[1].strip('"')


def _region(lines: _Lines, arguments: list[str]) -> tuple[Region, str]:
    """The lines up to the bracket that closes the region, and that line."""
    blocks = [Block("", arguments)]
    while True:
        line = lines.peek()
        if line.startswith("}"):
            return Region(blocks), lines.take()
        lines.take()
        if not line or line.startswith("//"):
            continue
        label = _LABEL.match(line)
        if label is not None:
            names = [one.split(":")[0].strip() for one in split(label[2] or "")]
            if blocks[-1].ops or blocks[-1].label:
                blocks.append(Block(label[1], names))
            else:
                blocks[-1] = Block(label[1], names)
            continue
        blocks[-1].ops.append(_op(lines, line))


def _op(lines: _Lines, line: str) -> Op:
    results: list[str] = []
    found = _RESULTS.match(line)
    if found is not None:
        for one in found[1].split(", "):
            value, _, count = one.partition(":")
            results += [f"{value}#{number}" for number in range(int(count))] if count else [value]
        line = line[found.end() :]
    named = _NAME.match(line)
    assert named is not None, line
    name = named[1]
    opens = line.endswith("{")
    text = line.removesuffix("{").removesuffix("(").rstrip()
    op = Op(name, results, _VALUES.findall(text), text, text.rpartition(" : ")[2])
    if name == "ttg.warp_specialize":
        _partitions(lines, op)
    elif opens:
        first = _carried(text) if name in ("scf.for", "scf.while") else []
        region, closing = _region(lines, [name for name, _ in first])
        op.regions.append(region)
        while closing.endswith("{"):
            region, closing = _region(lines, [])
            op.regions.append(region)
        if closing.startswith("})"):
            op.types = closing.rpartition(" : ")[2]
    return op


def _partitions(lines: _Lines, op: Op) -> None:
    while lines.peek().startswith(("default", "partition")):
        header = lines.take()
        arguments = [one.split(":")[0].strip() for one in split(_inside(header, "("))] if "(" in header else []
        op.regions.append(_region(lines, arguments)[0])


def _carried(text: str) -> list[tuple[str, str]]:
    """(name inside, value outside) of what a loop carries."""
    found = re.search(r"iter_args(\(.*)|scf\.while (\(.*)", text)
    if found is None:
        return []
    inside = _inside(found[1] or found[2], "(")
    return [(a.strip(), b.strip()) for a, _, b in (one.partition("=") for one in split(inside))]


def carried(op: Op) -> list[tuple[str, str]]:
    """(name inside, value outside) of what the loop `op` carries."""
    return _carried(op.text)


def callee(op: Op) -> str:
    """Name of the function that `op` calls."""
    return _callee(op.text)


def call_arguments(op: Op) -> list[str]:
    """Values that a call passes."""
    text = op.text[op.text.index("@") :]
    found = _CALLEE.match(text)
    assert found is not None
    return _VALUES.findall(_inside(text[found.end() :], "("))


def every_op(region: Region) -> Iterable[Op]:
    """The operations of a region and of those in it, in the order of the text."""
    for block in region.blocks:
        for op in block.ops:
            yield op
            for inner in op.regions:
                yield from every_op(inner)


def _without_unread(region: Region) -> None:
    """Drop pure operations whose results nobody reads, such as checks for overflow that are switched off."""
    while True:
        read = {name for op in every_op(region) for name in op.operands}
        if not _keep(region, lambda op, read=read: not op.name.startswith(_PURE) or any(r in read for r in op.results)):  # type: ignore[misc]
            return


def _keep(region: Region, wanted: Callable[[Op], bool]) -> bool:
    changed = False
    for block in region.blocks:
        kept = [op for op in block.ops if wanted(op)]
        changed |= len(kept) < len(block.ops)
        block.ops = kept
        for op in kept:
            for inner in op.regions:
                changed |= _keep(inner, wanted)
    return changed
