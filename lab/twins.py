"""On two GPUs: schedules of more ranks. Each GPU is rank 0, and the other one stands for all of its peers.

    python benchmarks/bench.py gemm_rs --ranks 4 --rows llama-7b --variant late:count=late --write-plans plans.json
    torchrun --nproc-per-node 2 lab/twins.py plans.json --json twins.json

What rank 0 sends to peer p goes to the other GPU, to the place of that rank to which p is what rank 0 is to it. So kernels,
counts, copies, stores, waits and links are those of several GPUs: through each link go as many bytes as there, in the same order,
and two GPUs are out of step as they happen to be. What is missing: two ranks that send to one at the same time, and a third or
fourth GPU that is slower than both. Values are random, sums mean nothing.
Calls in a CUDA graph, contenders in a new order each round, each behind 40 ms of the matmul alone (of the first contender, if the
row has several matmuls), the slower GPU of each sample, median over rounds. Run it under `timeout`.
Left out is what programs tell peers apart by: signals that they raise themselves, but for those of tiles that store parts at a
peer; places of pools, words of which each rank adds a share; and the library's collectives.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import lowering
from lab.arrived import arrives, in_turns
from lab.mirror import mirrors
from lab.one_gpu import Results, command_line, operator_on_one, run
from lab.paced import Words
from tilelink.bench.plans import PlannedRow
from tilelink.ir.movers import CopyEngine, Fused, Transfer
from tilelink.ir.nodes import Exchange, Kind
from tilelink.ir.schedule import Schedule
from tilelink.runtime.ranks import join

_GPUS = 2


def memory_of(schedule: Schedule) -> Callable[..., Any]:
    """Makes the symmetric memory of the schedule: that of each peer lies at the other GPU, so far on that what rank 0 has there
    is where the part of rank -peer belongs. Counts of peers are one for all."""

    class Twin:
        def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, ranks: int) -> None:
            size = math.prod(shape)
            if dtype.is_floating_point:  # [ranks, rows, cols]
                step = size // ranks
            elif len(shape) > 1:  # words: [places in time, ranks, words]
                step = shape[-1]
            else:  # signals, of which each kind has a place for each rank
                step = 0
            self.memory = symm_mem.empty(size + ranks * step, dtype=dtype, device=device)
            self.memory.zero_()
            if dtype.is_floating_point:
                self.memory.normal_()
            handle = symm_mem.rendezvous(self.memory, dist.group.WORLD)
            other = handle.get_remote_tensor(1 - handle.rank, self.memory.shape, dtype)
            self.local = self.memory[:size].view(shape)
            starts = [-peer % ranks * step for peer in range(ranks)]
            there = [other[at : at + size].view(shape) for at in starts]
            self.pointers = torch.tensor(
                [self.local.data_ptr(), *[tensor.data_ptr() for tensor in there[1:]]], dtype=torch.int64, device=device
            )
            is_signals = len(shape) == 1
            told = [Words(other, schedule.signals, peer, ranks) for peer in range(ranks)] if is_signals else there
            self.peers: tuple[Any, ...] = (self.local, *told[1:])

    return Twin


def has_twins(schedule: Schedule) -> bool:
    """Whether all that programs tell peers is the same for each, or lies in words."""
    told = all(isinstance(x.mover, CopyEngine) or x.met or _told_by_tiles(x) for x in schedule.exchanges)
    return (arrives(schedule) and told) or mirrors(schedule)


def _told_by_tiles(exchange: Exchange) -> bool:
    """Whether tiles raise the signal of a chunk at the one peer for which it is."""
    return isinstance(exchange.mover, Fused) and exchange.kind is Kind.SCATTER and exchange.transfer is Transfer.PUSH


def source_of(schedule: Schedule) -> str:
    """The emitted file, in which rank 0 raises at each peer the word of that rank to which the peer is what rank 0 is to it."""
    ranks = schedule.num_ranks
    told = r"notify\(on_peer\(signal_peers, (\w+), tl\.int32\) \+ ((?:\w+ \+ )?)rank"
    return re.sub(
        told, rf"notify(on_peer(signal_peers, \1, tl.int32) + \2({ranks} - \1) % {ranks}", lowering.emit(schedule)
    )


def meet() -> None:
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()


def slowest(us: float) -> float:
    times = torch.tensor([us], dtype=torch.float64, device="cuda")
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return float(times.item())


def measure(planned: PlannedRow) -> Results | None:
    """One row, or nothing if none of its schedules runs here."""
    schedules = {c.label: c.schedule for c in planned.candidates if c.schedule is not None and has_twins(c.schedule)}
    if not schedules:
        return None
    name = planned.row.operator.value
    operators = {
        label: operator_on_one(source_of(schedule), name, memory_of(schedule), meet=meet)
        for label, schedule in schedules.items()
    }
    return in_turns(planned, operators, slowest)


def main() -> None:
    arguments = command_line(__doc__).parse_args()
    join()
    if dist.get_world_size() != _GPUS:
        raise SystemExit(
            f"twins.py runs on {_GPUS} ranks, not {dist.get_world_size()}: torchrun --nproc-per-node {_GPUS}"
        )
    run(measure, arguments, writes=dist.get_rank() == 0)
    meet()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
