"""What the host class of an emitted file does on one rank, written down: a fabric on which nothing runs.

Tensors have their real sizes, in memory that nobody touches. Only words (integers) have contents, so that what signals,
counts and tables begin with is seen as well.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from tests.replay import surface

CALLS = 2  # the first results are held meanwhile, so that a pool gives another place
_UNWRITTEN = -1  # in words of `torch.empty`
_MAKING = (torch.empty, torch.zeros, torch.ones, torch.full, torch.tensor, torch.arange)


@dataclass(frozen=True, slots=True)
class Launched:
    """A kernel launch: `label` is the number of the kernel, by the first launch of each."""

    label: str
    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[object, ...]
    options: dict[str, object]


@dataclass(slots=True)
class Symmetric:
    """A symmetric buffer of all ranks, seen from one."""

    local: torch.Tensor
    peers: tuple[torch.Tensor, ...]
    pointers: torch.Tensor
    multicast: torch.Tensor


@dataclass(slots=True)
class Log:
    """Lines, in which kernels, streams and memory are called by the order of their appearance."""

    lines: list[str] = field(default_factory=list)
    launches: list[Launched] = field(default_factory=list)
    symmetric: list[tuple[torch.Tensor, ...]] = field(default_factory=list)
    words: dict[int, torch.UntypedStorage] = field(default_factory=dict)  # memory that was made for integers
    _numbers: dict[tuple[str, object], int] = field(default_factory=dict)
    _memory: dict[int, str] = field(default_factory=dict)
    _held: list[object] = field(default_factory=list)  # what is held has an address that nothing else gets

    def number(self, kind: str, one: object) -> str:
        same = sum(found == kind for found, _ in self._numbers)
        return f"{kind}{self._numbers.setdefault((kind, one), same)}"

    def call(self, name: str, values: tuple[object, ...], options: dict[str, object] | None = None) -> None:
        given = self._given(values, options or {})
        self.lines.append(f"{name} {', '.join(given)}".rstrip())

    def launch(self, stream: str, one: Launched) -> None:
        """A line for each argument: positional ones, then those by name, under their place among the parameters."""
        self.launches.append(one)
        places = {name: f"#{position:02}" for position, name in enumerate(one.kernel.arg_names)}
        options = {places.get(name, name): value for name, value in one.options.items()}
        given = self._given(one.arguments, options)
        self.lines += [f"{stream} launch {one.label} grid {self.text(one.grid)}", *(f"    {text}" for text in given)]

    def _given(self, values: tuple[object, ...], options: dict[str, object]) -> list[str]:
        named = [f"{option}={self.text(value)}" for option, value in sorted(options.items())]
        return [*(self.text(value) for value in values), *named]

    def text(self, value: object) -> str:
        match value:
            case torch.Tensor():
                return self._tensor(value)
            case Stream():
                return value.name
            case tuple() | list():
                return f"({', '.join(map(self.text, value))})"
        if hasattr(value, "block_shape"):
            return self._descriptor(value)
        return self.text(value.value) if hasattr(value, "value") else str(value)

    def _descriptor(self, value: Any) -> str:
        facts = {name: getattr(value, name, None) for name in ("shape", "strides", "block_shape", "layout", "padding")}
        facts["shape"] = list(value.shape)
        shown = " ".join(f"{name}={fact}" for name, fact in facts.items() if fact is not None)
        return f"descriptor[{self.text(value.base)} {shown}]"

    def _tensor(self, tensor: torch.Tensor) -> str:
        name = self._memory_of(tensor)
        strides = "" if tensor.is_contiguous() else f" strides {tuple(tensor.stride())}"
        return f"{name}+{tensor.storage_offset()} {_type(tensor)}{list(tensor.shape)}{strides}"

    def _memory_of(self, tensor: torch.Tensor) -> str:
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        if address not in self._memory:
            self._held.append(storage)
            name = self._memory[address] = self._name_of(address)
            words = f", {self._contents(storage, tensor.dtype)}" if address in self.words else ""
            self.lines.append(f"  {name}: {storage.nbytes()} bytes{words}")
        return self._memory[address]

    def _name_of(self, address: int) -> str:
        for index, peers in enumerate(self.symmetric):
            for rank, peer in enumerate(peers):
                if peer.untyped_storage().data_ptr() == address:
                    return f"{self.number('symmetric', index)}@{rank}"
        return self.number("memory", address)

    def _contents(self, storage: torch.UntypedStorage, dtype: torch.dtype) -> str:
        """Runs of equal words; addresses by the names of what lies there."""
        words = torch.empty(0, dtype=dtype).set_(storage)
        values, counts = torch.unique_consecutive(words, return_counts=True)
        shown = [
            f"{self._word(value)} x {count}" for value, count in zip(values.tolist(), counts.tolist(), strict=True)
        ]
        return f"words {', '.join(shown)}"

    def _word(self, value: int) -> str:
        for peers in self.symmetric:
            for peer in peers:
                first = peer.untyped_storage().data_ptr()
                if first <= value < first + peer.untyped_storage().nbytes():
                    return f"&{self._memory_of(peer)}+{value - first}"
        return str(value)


class Stream:
    """Every operation that host code enqueues is a line of the log, whatever it is called."""

    def __init__(self, log: Log, fabric: Fabric, name: str) -> None:
        self._log, self._fabric, self.name = log, fabric, name

    def captures(self) -> bool:
        return False

    def launch(self, kernel: Any, grid: tuple[int, ...], *arguments: object, **options: object) -> None:
        if self._fabric.is_loading:
            return
        label = self._log.number("kernel", kernel)
        self._log.launch(self.name, Launched(label, kernel, grid, arguments, options))

    def __getattr__(self, operation: str) -> Callable[..., None]:
        def enqueue(*values: object, **options: object) -> None:
            if not self._fabric.is_loading:
                self._log.call(f"{self.name} {operation}", values, options)

        return enqueue


class Fabric:
    """The fabric of rank `rank`, of which an emitted file asks for memory and streams."""

    num_sms = 1 << 16  # nothing runs: any schedule fits
    device = torch.device("cpu")

    def __init__(self, num_ranks: int, rank: int, log: Log) -> None:
        self.num_ranks, self.rank, self.is_loading, self._log = num_ranks, rank, False, log
        self._main = Stream(log, self, "main")
        self._streams: dict[str, Stream] = {}

    def symmetric(self, shape: tuple[int, ...], dtype: torch.dtype, *_: object) -> Symmetric:
        """Words of this rank are 0; those of peers, and elements, are nobody's to look at."""
        peers = tuple(
            torch.zeros(shape, dtype=dtype)
            if rank == self.rank and not dtype.is_floating_point
            else _untouched(shape, dtype)
            for rank in range(self.num_ranks)
        )
        self._log.symmetric.append(peers)
        table = torch.tensor([peer.data_ptr() for peer in peers], dtype=torch.int64)
        return Symmetric(peers[self.rank], peers, table, torch.zeros(1, dtype=torch.int64))

    def main(self) -> Stream:
        return self._main

    def stream(self, name: str) -> Stream:
        return self._streams.setdefault(name, Stream(self._log, self, f"side{len(self._streams)}"))

    def agree(self, _: str) -> None: ...

    def run(self, enqueue: Callable[..., None], *arguments: object) -> None:
        """What is enqueued inside may be replayed as a graph."""
        if not self.is_loading:
            self._log.call("as a graph", arguments)
        enqueue(*arguments)
        if not self.is_loading:
            self._log.lines.append("end of the graph")

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        self.is_loading = True
        yield
        self.is_loading = False

    def barrier(self) -> None:
        self._log.lines.append("barrier")


class _Words(TorchFunctionMode):
    """Notes which memory is made for integers: only that has contents. Those of `torch.empty` are the same each time."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        if function in _MAKING and not made.is_floating_point():
            self._log.words[made.untyped_storage().data_ptr()] = made.untyped_storage()
            return made.fill_(_UNWRITTEN) if function is torch.empty else made
        return made


def record(module: ModuleType, num_ranks: int, rank: int) -> Log:
    """The log of some calls of the operator in `module` on rank `rank`."""
    log = Log()
    build = surface.operator_class(module)
    with _Words(log):
        operator = build(Fabric(num_ranks, rank, log))
        log.lines.append(f"needs {getattr(build, 'NUM_SMS', 0)} SMs")
        held = []
        for number in range(CALLS):
            log.lines.append(f"call {number}")
            inputs = [torch.empty(shape, dtype=dtype) for shape, dtype in operator.INPUTS.values()]
            log.call("inputs", tuple(inputs))
            held.append((inputs, operator(*inputs)))
            log.call("returns", (held[-1][1],))
    return log


def _untouched(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A tensor in memory that nothing has been written to, so that the machine need not have it."""
    storage = torch.UntypedStorage(math.prod(shape) * dtype.itemsize)  # type: ignore[no-untyped-call]
    return torch.empty(0, dtype=dtype).set_(storage).view(shape)


def _type(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
