"""Overlap without kernels of one's own: cuBLAS chunk by chunk, NCCL on a second stream.

Chunk c of a value is rows c of every rank's part, so that each collective moves a piece for every rank. A matmul of such a
chunk is a batch of one piece a rank, which cuBLAS reads or writes where the pieces lie.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from tilelink.bench.contender import Setting
from tilelink.bench.rows import Operator
from tilelink.bench.silu_mul import silu_mul
from tilelink.measuring.device import Call, Outputs


class Gather:
    """`out = all_gather(x) @ w`: while a chunk is multiplied, the next ones arrive."""

    def __init__(self, setting: Setting, x: torch.Tensor, w: torch.Tensor, chunks: int) -> None:
        rows, ranks = x.shape[0], setting.num_ranks
        self.w = w.expand(ranks, *w.shape)
        self.out = setting.empty(rows * ranks, w.shape[1])
        pieces = x.chunk(chunks)
        self.sources = pieces
        self.arrived = [setting.empty(ranks, *piece.shape) for piece in pieces]
        self.targets = self.out.view(ranks, rows, -1).split(  # type: ignore[no-untyped-call]
            [piece.shape[0] for piece in pieces], dim=1
        )
        self.events = [torch.cuda.Event() for _ in pieces]  # type: ignore[no-untyped-call]
        self.side = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def enqueue(self) -> torch.Tensor:
        main = torch.cuda.current_stream()
        self.side.wait_stream(main)  # the last call has read what arrives now
        with torch.cuda.stream(self.side):
            for source, arrived, event in zip(self.sources, self.arrived, self.events, strict=True):
                dist.all_gather_into_tensor(arrived.flatten(0, 1), source)
                event.record()
        for arrived, target, event in zip(self.arrived, self.targets, self.events, strict=True):
            main.wait_event(event)
            torch.bmm(arrived, self.w, out=target)
        return self.out


class Scatter:
    """`out = reduce_scatter(x @ w)`: while a chunk is multiplied, the last ones leave."""

    def __init__(self, setting: Setting, x: torch.Tensor, w: torch.Tensor, chunks: int) -> None:
        ranks = setting.num_ranks
        rows = x.shape[0] // ranks
        self.w = w.expand(ranks, *w.shape)
        self.out = setting.empty(rows, w.shape[1])
        self.targets = self.out.chunk(chunks)
        counts = [target.shape[0] for target in self.targets]
        self.sources = x.view(ranks, rows, -1).split(counts, dim=1)  # type: ignore[no-untyped-call]
        self.sent = [setting.empty(ranks, count, w.shape[1]) for count in counts]
        self.events = [torch.cuda.Event() for _ in counts]  # type: ignore[no-untyped-call]
        self.side = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def enqueue(self) -> torch.Tensor:
        main = torch.cuda.current_stream()
        for source, sent, target, event in zip(self.sources, self.sent, self.targets, self.events, strict=True):
            torch.bmm(source, self.w, out=sent)
            event.record(main)
            self.side.wait_event(event)
            with torch.cuda.stream(self.side):
                dist.reduce_scatter_tensor(target, sent.flatten(0, 1))
        main.wait_stream(self.side)
        return self.out


class Reduce:
    """`out = all_reduce(x @ w)`, in place, by chunks of consecutive rows."""

    def __init__(self, setting: Setting, x: torch.Tensor, w: torch.Tensor, chunks: int) -> None:
        self.w = w
        self.sources = x.chunk(chunks)
        self.out = setting.empty(x.shape[0], w.shape[1])
        self.targets = self.out.chunk(chunks)
        self.events = [torch.cuda.Event() for _ in self.targets]  # type: ignore[no-untyped-call]
        self.side = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def enqueue(self) -> torch.Tensor:
        main = torch.cuda.current_stream()
        for source, target, event in zip(self.sources, self.targets, self.events, strict=True):
            torch.mm(source, self.w, out=target)
            event.record(main)
            self.side.wait_event(event)
            with torch.cuda.stream(self.side):
                dist.all_reduce(target)
        main.wait_stream(self.side)
        return self.out


def two_streams(setting: Setting, chunks: int) -> Call:
    """One call of the operation in `chunks` chunks, fewer where there are fewer rows."""
    row, x, weights = setting.row, setting.x, setting.weights
    match row.operator:
        case Operator.AG_GEMM:
            gather = Gather(setting, x, weights[0], chunks)
            return lambda: (gather.enqueue(),)
        case Operator.GEMM_RS:
            scatter = Scatter(setting, x, weights[0], chunks)
            return lambda: (scatter.enqueue(),)
        case Operator.GEMM_AR:
            reduce = Reduce(setting, x, weights[0], chunks)
            return lambda: (reduce.enqueue(),)
        case Operator.MLP:
            first = Gather(setting, x, torch.cat(weights[:2], dim=1), chunks)
            hidden = setting.empty(row.m, row.ffn // setting.num_ranks)
            last = Scatter(setting, hidden, weights[2], chunks)

            def mlp() -> Outputs:
                silu_mul(hidden, first.enqueue())
                return (last.enqueue(),)

            return mlp
        case Operator.AG_MOE | Operator.MOE_RS | Operator.EP_LAYER:
            raise AssertionError("baselines of experts are in expert_baselines.py")
