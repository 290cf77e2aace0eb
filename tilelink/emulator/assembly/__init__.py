"""The part of PTX that inline assembly of published kernels uses: read from its text, carried out lane by lane."""

from __future__ import annotations

from tilelink.emulator.assembly.program import KNOWN, Steps, program
from tilelink.emulator.assembly.reader import UnknownInstruction
from tilelink.emulator.assembly.running import run

__all__ = ["KNOWN", "Steps", "UnknownInstruction", "program", "run"]
