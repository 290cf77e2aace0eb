"""Baselines of operators with experts: NCCL around torch's grouped matmul, or around a fused loop (`fused_experts.py`).

Both do all index work in the call. A layer of experts of ranks gathers all rows, and scatters sums of those of local experts.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _coalescing_manager, _world

from lab.fused_experts import Tile, indexed, products, tiles_for, token_sums

_CALLS, _ROUNDS = 10, 5  # of a graph with which tiles are compared
Call = Callable[[], object]


def by_experts(ids: torch.Tensor, experts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Assignments in the order of experts, and where each expert's end."""
    flat = ids.flatten().long()
    counts = torch.zeros(experts, device=flat.device, dtype=torch.int64).scatter_add_(0, flat, torch.ones_like(flat))
    return torch.argsort(flat, stable=True), torch.cumsum(counts, 0).int()


def grouped(rows: torch.Tensor, w: torch.Tensor, ids: torch.Tensor, experts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Products in the order of experts, and that order. `w` lies as torch wants it."""
    order, ends = by_experts(ids, experts)
    of_tokens = len(rows) == len(ids)
    return torch._grouped_mm(rows[order // ids.shape[1] if of_tokens else order], w, ends), order


def placed(found: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """Rows by assignment again."""
    rows = torch.empty_like(found)
    rows[order] = found
    return rows


def turned(w: torch.Tensor) -> torch.Tensor:
    """Column-major for each expert, as torch's grouped matmul takes it."""
    return w.transpose(1, 2).contiguous().transpose(1, 2)


def gathered(*parts: torch.Tensor) -> list[torch.Tensor]:
    """Those of all ranks, with a collective for each."""
    ranks = dist.get_world_size()
    found = [torch.empty(ranks * len(one), *one.shape[1:], dtype=one.dtype, device=one.device) for one in parts]
    for out, one in zip(found, parts, strict=True):
        dist.all_gather_into_tensor(out, one)
    return found


def gathered_as_one(*parts: torch.Tensor) -> list[torch.Tensor]:
    """The same with one launch of NCCL."""
    with _coalescing_manager():
        return gathered(*parts)


def scattered(y: torch.Tensor) -> torch.Tensor:
    out = torch.empty(len(y) // dist.get_world_size(), y.shape[1], dtype=y.dtype, device=y.device)
    dist.reduce_scatter_tensor(out, y)
    return out


@dataclass(frozen=True)
class Operator:
    """What baselines compute: an operator by its name, with inputs of this rank."""

    name: str
    inputs: Mapping[str, torch.Tensor]
    experts: int  # of all ranks

    @property
    def local(self) -> tuple[int, int]:
        """First expert of this rank, and how many it has."""
        if self.name != "ep_layer":
            return 0, self.experts
        own = self.experts // dist.get_world_size()
        return dist.get_rank() * own, own

    @property
    def mean_rows(self) -> float:
        """Of an expert."""
        ids = self.inputs["ids"]
        return ids.numel() * (dist.get_world_size() if self.name == "ep_layer" else 1) / self.experts


def with_grouped_matmul(operator: Operator) -> Call:
    """torch's stable sort and grouped matmul. Products behind an all_gather stay in the order of experts."""
    inputs, experts = operator.inputs, operator.experts
    first, own = operator.local
    ids = inputs["ids"]
    if operator.name == "ag_moe":
        x, w = inputs["x"], turned(inputs["w"])
        return lambda: grouped(gathered(x)[0], w, ids, experts)
    if operator.name == "moe_rs":
        h, weights, w = inputs["h"], inputs["weights"], turned(inputs["w"])
        return lambda: scattered(token_sums(placed(*grouped(h, w, ids, experts)), ids, weights, 0, experts))
    gate, up, down = (turned(inputs[one]) for one in ("gate", "up", "down"))

    def layer() -> torch.Tensor:
        xf, every, weights = gathered(inputs["x"], ids, inputs["weights"])
        here = every - first
        order, ends = by_experts(torch.where((here >= 0) & (here < own), here, own), own + 1)
        ends = ends[:own]
        rows = xf[order // ids.shape[1]]
        h = torch.nn.functional.silu(torch._grouped_mm(rows, gate, ends)) * torch._grouped_mm(rows, up, ends)
        y = placed(torch._grouped_mm(h, down, ends), order)
        return scattered(token_sums(y, every, weights, first, own))

    return layer


@dataclass(frozen=True)
class Fused:
    """A fused loop between collectives."""

    local: Callable[[Tile], object]  # what lies between collectives, from gathered inputs: tiles are tuned by it
    whole: Callable[[Tile], object]
    tiles: Sequence[Tile]
    prepare: Call = lambda: None  # gathers what `local` takes, once there are other inputs


def with_fused_loop(operator: Operator) -> Fused:
    inputs, tiles = operator.inputs, tiles_for(operator.mean_rows)
    first, own = operator.local
    ids = inputs["ids"]
    if operator.name == "ag_moe":
        x, w = inputs["x"], inputs["w"].contiguous()
        (full,) = gathered(x)
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]

        def beside(tile: Tile) -> torch.Tensor:
            """The index is made while rows are gathered: it needs none."""
            here = torch.cuda.current_stream()
            side.wait_stream(here)
            with torch.cuda.stream(side):
                index = indexed(ids, first, own, tile.rows)
            (rows,) = gathered(x)
            here.wait_stream(side)
            return products(rows, w, index, tile)

        return Fused(lambda tile: products(full, w, indexed(ids, first, own, tile.rows), tile), beside, tiles)
    if operator.name == "moe_rs":
        h, weights, w = inputs["h"], inputs["weights"], inputs["w"].contiguous()

        def summed(tile: Tile) -> torch.Tensor:
            rows = products(h, w, indexed(ids, first, own, tile.rows), tile)
            return token_sums(rows, ids, weights, first, own)

        return Fused(summed, lambda tile: scattered(summed(tile)), tiles)
    gate, up, down = (inputs[one].contiguous() for one in ("gate", "up", "down"))
    parts = [inputs["x"], ids, inputs["weights"]]
    gather = _gather_of(parts)
    held = gather(*parts)

    def layer(tile: Tile, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        index = indexed(ids, first, own, tile.rows)
        h = products(x, gate, index, tile, up=up)
        return token_sums(products(h, down, index, tile), ids, weights, first, own)

    def prepare() -> None:
        for one, now in zip(held, gathered(*parts), strict=True):
            one.copy_(now)

    return Fused(lambda tile: layer(tile, *held), lambda tile: scattered(layer(tile, *gather(*parts))), tiles, prepare)


def _gather_of(parts: Sequence[torch.Tensor]) -> Callable[..., list[torch.Tensor]]:
    """In one launch, if this torch can and the result is the same."""
    try:
        pairs = list(zip(gathered_as_one(*parts), gathered(*parts), strict=True))
    except Exception as error:
        print(f"rank {dist.get_rank()}: no gather in one launch. {type(error).__name__}: {error}", flush=True)
        _world.pg_coalesce_state.clear()  # or later collectives would wait for its end
        return gathered
    return gathered_as_one if all_say(all(torch.equal(one, other) for one, other in pairs)) else gathered


def all_say(fine: bool) -> bool:
    """Whether each rank says so."""
    found = torch.tensor([int(fine)], device="cuda")
    dist.all_reduce(found, dist.ReduceOp.MIN)
    return bool(found.item())


def tuned(fused: Fused) -> dict[Tile, float]:
    """Microseconds of what lies between collectives with each tile, on the slowest rank; infinite for a tile that fails."""
    fused.prepare()
    found = torch.full((len(fused.tiles),), torch.inf, device="cuda")
    problems = []
    for number, tile in enumerate(fused.tiles):
        try:
            found[number] = _local_us(lambda tile=tile: fused.local(tile))  # type: ignore[misc]
        except Exception as error:
            problems.append(f"{tile}: {type(error).__name__}: {error}")
            print(f"rank {dist.get_rank()}, tile {problems[-1]}", flush=True)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    if found.isinf().all():
        raise RuntimeError(f"no tile of the fused loop runs. {'; '.join(problems)}")
    return dict(zip(fused.tiles, found.tolist(), strict=True))


def _local_us(call: Call) -> float:
    """Of a call in a graph of several, without collectives."""
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL's own thread may query events meanwhile
        for _ in range(_CALLS):
            call()
    times = list[float]()
    for number in range(_ROUNDS + 2):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        if number > 1:
            times.append(begin.elapsed_time(end) * 1e3 / _CALLS)
    return float(statistics.median(times))
