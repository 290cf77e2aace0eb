"""What the code of a kernel raises is the user's to see, as an error with the place in his file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import triton.language as tl
from triton.runtime import interpreter as stock

from tilelink.emulator.errors import EmulationError, KernelError, UnknownOperation
from tilelink.emulator.place import place_of_traceback

if TYPE_CHECKING:
    from tilelink.emulator.task import Task

_BUILTIN_WRAPPER = tl.core.builtin(lambda: None).__code__


@contextmanager
def errors_of_kernel(task: Task) -> Iterator[None]:
    """Around the code of a kernel that `task` runs.

    Raises UnknownOperation for what the interpreter lacks, and KernelError for what else is no error of the emulator already.
    """
    try:
        yield
    except EmulationError:
        raise
    except Exception as error:
        identity, place = task.identity, place_of_traceback(error.__traceback__)
        lacking = _lacking(error)
        reason = lacking or f"{type(error).__name__}: {error}"
        kind = UnknownOperation if lacking else KernelError
        raise kind(rank=identity.rank, task=identity.name, place=place, reason=reason) from error


def _lacking(error: Exception) -> str:
    """What the interpreter lacks; empty where a compiler would refuse the kernel as well, by the type rules of the language."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    assert last is not None
    frame = last.tb_frame
    if frame.f_code is _BUILTIN_WRAPPER:  # called as it is, since no operation of the interpreter stands for it
        function = frame.f_locals["fn"]
        return f"{function.__module__}.{function.__name__}"
    if isinstance(error, AttributeError) and isinstance(error.obj, stock.InterpreterBuilder):
        return f"{error.name}, of the builder"
    # a failed tl.device_assert comes from there as well, and is the kernel's own
    inside = frame.f_globals.get("__name__") == stock.__name__ and not isinstance(error, AssertionError)
    ours = isinstance(error, NotImplementedError) or inside
    return f"{type(error).__name__}: {error}" if ours else ""
