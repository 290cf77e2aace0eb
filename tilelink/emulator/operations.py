"""What a stream can hold, and what a program can send: one frozen dataclass for each operation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

from tilelink.emulator.errors import BadCollective


def describe(tensor: torch.Tensor) -> str:
    """`bfloat16[128, 64]`."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


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

    def run(self) -> None:
        """Summed in fp32, and rounded."""
        self.out.copy_(self.a.float() @ self.b.float())


@dataclass(frozen=True, slots=True)
class Attention:
    """Of queries [sequences * S, Q * width] over keys and values [sequences * T, G * width]; query i sees keys up to
    first + i, if that is no negative number. `logs` [sequences * S, Q] of the sums of weights, if anybody wants them; `merged`:
    into what `out` and `logs` have."""

    out: torch.Tensor
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    sequences: int
    width: int
    scale: float
    first: int
    logs: torch.Tensor | None = None
    merged: bool = False

    @property
    def made(self) -> tuple[torch.Tensor, ...]:
        return (self.out,) if self.logs is None else (self.out, self.logs)

    @property
    def taken(self) -> tuple[torch.Tensor, ...]:
        return self.q, self.k, self.v, *(self.made if self.merged else ())

    def __str__(self) -> str:
        return f"attention of {describe(self.q)} over {describe(self.k)}"

    def run(self) -> None:
        """In fp32; means are rounded before they are merged, and at the end."""
        q, k, v = (self._heads(x.float(), self.width) for x in (self.q, self.k, self.v))
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
        scores = q @ k.transpose(2, 3) * self.scale
        if self.first >= 0:
            rows, cols = scores.shape[2:]
            hidden = torch.arange(cols) > self.first + torch.arange(rows)[:, None]
            scores = scores.masked_fill(hidden, float("-inf"))
        mean = torch.softmax(scores, dim=3) @ v
        if self.logs is not None:
            weight = torch.logsumexp(scores, dim=3, keepdim=True)
            if self.merged:
                before, others = self._heads(self.out, self.width).float(), self._heads(self.logs, 1)
                mean = torch.lerp(before, mean.to(self.out.dtype).float(), torch.sigmoid(weight - others))
                weight = torch.logaddexp(weight, others)
            self.logs.copy_(weight.transpose(1, 2).reshape(self.logs.shape))
        self.out.copy_(mean.transpose(1, 2).reshape(self.out.shape))

    def _heads(self, x: torch.Tensor, width: int) -> torch.Tensor:
        return x.reshape(self.sequences, x.shape[0] // self.sequences, -1, width).transpose(1, 2)


class CollectiveKind(Enum):
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_REDUCE = "all_reduce"


@dataclass(frozen=True, slots=True)
class Collective:
    """One rank's part. `out` and `x` are the same tensor for an all-reduce."""

    kind: CollectiveKind
    out: torch.Tensor
    x: torch.Tensor

    def __str__(self) -> str:
        return f"{self.kind.value} of {describe(self.x)}"

    def check(self, rank: int, num_ranks: int) -> None:
        """Raises `BadCollective` when `out` and `x` do not fit together."""
        rows, *columns = self.x.shape or (0,)
        match self.kind:
            case CollectiveKind.ALL_GATHER:
                legal_shape = (num_ranks * rows, *columns)
            case CollectiveKind.REDUCE_SCATTER:
                legal_shape = (rows // num_ranks, *columns)
            case CollectiveKind.ALL_REDUCE:
                legal_shape = tuple(self.x.shape)
        divisible = self.kind is not CollectiveKind.REDUCE_SCATTER or rows % num_ranks == 0
        if divisible and tuple(self.out.shape) == legal_shape and self.out.dtype == self.x.dtype:
            return
        raise BadCollective(
            kind=self.kind.value,
            rank=rank,
            given=f"x {describe(self.x)} and out {describe(self.out)}",
            legal="out is [num_ranks * rows, ...] of x's dtype for all_gather, [rows / num_ranks, ...] for "
            f"reduce_scatter, with {num_ranks} ranks",
        )


@dataclass(frozen=True, slots=True)
class Meet:
    """The `number`-th library collective of its stream; the number is given when it is appended to the stream."""

    collective: Collective
    number: int

    def __str__(self) -> str:
        return str(self.collective)


@dataclass(frozen=True, slots=True)
class SendReceive:
    """`x` goes to rank `to`, and `out` comes from rank `source`; the library holds `sms` SMs meanwhile."""

    out: torch.Tensor
    x: torch.Tensor
    to: int
    source: int
    sms: int

    def __str__(self) -> str:
        return f"send_receive of {describe(self.x)} to rank {self.to}, from rank {self.source}"


Operation = Launch | Copy | Write | WaitAtLeast | WaitEqual | After | Matmul | Attention | Meet | SendReceive


@dataclass(frozen=True, slots=True)
class Signal:
    """A 64-bit word that a delivery sets or adds to."""

    address: int
    value: int
    adds: bool


@dataclass(frozen=True, slots=True)
class Transfer:
    """`num_bytes` from `source` to `destination`, then the signal. `source`: an address, or the bytes themselves."""

    what: str  # "putmem_nbi"
    pe: int
    destination: int
    source: int | bytes
    num_bytes: int
    signal: Signal | None = None
    stages: bool = False  # the source is read before the call returns
    fenced: bool = True  # a fence orders it; gets are not

    def __str__(self) -> str:
        return f"{self.what} of {self.num_bytes} bytes, peer {self.pe}"
