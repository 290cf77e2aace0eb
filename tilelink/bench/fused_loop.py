"""Baselines of operators with experts by a fused loop (`fused_experts.py`) between collectives of NCCL.

All index work is in the call. The tile is the fastest of a few for the ids that the inputs hold when it is prepared.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _world

from tilelink.bench.expert_inputs import ExpertInputs, all_say, gathered, gathered_as_one, scattered
from tilelink.bench.fused_experts import Tile, indexed, products, tiles_for, token_sums
from tilelink.bench.rows import Operator
from tilelink.measuring.device import Outputs

_CALLS, _ROUNDS = 10, 5  # of a graph with which tiles are compared


@dataclass(frozen=True)
class Fused:
    """A fused loop between collectives."""

    local: Callable[[Tile], torch.Tensor]  # what lies between collectives, from gathered inputs: tiles are tuned by it
    whole: Callable[[Tile], torch.Tensor]
    tiles: Sequence[Tile]
    prepare: Callable[[], object] = lambda: None  # gathers what `local` takes, once there are other inputs


def with_fused_loop(layer: ExpertInputs) -> Fused:
    inputs, tiles = layer.inputs, tiles_for(layer.mean_rows)
    first, own = layer.local
    ids = inputs["ids"]
    if layer.operator is Operator.AG_MOE:
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
    if layer.operator is Operator.MOE_RS:
        h, weights, w = inputs["h"], inputs["weights"], inputs["w"].contiguous()

        def summed(tile: Tile) -> torch.Tensor:
            rows = products(h, w, indexed(ids, first, own, tile.rows), tile)
            return token_sums(rows, ids, weights, first, own)

        return Fused(summed, lambda tile: scattered(summed(tile)), tiles)
    gate, up, down = (inputs[one].contiguous() for one in ("gate", "up", "down"))
    parts = [inputs["x"], ids, inputs["weights"]]
    gather = _gather_of(parts)
    held = gather(*parts)

    def summands(tile: Tile, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        index = indexed(ids, first, own, tile.rows)
        h = products(x, gate, index, tile, up=up)
        return token_sums(products(h, down, index, tile), ids, weights, first, own)

    def prepare() -> None:
        for one, now in zip(held, gathered(*parts), strict=True):
            one.copy_(now)

    return Fused(
        lambda tile: summands(tile, *held), lambda tile: scattered(summands(tile, *gather(*parts))), tiles, prepare
    )


def _gather_of(parts: Sequence[torch.Tensor]) -> Callable[..., list[torch.Tensor]]:
    """In one launch, if this torch can and the result is the same."""
    try:
        pairs = list(zip(gathered_as_one(*parts), gathered(*parts), strict=True))
    except Exception as error:
        print(f"rank {dist.get_rank()}: no gather in one launch. {type(error).__name__}: {error}", flush=True)
        _world.pg_coalesce_state.clear()  # or later collectives would wait for its end
        return gathered
    same = all(torch.equal(one, other) for one, other in pairs)
    return gathered_as_one if all_say(same, parts[0].device) else gathered


def tuned(fused: Fused) -> dict[Tile, float]:
    """Microseconds of what lies between collectives with each tile, on the slowest rank; infinite for a tile that fails."""
    fused.prepare()
    found = torch.full((len(fused.tiles),), torch.inf, device="cuda")
    problems = []
    for number, tile in enumerate(fused.tiles):
        try:
            found[number] = local_us(lambda tile=tile: fused.local(tile))  # type: ignore[misc]
        except Exception as error:
            problems.append(f"{tile}: {type(error).__name__}: {error}")
            print(f"rank {dist.get_rank()}, tile {problems[-1]}", flush=True)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    if found.isinf().all():
        raise RuntimeError(f"no tile of the fused loop runs. {'; '.join(problems)}")
    return dict(zip(fused.tiles, found.tolist(), strict=True))


def local_us(call: Callable[[], object]) -> float:
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


class FusedCall:
    """A call with the tile that was the fastest."""

    def __init__(self, layer: ExpertInputs) -> None:
        """All ranks together. Raises RuntimeError if no tile runs."""
        self._fused = with_fused_loop(layer)
        times = tuned(self._fused)
        self.tile = min(times, key=lambda tile: times[tile])
        self.note = f"tile {self.tile}"

    def __call__(self) -> Outputs:
        return (self._fused.whole(self.tile),)
