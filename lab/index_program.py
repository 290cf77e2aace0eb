"""On one GPU: the index program of a routing, as CUDA graphs.

    python lab/index_program.py --json index_program.json [--grid]

`new` is cut as lowering cuts it; with --grid at tiles of 64 rows also other chunks, warps and programs for tiles. `count` is the
first launch alone. All that a routing's tables have is compared with a stable sort of torch, of ids of several kinds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from lab.one_gpu import time_us
from lowering.device.routing import count_experts, place_rows
from lowering.steps.routing import Blocks, blocks
from tilelink.ir.routed import Routed

_CALLS, _ROUNDS = 20, 15
_HEIGHTS, _GRID_HEIGHT = (16, 64, 128), 64
_DEVICE = "cuda"


@dataclass(frozen=True)
class Case:
    """Ids of `tokens` tokens; this rank has `own` experts of `every`, the last ones."""

    tokens: int
    choices: int
    own: int
    every: int

    @property
    def routed(self) -> Routed:
        return Routed("routing", "ids", self.tokens, self.choices, self.own, self.every // self.own)

    @property
    def first(self) -> int:
        return self.every - self.own

    def __str__(self) -> str:
        return f"{self.tokens} x {self.choices} of {self.every}" + (f", own {self.own}" if self.first else "")


CASES = (
    Case(8192, 8, 128, 128),
    Case(8192, 8, 64, 128),
    Case(4096, 2, 8, 8),
    Case(512, 4, 60, 60),
    Case(16, 8, 128, 128),
    Case(1, 8, 128, 128),
)
KINDS: dict[str, Callable[[int, int, int], torch.Tensor]] = {
    "uniform": lambda t, k, e: torch.randint(0, e, (t, k)),
    "one expert": lambda t, k, e: torch.full((t, k), e - 1),
    "none": lambda t, k, e: torch.full((t, k), -1),
    "out of range": lambda t, k, e: torch.randint(-3, 3 * e, (t, k)),
}


class Tables:
    def __init__(self, case: Case, height: int, counts: int) -> None:
        most = case.routed.most_tiles(height)

        def table(size: int) -> torch.Tensor:
            return torch.zeros(size, dtype=torch.int32, device=_DEVICE)

        self.counts, self.wrong, self.count = table(counts), table(1), table(1)
        self.rows, self.tokens = table(most * height), table(most * height)
        self.experts, self.here = table(most), table(most)

    @property
    def made(self) -> tuple[torch.Tensor, ...]:
        return self.rows, self.tokens, self.experts, self.here, self.count


Launches = dict[str, Callable[[], object]]  # `count` and `place`, in this order


def new(case: Case, height: int, ids: torch.Tensor, chunk: int, cut: Blocks) -> tuple[Launches, Tables]:
    routed = case.routed
    programs, bins = -(-routed.rows // chunk), routed.bins
    tables = Tables(case, height, programs * bins)
    both = {"NUM_ROWS": routed.rows, "NUM_EXPERTS": case.own, "ALL_EXPERTS": case.every, "BINS": bins, "CHUNK": chunk}
    both["num_warps"] = cut.warps
    sizes = {"CHOICES": case.choices, "NUM_COUNTS": programs, "COUNTS_BLOCK": cut.counts, "TILE": height}
    sizes |= {"TILES_BLOCK": cut.tiles, "MOST_TILES": routed.most_tiles(height), "NONE": int(case.own == case.every)}
    count, place = count_experts[(programs,)], place_rows[(programs + cut.tile_programs,)]
    made, wrong = tables.made, tables.wrong
    launches: Launches = {"count": lambda: count(ids, tables.counts, wrong, case.first, **both)} if programs > 1 else {}
    launches["place"] = lambda: place(ids, tables.counts, wrong, *made, case.first, **both, **sizes)
    return launches, tables


def cuts(case: Case, height: int) -> Iterator[tuple[int, Blocks]]:
    """Chunks and blocks that may be faster than those of lowering: of other chunks and warps, and with the chunk of lowering of
    other blocks and programs for tiles."""
    routed, most = case.routed, case.routed.most_tiles(height)

    def of(chunk: int) -> Blocks:
        return blocks(-(-routed.rows // chunk), chunk, routed.bins, most)

    for chunk in (128, 256, 512, 1024, 2048, 4096):
        if chunk <= max(128, _power(routed.rows)) and routed.rows <= 256 * chunk:
            for warps in (2, 4, 8, 16):
                if 1 <= chunk // (32 * warps) <= 16:
                    yield chunk, Blocks(warps, *astuple(of(chunk))[1:])
    chunk, chosen = routed.chunk, of(routed.chunk)
    for tiles in (16, 32, 64, 128):
        for programs in (16, 32, 64, 128):
            if tiles * routed.bins <= 1 << 14 and programs <= -(-most // tiles):
                yield chunk, Blocks(chosen.warps, chosen.counts, tiles, programs)
    for counts in (16, 32, 64, 128):
        if 1 < counts <= _power(routed.programs):
            yield chunk, Blocks(chosen.warps, counts, chosen.tiles, chosen.tile_programs)


def mistakes(case: Case, height: int, ids: torch.Tensor, tables: Tables, calls: int) -> list[str]:
    """Which of the tables that `calls` calls have made are not those of a stable sort."""
    given = ids.flatten().long().cpu() - case.first
    key = torch.where((given >= 0) & (given < case.own), given, case.own)
    order = torch.argsort(key, stable=True)
    sizes = torch.bincount(key, minlength=case.own + 1)
    if case.own < case.every:
        sizes[case.own] = 0  # rows of experts of others have no tiles
    tiles = -(-sizes // height)
    count = int(tiles.sum())
    experts = torch.repeat_interleave(torch.arange(case.own + 1), tiles)
    number = torch.arange(count) - (tiles.cumsum(0) - tiles)[experts]
    here = (sizes[experts] - number * height).clamp(max=height)
    there = torch.arange(height) < here[:, None]
    rows, tokens, found_experts, found_here, found_count = (table.cpu().long() for table in tables.made)
    wanted = order[: int(sizes.sum())]
    outside = (ids < -1) | (ids >= case.every)
    equal = {
        "count": int(found_count) == count,
        "experts": torch.equal(found_experts[:count], experts) and bool((found_experts <= case.own).all()),
        "here": torch.equal(found_here[:count], here) and not found_here[count:].any(),
        "rows": torch.equal(rows[: count * height].view(count, height)[there], wanted),
        "tokens": torch.equal(tokens[: count * height].view(count, height)[there], wanted // case.choices),
        "wrong": int(tables.wrong) == int(outside.sum()) * calls,
    }
    return [name for name, right in equal.items() if not right]


def graph_of(launches: list[Callable[[], object]]) -> torch.cuda.CUDAGraph:
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(_CALLS):
            for launch in launches:
                launch()
    return graph


def time_of(launches: list[Callable[[], object]]) -> float:
    """Microseconds of all of them, behind others of their kind."""
    graph = graph_of(launches)
    return round(statistics.median(time_us(graph, 2) for _ in range(_ROUNDS)) / _CALLS, 2)


def _power(number: int) -> int:
    return 1 << (number - 1).bit_length()


def contenders(case: Case, height: int, grid: bool) -> Iterator[tuple[str, Callable[..., tuple[Launches, Tables]]]]:
    routed = case.routed
    chosen = blocks(routed.programs, routed.chunk, routed.bins, routed.most_tiles(height))
    yield "new", lambda *given: new(*given, routed.chunk, chosen)
    seen = {(routed.chunk, chosen)}
    for chunk, cut in cuts(case, height) if grid else ():
        if (chunk, cut) not in seen:
            seen.add((chunk, cut))
            name = f"chunk {chunk}, {cut.warps} warps, counts {cut.counts}, tiles {cut.tiles} x {cut.tile_programs}"
            yield name, lambda *given, chunk=chunk, cut=cut: new(*given, chunk, cut)


def measured(case: Case, height: int, grid: bool) -> Iterator[dict[str, object]]:
    for name, make in contenders(case, height, grid):
        wrong: dict[str, list[str]] = {}
        for kind, draw in KINDS.items():
            ids = draw(case.tokens, case.choices, case.every).int().to(_DEVICE)
            launches, tables = make(case, height, ids)
            for launch in launches.values():
                launch()
            if found := mistakes(case, height, ids, tables, 1):
                wrong[kind] = found
        ids = KINDS["uniform"](case.tokens, case.choices, case.every).int().to(_DEVICE)
        launches, _ = make(case, height, ids)
        us = {"both": time_of(list(launches.values()))}
        if "count" in launches:
            us["count"] = time_of([launches["count"]])
        yield {"case": str(case), "height": height, "cut": name, "us": us, "wrong": wrong}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--grid", action="store_true")
    given = parser.parse_args()
    torch.manual_seed(0)
    found = []
    for case in CASES:
        for height in _HEIGHTS:
            for one in measured(case, height, given.grid and height == _GRID_HEIGHT):
                found.append(one)
                print(*one.values(), sep="  ", flush=True)
                if given.json:
                    given.json.write_text(json.dumps({"gpu": torch.cuda.get_device_name(), "rows": found}, indent=1))
    assert not any(one["wrong"] for one in found), "tables differ from a stable sort"


if __name__ == "__main__":
    main()
