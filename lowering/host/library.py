"""Library calls in stream order, on every fabric of GPUs."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from __future__ import annotations

import contextlib
from typing import Any

import torch
import torch.distributed as dist
import triton
import triton.language as tl

from lowering.host.nvshmem_libraries import host_library

_HERE = contextlib.nullcontext()


class LibraryCalls:
    """Torch operations on one stream; subclasses set `stream` and `fabric`."""

    stream: torch.cuda.Stream
    fabric: Any

    def _current(self) -> Any:
        """A context in which torch works on this stream. Switching streams costs the host more than a library call."""
        there = torch._C._cuda_getCurrentRawStream(self.fabric.device.index) == self.stream.cuda_stream
        return _HERE if there else torch.cuda.stream(self.stream)

    def matmul(self, out: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
        with self._current():
            torch.mm(a, b, out=out)

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
        """Queries [sequences * S, Q * width] over keys and values [sequences * T, G * width]. `first`: query i sees keys up to
        first + i. Keys before the own ones are a piece without a mask, and the means of both are merged by their weights.
        `logs` [sequences * S, Q]: where the logarithms of the sums of weights go. `merged`: into what `out` and `logs` have of
        other keys."""
        with self._current():
            q, k, v, means = (heads_of(x, sequences, width) for x in (q, k, v, out))
            own = slice(max(first, 0), None if first < 0 else first + q.shape[2])
            mean, weight = attend(q, k[:, :, own], v[:, :, own], scale, first >= 0)
            if first > 0:
                merge_states(mean, weight, *attend(q, k[:, :, :first], v[:, :, :first], scale, False))
            weights = heads_of(logs, sequences, 1) if logs is not None else None
            if merged:
                merge_states(means, weights, mean, weight)
                return
            means.copy_(mean)
            if weights is not None:
                weights.copy_(weight)

    def all_gather(self, out: torch.Tensor, x: torch.Tensor) -> None:
        with self._current():
            dist.all_gather_into_tensor(out, x, group=self.fabric.group)

    def reduce_scatter(self, out: torch.Tensor, x: torch.Tensor) -> None:
        with self._current():
            dist.reduce_scatter_tensor(out, x, group=self.fabric.group)

    def send_receive(self, out: torch.Tensor, x: torch.Tensor, to: int, source: int, sms: int) -> None:
        """`x` goes to rank `to`, and `out` comes from rank `source`; meanwhile NCCL holds at most `sms` SMs."""
        # the first message between two ranks allocates memory, and would wait for kernels that spin: it is sent while none does
        if self.fabric.is_loading:
            self.messages = vars(self).get("messages") or self.fabric.channel(sms)
            out, x = torch.empty_like(out), x.clone()
        with self._current():
            both = [dist.P2POp(dist.irecv, out, group=self.messages, group_peer=source)]
            both.append(dist.P2POp(dist.isend, x, group=self.messages, group_peer=to))
            for work in dist.batch_isend_irecv(both):
                work.wait()

    def put(self, dst: torch.Tensor, src: torch.Tensor, word: torch.Tensor, value: torch.Tensor, to: int) -> None:
        """Put `src` to where `dst` lies here on rank `to`; and when it is there, what `value` holds to where `word` lies: a
        signal of NVSHMEM has a number of the host, which a CUDA graph would repeat. All of it is symmetric memory."""
        if self.fabric.is_loading:
            return
        stream = self.stream.cuda_stream
        host_library().nvshmemx_putmem_on_stream(dst.data_ptr(), src.data_ptr(), src.nbytes, to, stream)
        host_library().nvshmemx_quiet_on_stream(stream)
        self.put_word(word, value, to)

    def put_word(self, word: torch.Tensor, value: torch.Tensor, to: int) -> None:
        """Put what `value` holds to where `word` lies here on rank `to`."""
        if not self.fabric.is_loading:
            ends = word.data_ptr(), value.data_ptr()
            host_library().nvshmemx_putmem_on_stream(*ends, value.nbytes, to, self.stream.cuda_stream)

    def all_reduce(self, x: torch.Tensor) -> None:
        with self._current():
            dist.all_reduce(x, group=self.fabric.group)


def heads_of(x: torch.Tensor, sequences: int, width: int) -> torch.Tensor:
    """[sequences * S, Q * width] as [sequences, Q, S, width]."""
    return x.view(sequences, x.shape[0] // sequences, -1, width).transpose(1, 2)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool) -> tuple[Any, Any]:
    """Means of values [B, Q, S, D], and the logarithms [B, Q, S, 1] of their sums of weights, by cuDNN."""
    found = torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal, scale=scale)
    return found[0], found[1].reshape(*q.shape[:3], 1)


def merge_states(mean: torch.Tensor, weight: Any, more: torch.Tensor, others: torch.Tensor) -> None:
    """Into means of values [B, Q, S, D] with the logarithms [B, Q, S, 1] of the sums of their weights go other ones."""
    sequences, heads, rows, width = mean.shape
    strides = [stride for one in (mean, weight, more, others) for stride in one.stride()[:3]]
    grid = (sequences * heads, triton.cdiv(rows, 16))
    merge_rows[grid](mean, weight, more, others, *strides, heads, rows, WIDTH=width, ROWS=16)


@triton.jit
def merge_rows(
    mean, weight, more, others,
    mean_b, mean_h, mean_s, weight_b, weight_h, weight_s, more_b, more_h, more_s, others_b, others_h, others_s,
    heads, num_rows, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Some rows of one head of a sequence, in fp32: where nearly all of the weight is on one side, what the other one has would
    be lost in a share of few bits. The strides are those of sequences, heads and rows."""
    b, h = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    row, col = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None], tl.arange(0, WIDTH)[None, :]
    here = mean + b * mean_b + h * mean_h + row * mean_s + col
    log = weight + b * weight_b + h * weight_h + row * weight_s
    x = tl.load(here, mask=row < num_rows).to(tl.float32)
    y = tl.load(more + b * more_b + h * more_h + row * more_s + col, mask=row < num_rows).to(tl.float32)
    one = tl.load(log, mask=row < num_rows)
    other = tl.load(others + b * others_b + h * others_h + row * others_s, mask=row < num_rows)
    top = tl.maximum(one, other)
    a, c = tl.exp(one - top), tl.exp(other - top)
    tl.store(here, ((x * a + y * c) / (a + c)).to(mean.dtype.element_ty), mask=row < num_rows)
    tl.debug_barrier()  # each warp loads the logarithms of all rows, and one of them stores the new ones
    tl.store(log, top + tl.log(a + c), mask=row < num_rows)
