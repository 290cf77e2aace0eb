"""The ten operators with tiles of 4 x 4 elements: the referee looks at each element."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import numpy as np

from tests.schedule import operators
from tilelink.schedule.roles import Pipelining, Schedule, Who

T = TypeVar("T")
Tables = dict[str, np.ndarray]


def _module() -> ModuleType:
    assert operators.__file__
    text = Path(operators.__file__).read_text()
    small = text.replace("B, T, S, K = 16,", "B, T, S, K = 4,")
    assert small != text
    module = ModuleType("small_operators")
    sys.modules[module.__name__] = module  # dataclasses look there
    exec(compile(small, module.__name__, "exec"), module.__dict__)
    return module


MODULE = _module()
NAMES = tuple(operators.OPERATORS)


def small(name: str, size: int = 3) -> tuple[Schedule, Tables]:
    """An operator for `size` ranks (two levels: for 2 x 2), and its tables."""
    make = MODULE.OPERATORS[name]
    operator = make() if name == "two_level_rs" else make(size)
    return operator.schedule, {table: found.numpy() for table, found in operator.tables().items()}


def pipelined(schedule: Schedule, how: Pipelining) -> Iterator[Schedule]:
    """`schedule` with one of its phases of several positions pipelined."""
    for at, launch in enumerate(schedule.launches):
        for which, role in enumerate(launch.roles):
            for number, phase in enumerate(role.phases):
                if phase.who is Who.EACH and phase.count != 1:
                    phases = _put(role.phases, number, replace(phase, pipelining=how))
                    roles = _put(launch.roles, which, replace(role, phases=phases))
                    yield replace(schedule, launches=_put(schedule.launches, at, replace(launch, roles=roles)))


def _put(all_: tuple[T, ...], at: int, one: T) -> tuple[T, ...]:
    return (*all_[:at], one, *all_[at + 1 :])
