"""Race detection: vector clocks over the event stream of an emulation, and a trace that a person can read."""

from __future__ import annotations

from tilelink.emulator.races.detector import RaceDetector
from tilelink.emulator.races.rules import Rules
from tilelink.emulator.races.trace import Row, Trace
from tilelink.emulator.touch import Touch

__all__ = ["RaceDetector", "Row", "Rules", "Touch", "Trace"]
