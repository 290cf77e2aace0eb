"""The text of PTX as instructions: labels, predicates, registers, immediates, addresses, vectors.

    again:                                            labels = {"again": 0}
    atom.global.release.sys.cas.b32 %old, [$1+4], 0, 1;   opcode "atom", modifiers, a register, an address, two immediates
    @!%free bra again;                                guard "%free", negated

Scopes in braces are one scope here: a snippet that declares one name twice is refused.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass


class UnknownInstruction(ValueError):
    """What has no meaning here, and its line in the snippet, from 1."""

    def __init__(self, statement: str, line: int) -> None:
        self.statement = statement
        self.line = line
        super().__init__(f"line {line}: {statement}")


@dataclass(frozen=True, slots=True)
class Register:
    """`$0` (an operand of the snippet), or a name that it declares."""

    name: str


@dataclass(frozen=True, slots=True)
class Special:
    """`%tid.x`, `%globaltimer`, …"""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """The bits of an integer, or of a float that is written in hexadecimal."""

    bits: int


@dataclass(frozen=True, slots=True)
class Address:
    base: Register | Immediate
    offset: int  # in bytes


@dataclass(frozen=True, slots=True)
class Vector:
    parts: tuple[Register | Immediate, ...]


@dataclass(frozen=True, slots=True)
class Label:
    name: str


Operand = Register | Special | Immediate | Address | Vector | Label


@dataclass(frozen=True, slots=True)
class Instruction:
    text: str  # without its guard
    line: int
    opcode: str
    modifiers: tuple[str, ...]
    guard: str  # the predicate that lets it happen; empty: it always does
    negated: bool  # it happens where the guard is false
    operands: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Program:
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]  # index of the instruction behind each

    @property
    def loops(self) -> bool:
        """Whether some branch goes back."""
        return any(
            self.labels[operand.name] <= index
            for index, instruction in enumerate(self.instructions)
            for operand in instruction.operands
            if isinstance(operand, Label)
        )

    def reads(self, *names: str) -> bool:
        """Whether an instruction uses a special register whose name starts with one of `names`."""
        operands = (operand for instruction in self.instructions for operand in instruction.operands)
        return any(isinstance(one, Special) and one.name.startswith(names) for one in operands)


_NAME = r"[$%A-Za-z_][\w$%]*"
_LABEL = re.compile(rf"({_NAME})\s*:(?!:)")
_DECLARED = re.compile(rf"({_NAME})(?:<(\d+)>)?")
_SPECIAL = re.compile(
    r"%(?:n?tid|n?ctaid)\.[xyz]|%(?:laneid|warpid|nwarpid|smid|nsmid|clock|clock64|globaltimer|globaltimer_lo|globaltimer_hi)"
)
_ADDRESS = re.compile(rf"\[\s*({_NAME}|\d+)\s*(?:([+-])\s*(-?\w+))?\s*\]")
_INTEGER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)U?")


def read(assembly: str) -> Program:
    """Raises `UnknownInstruction` for what is not written as an instruction, a label or a declaration of registers."""
    return _Reader(_without_comments(assembly)).program()


def _without_comments(text: str) -> str:
    text = re.sub(r"/\*.*?\*/", lambda comment: "\n" * comment[0].count("\n"), text, flags=re.DOTALL)
    return re.sub(r"//[^\n]*", "", text).replace("${:uid}", "0").replace("$$", "$")


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._instructions: list[Instruction] = []
        self._labels: dict[str, int] = {}
        self._registers: set[str] = set()

    def program(self) -> Program:
        """The whole text."""
        at = 0
        while (found := re.compile(r"[^\s;{}]").search(self._text, at)) is not None:
            at = found.start()
            line = self._text.count("\n", 0, at) + 1
            label = _LABEL.match(self._text, at)
            if label is not None:
                if label[1] in self._labels:
                    raise UnknownInstruction(f"a second label {label[1]}", line)
                self._labels[label[1]] = len(self._instructions)
                at = label.end()
                continue
            end = self._text.find(";", at)
            end = len(self._text) if end < 0 else end
            text = re.sub(r"\s+", " ", self._text[at:end]).strip()
            while text.count("}") > text.count("{"):  # of a scope, behind a statement without a semicolon
                text = text.rstrip("} ") + "}" * text.count("{")
            self._statement(text, line)
            at = end
        for instruction in self._instructions:
            for operand in instruction.operands:
                if isinstance(operand, Label) and operand.name not in self._labels:
                    raise UnknownInstruction(instruction.text, instruction.line)
        return Program(tuple(self._instructions), dict(self._labels))

    def _statement(self, text: str, line: int) -> None:
        if text.startswith(".reg"):
            self._declare(text, line)
            return
        guard, negated = "", False
        guarded = re.match(rf"@(!?)\s*({_NAME})\s+", text)
        if guarded is not None:
            guard, negated, text = guarded[2], bool(guarded[1]), text[guarded.end() :]
            self._known(guard, text, line)
        head, _, rest = text.partition(" ")
        opcode, *modifiers = head.split(".")
        if not re.fullmatch(r"[a-z]\w*", opcode):
            raise UnknownInstruction(text, line)
        operands = tuple(self._operand(one, opcode, text, line) for one in _split(rest))
        self._instructions.append(Instruction(text, line, opcode, tuple(modifiers), guard, negated, operands))

    def _declare(self, text: str, line: int) -> None:
        """`.reg .b32 %a, %b<3>;`"""
        for one in _split(text.split(maxsplit=2)[-1]):
            match = _DECLARED.fullmatch(one)
            if match is None:
                raise UnknownInstruction(text, line)
            names = [f"{match[1]}{number}" for number in range(int(match[2]))] if match[2] else [match[1]]
            if self._registers.intersection(names):
                raise UnknownInstruction(f"a second register {names[0]}", line)
            self._registers.update(names)

    def _known(self, name: str, text: str, line: int) -> Register:
        if not re.fullmatch(r"\$\d+|_", name) and name not in self._registers:
            raise UnknownInstruction(f"{text} (no register {name} is declared)", line)
        return Register(name)

    def _operand(self, text: str, opcode: str, statement: str, line: int) -> Operand:
        if opcode == "bra":
            return Label(text)
        if text.startswith("["):
            match = _ADDRESS.fullmatch(text)
            if match is None:
                raise UnknownInstruction(statement, line)
            base = self._scalar(match[1], statement, line)
            offset = int(match[3], 0) if match[3] else 0
            return Address(base, -offset if match[2] == "-" else offset)
        if text.startswith("{") and text.endswith("}"):
            return Vector(tuple(self._scalar(one, statement, line) for one in _split(text[1:-1])))
        return Special(text) if _SPECIAL.fullmatch(text) else self._scalar(text, statement, line)

    def _scalar(self, text: str, statement: str, line: int) -> Register | Immediate:
        if _INTEGER.fullmatch(text):
            return Immediate(int(text.rstrip("U"), 0) & 0xFFFF_FFFF_FFFF_FFFF)
        for prefix, digits in (("0f", 8), ("0d", 16)):
            if re.fullmatch(rf"{prefix}[0-9a-fA-F]{{{digits}}}", text, re.IGNORECASE):
                return Immediate(int(text[2:], 16))
        if re.fullmatch(r"-?\d*\.\d+(?:[eE][+-]?\d+)?", text):
            kind = ("<d", "<q") if statement.split(" ")[0].endswith("f64") else ("<f", "<i")
            return Immediate(struct.unpack(kind[1], struct.pack(kind[0], float(text)))[0] & 0xFFFF_FFFF_FFFF_FFFF)
        return self._known(text, statement, line)


def _split(text: str) -> list[str]:
    """What commas separate, outside of brackets and braces."""
    return [part.strip() for part in re.split(r",(?![^{\[]*[}\]])", text) if part.strip()]
