"""What a stream can hold: one frozen dataclass for each operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilelink.emulator.collectives import Collective, describe

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Launch:
    kernel: Any  # a triton JITFunction
    grid: tuple[int, int, int]
    arguments: tuple[tuple[str, object], ...]  # every parameter of the kernel
    tensors: tuple[tuple[str, torch.Tensor], ...]  # those among the arguments, by the name of their parameter
    per_sm: int = 1  # programs that share an SM
    num_warps: int = 4

    def __str__(self) -> str:
        return f"launch {self.kernel.fn.__name__} on a grid of {self.grid}"


@dataclass(frozen=True, slots=True)
class Copy:
    dst: torch.Tensor
    src: torch.Tensor
    route: str  # "local", "to rank 1", "from rank 2", "from rank 2 to rank 1"

    def __str__(self) -> str:
        return f"copy {describe(self.src)} {self.route}"


@dataclass(frozen=True, slots=True)
class Write:
    word: torch.Tensor
    value: int

    def __str__(self) -> str:
        return f"write {self.value}"


@dataclass(frozen=True, slots=True)
class WaitAtLeast:
    word: torch.Tensor
    value: int

    def __str__(self) -> str:
        return f"wait_at_least {self.value}"


@dataclass(frozen=True, slots=True)
class WaitEqual:
    """A word that passes the value before the stream looks at it is waited for in vain."""

    word: torch.Tensor
    value: int

    def __str__(self) -> str:
        return f"wait_equal {self.value}"


@dataclass(frozen=True, slots=True)
class After:
    """Everything up to operation `position` of stream `stream` of this rank."""

    stream: str
    position: int

    def __str__(self) -> str:
        return f"after {self.position} operations of stream {self.stream}"


@dataclass(frozen=True, slots=True)
class Matmul:
    out: torch.Tensor
    a: torch.Tensor
    b: torch.Tensor

    def __str__(self) -> str:
        return f"matmul {describe(self.a)} @ {describe(self.b)}"


@dataclass(frozen=True, slots=True)
class Meet:
    """The `number`-th library collective of its stream; the number is given when it is appended to the stream."""

    collective: Collective
    number: int

    def __str__(self) -> str:
        return str(self.collective)


Operation = Launch | Copy | Write | WaitAtLeast | WaitEqual | After | Matmul | Meet
