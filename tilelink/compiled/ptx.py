"""Text of PTX as instructions; labels of inner scopes, which inline assembly repeats, get names of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|^\s*\.(?:loc|file|pragma)\b[^\n]*$", re.DOTALL | re.MULTILINE)
_LABEL = re.compile(r"^\s*([$\w]+):(?!:)")
_GUARD = re.compile(r"^@(!?)(%?[\w$]+)\s+")
_THREADS = re.compile(r"\.(?:reqntid|maxntid)\s+(\d+)")
_ENTRY = re.compile(r"\.entry\s+([\w$]+)")


@dataclass(frozen=True, slots=True)
class Instruction:
    """`@guard opcode operands`; an operand in braces is a tuple, one in brackets an address `[...]`."""

    guard: str
    inverted: bool
    opcode: str
    operands: tuple[str | tuple[str, ...], ...]
    text: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """The instructions of a kernel and where its labels are among them."""

    name: str
    threads: int
    instructions: list[Instruction]
    labels: dict[str, int]


def parse_ptx(text: str) -> Kernel:
    """The one kernel of a module."""
    text = _COMMENT.sub("", text)
    entry, threads = _ENTRY.search(text), _THREADS.search(text)
    assert entry is not None and threads is not None, "the module has no kernel"
    body = text[text.index("{", threads.end()) + 1 :]
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    branches: list[tuple[int, tuple[int, ...]]] = []
    for statement, scope in _statements(body):
        found = _LABEL.match(statement)
        while found is not None:
            labels[_scoped(found[1], scope)] = len(instructions)
            statement = statement[found.end() :].strip()
            found = _LABEL.match(statement)
        if not statement or statement.startswith("."):
            continue
        instruction = _instruction(statement)
        if instruction.opcode.startswith("bra"):
            branches.append((len(instructions), scope))
        instructions.append(instruction)
    for at, scope in branches:
        instructions[at] = _resolved(instructions[at], scope, labels)
    return Kernel(entry[1], int(threads[1]), instructions, labels)


def _scoped(label: str, scope: tuple[int, ...]) -> str:
    return "@".join([label, *map(str, scope)])


def _resolved(branch: Instruction, scope: tuple[int, ...], labels: dict[str, int]) -> Instruction:
    """The branch to the label of that name in the innermost scope that has one."""
    name = str(branch.operands[0])
    for depth in range(len(scope), -1, -1):
        label = _scoped(name, scope[:depth])
        if label in labels:
            return Instruction(branch.guard, branch.inverted, branch.opcode, (label,), branch.text)
    raise AssertionError(f"no label {name}")


def _statements(body: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Statements with the numbers of the scopes around them. A brace at the start of a statement opens a scope, one inside of
    it holds operands."""
    scope: list[int] = []
    count, start, at, depth = 0, 0, 0, 0
    while at < len(body):
        letter = body[at]
        pending = body[start:at].strip()
        if letter == "{" and (not pending or pending.endswith(":")):
            if pending:
                yield pending, tuple(scope)
            count += 1
            scope.append(count)
            start = at + 1
        elif letter == "{":
            depth += 1
        elif letter == "}" and depth:
            depth -= 1
        elif letter == "}":
            if pending:
                yield pending, tuple(scope)
            if not scope:
                return
            scope.pop()
            start = at + 1
        elif letter == ";":
            if pending:
                yield pending, tuple(scope)
            start = at + 1
        at += 1


def _instruction(statement: str) -> Instruction:
    text = " ".join(statement.split())
    found = _GUARD.match(text)
    rest = text[found.end() :] if found is not None else text
    opcode, _, operands = rest.partition(" ")
    guard, inverted = (found[2], bool(found[1])) if found is not None else ("", False)
    return Instruction(guard, inverted, opcode, tuple(_operands(operands)), text)


def _operands(text: str) -> Iterator[str | tuple[str, ...]]:
    depth, start = 0, 0
    for at, letter in enumerate(f"{text},"):
        depth += (letter in "{[(") - (letter in "}])")
        if letter == "," and depth == 0:
            one = text[start:at].strip()
            start = at + 1
            if one.startswith("{"):
                yield tuple(part.strip() for part in one.strip("{} ").split(","))
            elif one:
                yield one
