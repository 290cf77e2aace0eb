"""A stream of one emulated rank: host code enqueues, `World.run` executes in order."""

from __future__ import annotations

import inspect
import sys
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
import triton.language as tl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as SharedDescriptor
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from tilelink.emulator.errors import (
    ForeignStream,
    IllegalAttention,
    IllegalCopy,
    IllegalLaunch,
    IllegalMatmul,
    IllegalWord,
    UnknownWait,
)
from tilelink.emulator.operations import (
    After,
    Attention,
    Collective,
    CollectiveKind,
    Copy,
    Launch,
    Matmul,
    Meet,
    Operation,
    SendReceive,
    WaitAtLeast,
    WaitEqual,
    Write,
    describe,
)
from tilelink.emulator.place import Place, host_place
from tilelink.emulator.protocols import enqueuing
from tilelink.emulator.stand_in import StandIn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tilelink.emulator.host import Host
    from tilelink.emulator.machine import Machine

# Options of a launch that change how a kernel is compiled, never what it computes.
_OPTIONS = (
    "num_warps",
    "num_stages",
    "num_ctas",
    "maxnreg",
    "waves_per_eu",
    "matrix_instr_nonkdim",
    "kpack",
    "launch_cooperative_grid",
    "launch_pdl",
    "per_sm",
)


@dataclass(frozen=True, slots=True)
class Enqueued:
    """An operation and the line of host code it comes from."""

    operation: Operation
    place: Place
    ticket: int = 0  # so many kernels of its rank must be loaded before host code has enqueued it


class EmulatedStream(StandIn):
    """In-order queue of operations. `completed` counts those that are done, over all runs."""

    def __init__(self, machine: Machine, host: Host, rank: int, name: str) -> None:
        self.machine = machine
        self.host = host
        self.rank = rank
        self.name = name
        self.pending: deque[Enqueued] = deque()
        self.completed = 0
        self._collectives = 0

    def __repr__(self) -> str:
        return f"<stream {self.name} of rank {self.rank}: {len(self.pending)} operations pending>"

    @property
    def end(self) -> int:
        """The position behind all that is enqueued, as in `After`."""
        return self.completed + len(self.pending)

    def launch(self, kernel: Any, grid: tuple[int, ...], *args: object, **options: object) -> None:
        """Enqueue a `@triton.jit` kernel. `options`: its constexpr parameters, num_warps, num_stages,
        per_sm (programs that are resident on one SM).

        Raises `IllegalLaunch` for an unknown option, a missing
        argument, a grid that is not 1 to 3 integers of at least 0, or a cooperative grid that cannot be resident at once.
        """
        if not isinstance(kernel, JITFunction):
            self._refuse(kernel, "it is not a @triton.jit function", "functions decorated with @triton.jit")
        parameters = inspect.signature(kernel.fn).parameters
        unknown = [name for name in options if name not in parameters and name not in _OPTIONS]
        if unknown:
            legal = f"its parameters {', '.join(parameters)} and the options {', '.join(_OPTIONS)}"
            self._refuse(kernel, f"it has no parameter or option {unknown[0]!r}", legal)
        given = {name: value for name, value in options.items() if name in parameters}
        try:
            bound = inspect.signature(kernel.fn).bind(*args, **given)
        except TypeError as error:
            self._refuse(kernel, str(error), f"one value for each of {', '.join(parameters)}")
        bound.apply_defaults()
        per_sm = int(str(options.get("per_sm", 1)))
        full = self._full_grid(kernel, grid, per_sm if options.get("launch_cooperative_grid") else 0)
        arguments = tuple(bound.arguments.items())
        tensors = tuple(pair for name, value in arguments for pair in _tensors(name, value))
        self._enqueue(Launch(kernel, full, arguments, tensors, per_sm, int(str(options.get("num_warps", 4)))))

    def copy(self, dst: torch.Tensor, src: torch.Tensor) -> None:
        """Enqueue a copy of contiguous views; needs an SM only if both are local. Raises `IllegalCopy`."""
        self._copy(dst, src, dst.is_contiguous() and src.is_contiguous(), "a view is not contiguous")

    def copy_2d(self, dst: torch.Tensor, src: torch.Tensor) -> None:
        """Enqueue a copy of matrices whose rows are contiguous. Raises `IllegalCopy`."""
        legal = dst.shape == src.shape and dst.dim() == 2 and dst.stride(1) == src.stride(1) == 1
        self._copy(dst, src, legal, "these are no two matrices of a shape whose rows are contiguous")

    def _copy(self, dst: torch.Tensor, src: torch.Tensor, legal: bool, why_not: str) -> None:
        reason = ""
        if not legal:
            reason = why_not
        elif dst.dtype != src.dtype:
            reason = "the dtypes differ"
        elif dst.numel() != src.numel():
            reason = "the numbers of elements differ"
        if reason:
            raise IllegalCopy(stream=self.name, rank=self.rank, dst=describe(dst), src=describe(src), reason=reason)
        self._enqueue(Copy(dst, src, self._route(dst, src)))

    def put(self, dst: torch.Tensor, src: torch.Tensor, word: torch.Tensor, value: torch.Tensor, to: int) -> None:
        """Enqueue: `src` goes to rank `to`, where `dst` lies here, and then what `value` holds to where `word` lies. All of them
        are symmetric memory of this rank. Raises `IllegalCopy`."""
        self._there(src, src, to)
        self.copy(self._there(dst, src, to), src)
        self.put_word(word, value, to)

    def put_word(self, word: torch.Tensor, value: torch.Tensor, to: int) -> None:
        """The same of a word alone. Raises `IllegalCopy`."""
        self._there(value, value, to)
        self.copy(self._there(word, value, to), value)

    def _there(self, dst: torch.Tensor, src: torch.Tensor, to: int) -> torch.Tensor:
        """What is at rank `to` where `dst` lies here. Raises `IllegalCopy`."""
        found = self.machine.symmetry.same_at(dst, self.rank, to)
        if isinstance(found, str):
            shown = {"dst": describe(dst), "src": describe(src)}
            raise IllegalCopy(stream=self.name, rank=self.rank, **shown, reason=f"a put is of memory {found}")
        return found

    def write(self, word: torch.Tensor, value: int) -> None:
        """Enqueue a stream-ordered write of an int32 or int64 word, of this rank or of a peer; needs no SM.

        It releases, at system scope, all that the stream did before. Raises `IllegalWord`.
        """
        self._check_word("write", word)
        self._enqueue(Write(word, value))

    def wait_at_least(self, word: torch.Tensor, value: int) -> None:
        """Enqueue a wait until a local int32 or int64 word is at least `value`; needs no SM.

        Raises `IllegalWord`, and `UnknownWait` for a word of a peer.
        """
        self._check_waited("wait_at_least", word)
        self._enqueue(WaitAtLeast(word, value))

    def wait_equal(self, word: torch.Tensor, value: int) -> None:
        """The same until the word is seen to be equal to `value`. Raises `IllegalWord` and `UnknownWait`."""
        self._check_waited("wait_equal", word)
        self._enqueue(WaitEqual(word, value))

    def captures(self) -> bool:
        """Whether what is enqueued now is recorded."""
        return self.host.recording is not None

    def after(self, other: EmulatedStream) -> None:
        """What is enqueued on `other` so far happens before what follows here. Raises `ForeignStream`."""
        if other.machine is not self.machine or other.rank != self.rank:
            raise ForeignStream(stream=self.name, rank=self.rank, other=other.name, other_rank=other.rank)
        recording = self.host.recording
        if recording is None:
            self._enqueue(After(other.name, other.end))
        elif other is self or recording.count(other.rank, other.name):
            self._enqueue(After(other.name, recording.count(other.rank, other.name)))
        # else: what ran before a capture is no part of it; a replay follows what its stream holds

    def matmul(self, out: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
        """Enqueue out = a @ b, summed in fp32 and rounded; needs a free SM. Raises `IllegalMatmul`."""
        fits = a.dim() == b.dim() == out.dim() == 2 and a.shape[1] == b.shape[0]
        if not fits or out.shape != (a.shape[0], b.shape[1]):
            shown = {"out": describe(out), "a": describe(a), "b": describe(b)}
            raise IllegalMatmul(stream=self.name, rank=self.rank, **shown)
        self._enqueue(Matmul(out, a, b))

    def attention(
        self,
        out: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        sequences: int,
        width: int,
        scale: float,
        first: int = -1,
        logs: torch.Tensor | None = None,
        merged: bool = False,
    ) -> None:
        """Enqueue attention of queries [sequences * S, Q * width] over keys and values [sequences * T, G * width]; `first`:
        query i sees keys up to first + i; `logs` [sequences * S, Q]: the natural logarithms of the sums of weights;
        `merged`: into what `out` and `logs` have of other keys. In fp32 and rounded; needs a free SM. Raises
        `IllegalAttention`."""
        fits = out.shape == q.shape and k.shape == v.shape and all(x.dim() == 2 for x in (q, k))
        heads = [x.shape[-1] // width for x in (q, k)]
        whole = not (q.shape[-1] % width or k.shape[-1] % width or q.shape[0] % sequences or k.shape[0] % sequences)
        seen = first < 0 or first + q.shape[0] // sequences <= k.shape[0] // sequences
        told = not merged if logs is None else tuple(logs.shape) == (q.shape[0], heads[0])
        if not (fits and whole and seen and told and heads[1] and heads[0] % heads[1] == 0):
            shown = {name: describe(one) for name, one in (("out", out), ("q", q), ("k", k), ("v", v))}
            raise IllegalAttention(
                stream=self.name, rank=self.rank, sequences=sequences, width=width, first=first, **shown
            )
        self._enqueue(Attention(out, q, k, v, sequences, width, scale, first, logs, merged))

    def all_gather(self, out: torch.Tensor, x: torch.Tensor) -> None:
        """Enqueue out[num_ranks * rows, ...] = all ranks' x; holds an SM while it waits for the others."""
        self._collective(Collective(CollectiveKind.ALL_GATHER, out, x))

    def reduce_scatter(self, out: torch.Tensor, x: torch.Tensor) -> None:
        """Enqueue out = own rows of the sum of all ranks' x[num_ranks * rows, ...]; holds an SM as well."""
        self._collective(Collective(CollectiveKind.REDUCE_SCATTER, out, x))

    def send_receive(self, out: torch.Tensor, x: torch.Tensor, to: int, source: int, sms: int) -> None:
        """Enqueue: `x` goes to rank `to`, and `out` comes from rank `source`; holds `sms` SMs until both have come."""
        self._enqueue(SendReceive(out, x, to, source, sms))

    def all_reduce(self, x: torch.Tensor) -> None:
        """Enqueue x = the sum of all ranks' x; holds an SM as well."""
        self._collective(Collective(CollectiveKind.ALL_REDUCE, x, x))

    def push(self, operation: Operation, place: Place) -> None:
        """Append an operation as it is; a collective gets the next number of this stream."""
        if isinstance(operation, Meet):
            operation = replace(operation, number=self._collectives)
            self._collectives += 1
        ticket = self.host.loads.ticket(self.rank, operation, place)
        self.pending.append(Enqueued(operation, place, ticket))

    def _enqueue(self, operation: Operation) -> None:
        host = self.host
        if self.rank in host.loading:
            if isinstance(operation, Launch):
                host.loads.load(self.rank, operation)
            return
        place = host_place(sys._getframe(), skip=__file__)
        host.protocols[self.rank].append(enqueuing(self.name, operation, place))
        if host.recording is not None:
            host.recording.add(self.rank, self.name, operation, place)
        else:
            self.push(operation, place)

    def _collective(self, collective: Collective) -> None:
        collective.check(self.rank, self.machine.num_ranks)
        self._enqueue(Meet(collective, 0))

    def _route(self, dst: torch.Tensor, src: torch.Tensor) -> str:
        """Memory that is in no symmetric buffer is this rank's own."""
        owners = [self.machine.memory.owner(tensor.data_ptr()) for tensor in (src, dst)]
        here, there = (owner.rank if owner and owner.symmetric else self.rank for owner in owners)
        if here == there == self.rank:
            return "local"
        source = "" if here == self.rank else f"from rank {here}"
        target = "" if there == self.rank else f"to rank {there}"
        return " ".join(filter(None, (source, target)))

    def _check_waited(self, operation: str, word: torch.Tensor) -> None:
        self._check_word(operation, word)
        owner = self.machine.memory.owner(word.data_ptr())
        if owner is not None and owner.symmetric and owner.rank != self.rank:
            raise UnknownWait(
                operation=operation,
                stream=self.name,
                rank=self.rank,
                word=describe(word),
                peer=owner.rank,
                place=host_place(sys._getframe(), skip=__file__),
            )

    def _check_word(self, operation: str, word: torch.Tensor) -> None:
        if word.dtype not in (torch.int32, torch.int64) or word.numel() != 1:
            reason = "it is not one int32 or int64 element"
            raise IllegalWord(operation=operation, stream=self.name, rank=self.rank, word=describe(word), reason=reason)

    def _full_grid(self, kernel: Any, grid: tuple[int, ...], cooperative: int) -> tuple[int, int, int]:
        """`cooperative`: programs that share an SM if all must be resident at once, else 0."""
        sizes = tuple(grid)
        if not 1 <= len(sizes) <= 3 or not all(isinstance(size, int) and size >= 0 for size in sizes):
            self._refuse(kernel, f"grid {grid!r} is not a grid", "a tuple of 1 to 3 integers, each at least 0")
        x, y, z = (*sizes, 1, 1)[:3]
        if cooperative and x * y * z > self.machine.num_sms * cooperative:
            legal = f"at most {self.machine.num_sms * cooperative} programs, or no launch_cooperative_grid"
            self._refuse(kernel, f"{x * y * z} cooperative programs are never resident at once", legal)
        return x, y, z

    def _refuse(self, kernel: Any, reason: str, legal: str) -> None:
        name = getattr(kernel, "__name__", repr(kernel))
        raise IllegalLaunch(kernel=name, stream=self.name, rank=self.rank, reason=reason, legal=legal)


def _tensors(name: str, value: object) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in an argument, by the name of their parameter."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, TensorDescriptor | SharedDescriptor):
        yield name, value.base
    elif isinstance(value, (tuple, tl.tuple)):
        for position, item in enumerate(value):
            yield from _tensors(f"{name}[{position}]", item)
