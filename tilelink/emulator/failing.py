"""What the code of a kernel raises is the user's to see, as an error with the place in his file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tilelink.emulator.errors import EmulationError, KernelError
from tilelink.emulator.place import place_of_traceback

if TYPE_CHECKING:
    from tilelink.emulator.scheduler import Task


@contextmanager
def errors_of_kernel(task: Task) -> Iterator[None]:
    """Around the code of a kernel that `task` runs. Raises KernelError for what is no error of the emulator already."""
    try:
        yield
    except EmulationError:
        raise
    except Exception as error:
        identity, place = task.identity, place_of_traceback(error.__traceback__)
        reason = f"{type(error).__name__}: {error}"
        raise KernelError(rank=identity.rank, task=identity.name, place=place, reason=reason) from error
