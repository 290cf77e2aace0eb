"""Host code of a file, called for one rank: what it raises is the file's mistake, and names the line."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

import torch

from tilelink.emulator.errors import IllegalCapture, LateSetup, SymmetricMismatch, UnknownHostCall, Unsupported
from tilelink.emulator.place import NOWHERE, Place, host_place_of_traceback
from tilelink.emulator.stand_in import StandIn
from tilelink.errors import ScheduleMismatch
from topologies.errors import UserError

Result = TypeVar("Result")

# errors that tell more than where host code failed: a class of bug, or that the emulator lacks something
_TELLING = (Unsupported, ScheduleMismatch, SymmetricMismatch, LateSetup, IllegalCapture)
_KEYWORD = re.compile(r"(\w+)\.(\w+)\(\) got an unexpected keyword argument '(\w+)'")


class HostCodeFailed(UserError):
    """Facts: `rank`, `reason`, `place` (a Place)."""

    template = "host code of rank {rank} failed at {place}: {reason}."


def hosted(rank: int, function: Callable[..., Result], *arguments: object) -> Result:
    """`function(*arguments)`. Raises HostCodeFailed, errors that tell a class of bug, and UnknownHostCall."""
    try:
        return function(*arguments)
    except _TELLING:
        raise
    except Exception as error:
        place = host_place_of_traceback(error.__traceback__)
        if place is NOWHERE:
            place = _definition(function)
        lacking = _lacking(error)
        if lacking:
            raise UnknownHostCall(rank=rank, place=place, lacking=lacking) from error
        reason = f"{type(error).__name__}: {error}".rstrip(".")
        raise HostCodeFailed(rank=rank, place=place, reason=reason) from error


def called(rank: int, operator: Callable[..., object], *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The outputs of one call of an operator. Raises as `hosted`, and HostCodeFailed for what are no tensors."""
    result = hosted(rank, operator, *inputs)
    outputs = tuple(result) if isinstance(result, tuple | list) else (result,)
    for number, output in enumerate(outputs):
        if not isinstance(output, torch.Tensor):
            reason = f"output {number} is a {type(output).__name__}, not a tensor"
            raise HostCodeFailed(rank=rank, place=_definition(operator), reason=reason)
    return outputs


def _definition(function: Callable[..., object]) -> Place:
    """The line where a function, the constructor of a class or `__call__` of an object is defined."""
    target: object = vars(function).get("__init__") if isinstance(function, type) else function
    if not hasattr(target, "__code__"):
        target = type(function).__call__
    code = getattr(target, "__code__", None)
    return Place(code.co_filename, code.co_firstlineno, code.co_name) if code is not None else NOWHERE


def _lacking(error: Exception) -> str:
    """What of the libraries that the emulator stands for it does not have; empty for another error."""
    if isinstance(error, AttributeError) and isinstance(error.obj, StandIn):
        return f"{type(error.obj).__name__}.{error.name}"
    match = _KEYWORD.match(str(error)) if isinstance(error, TypeError) else None
    if match and match[1] in {kind.__name__ for kind in StandIn.__subclasses__()}:
        return f"parameter {match[3]!r} of {match[1]}.{match[2]}"
    return ""
