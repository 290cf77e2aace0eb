"""What host code of the dialect is carried out on: this process's GPU, or the emulated rank whose host code runs now."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from tilelink.compat.triton_dist.host.errors import NotInitialized


class Group(Protocol):
    """What `initialize_distributed` returns, as far as it is used; a process group of torch is one."""

    def rank(self) -> int: ...

    def size(self) -> int: ...


class Runtime(Protocol):
    """One rank's symmetric memory and streams. `stream` is a stream of torch.cuda; None is the current one."""

    rank: int
    num_ranks: int
    group: Any  # a `Group`

    def create(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """This rank's part of a symmetric tensor that is not zeroed; all ranks call in one order."""
        ...

    def peers(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """All ranks' parts of what `create` returned."""
        ...

    def free(self, tensor: torch.Tensor) -> None:
        """Take back what `create` returned; all ranks call in one order."""
        ...

    def wait_equal(self, word: torch.Tensor, value: int, stream: Any) -> None:
        """Enqueue a wait until `word` is equal to `value`; takes no SM."""
        ...

    def write(self, word: torch.Tensor, value: int, stream: Any) -> None:
        """Enqueue word = value behind what the stream did before; takes no SM."""
        ...

    def copy(self, dst: torch.Tensor, src: torch.Tensor, num_bytes: int, stream: Any) -> None:
        """Enqueue a copy of the first `num_bytes` bytes."""
        ...

    def on_stream(self, stream: Any) -> Any:
        """A context inside of which launches go to `stream`."""
        ...

    def synchronize(self) -> None:
        """All that was enqueued is done, on every rank."""
        ...


_current: list[Runtime] = []


def current(function: str) -> Runtime:
    """That of the rank whose host code runs. Raises `NotInitialized`."""
    if not _current:
        raise NotInitialized(function=function)
    return _current[-1]


def is_initialized() -> bool:
    return bool(_current)


def enter(runtime: Runtime) -> None:
    """Host code is that of `runtime` from now on."""
    _current.append(runtime)


def leave(runtime: Runtime) -> None:
    """Undo `enter`."""
    _current.remove(runtime)
