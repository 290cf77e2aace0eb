"""On GPUs: attention over keys and values of all ranks, beside NCCL and attention of torch; each element, with late ranks.

    torchrun --nproc-per-node 2 benchmarks/attention.py --json benchmarks/results/attention_2xh200.jsonl --drawn 7:12

A row is planned, emitted and checked: each element against its bounds (`lowering/selfcheck`), in memory that no call has seen;
then bit by bit against the first result, while one rank or the other is late. Times are those of CUDA graphs, of the slowest
rank, the median of five rounds. `serial` gathers keys and values by NCCL, then attends by cuDNN: with a causal mask in two
pieces, own keys and those of ranks before, which one kernel merges by their sums. `alone` is the same without the gather; both
have tokens in order where ours has them in zigzag. Drawn rows have any number of tokens and heads; those of several sequences
are checked, and ours is timed. `--forms parts whole` checks and times attention by the library, too: part by part as copies bring
keys, and in one call behind NCCL.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist

import lowering
import topologies
from tests.pipeline.attention_specs import How, spec_of
from tilelink.bench.attention_baselines import GatheredAttention
from tilelink.bench.machine import topology_of_gpus
from tilelink.errors import TileLinkError
from tilelink.ir.schedule import Schedule
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.ranks import join, machine

_ROUNDS, _CALLS, _MOST_CYCLES = 5, 12, 400_000
_HEADS = ((32, 32), (64, 8))


@dataclass(frozen=True)
class Row:
    tokens: int
    queries: int  # heads
    keys: int
    width: int
    causal: bool
    sequences: int = 1
    zigzag: bool = False
    window: int = 0

    @property
    def sizes(self) -> dict[str, int]:
        return {"B": self.sequences, "S": self.tokens, "Q": self.queries, "G": self.keys, "D": self.width}


def _shared(row: Row, mover: str) -> dict[str, str]:
    return {"tile": f"128x{row.width}x128/4w2s2g", "mover": mover}


FORMS: dict[str, Callable[[Row], dict[str, str]]] = {
    "parts": lambda row: {"compute": "library", "mover": "CopyEngine()"},
    "whole": lambda row: {"compute": "library", "mover": "Library()"},
    "warps": lambda row: _shared(row, "CopyWarps()"),
    "copies": lambda row: _shared(row, "CopyEngine()"),
    "by_keys": lambda row: {"group": str(row.queries // row.keys)},  # heads that share keys, group by group
}


def rows() -> Iterator[Row]:
    for tokens in (1024, 2048, 4096, 8192, 16384):
        for queries, keys in _HEADS:
            for causal in (False, True):
                yield Row(tokens, queries, keys, 128, causal)
            yield Row(tokens, queries, keys, 128, True, zigzag=True)
    yield from (Row(4096, 32, 8, 64, causal) for causal in (False, True))
    yield from (Row(16384, 32, keys, 128, True, window=2048) for keys in (8, 32))


def drawn(seed: int, count: int, ranks: int) -> Iterator[Row]:
    """Any number of tokens, of which ranks have as many each."""
    rng = random.Random(seed)
    for _ in range(count):
        keys = rng.choice([1, 2, 4, 8])
        tokens = ranks * round(2 ** rng.uniform(4, 12))
        heads, width, causal = keys * rng.choice([1, 2, 4, 8]), rng.choice([64, 128]), rng.random() < 0.5
        yield Row(tokens, heads, keys, width, causal, rng.choice([1, 1, 2, 4]))


def slowest_us(call: Callable[[], object]) -> float:
    """Of a CUDA graph of `call` on all ranks at once."""
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    dist.barrier()
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            call()
    found = []
    for _ in range(_ROUNDS):
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
        dist.barrier()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(_CALLS):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        took = torch.tensor([begin.elapsed_time(end) / _CALLS * 1e3], device="cuda")
        dist.all_reduce(took, op=dist.ReduceOp.MAX)
        found.append(took.item())
    return round(sorted(found)[_ROUNDS // 2], 1)


def inputs(row: Row, seed: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator("cuda").manual_seed(seed * 1000 + dist.get_rank())
    tokens = row.tokens // dist.get_world_size()
    shapes = [(row.sequences, tokens, heads, row.width) for heads in (row.queries, row.keys, row.keys)]
    return tuple(torch.randn(one, generator=generator, device="cuda").bfloat16() for one in shapes)


def changed_late(op: Callable[..., torch.Tensor], sets: Sequence[Sequence[torch.Tensor]], seed: int, calls: int) -> int:
    """Elements that are another bit pattern when ranks are late, over many calls with these inputs in turn."""
    rng, rank, ranks = random.Random(seed), dist.get_rank(), dist.get_world_size()
    wanted, changed = [op(*one).clone() for one in sets], torch.zeros((), dtype=torch.int64, device="cuda")
    for call in range(calls):
        late, cycles = rng.randrange(2 * ranks), rng.randrange(1, _MOST_CYCLES)
        if late == rank:
            torch.cuda._sleep(cycles)
        changed += (op(*sets[call % len(sets)]) != wanted[call % len(sets)]).sum()
    dist.all_reduce(changed)
    return int(changed.item())


def checked(
    row: Row, seed: int, late_calls: int, pins: dict[str, str]
) -> tuple[Schedule, Callable[..., torch.Tensor], dict[str, Any]]:
    """A plan, its operator, and what is wrong with it."""
    topology = topologies.load(topology_of_gpus(), dist.get_world_size())
    how = How(causal=row.causal, zigzag=row.zigzag, window=row.window)
    schedule = spec_of("gathered", how).plan_for(topology, row.sizes, "bf16", pins)
    module = load_source(lowering.emit(schedule), "attention")
    op = operator_class(module)(module.SymmetricMemoryFabric())
    facts = module.check_call(op, 0, seed)
    worst = torch.tensor([sum(one["wrong"] for one in facts), max(one["error"] for one in facts)], device="cuda")
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    found = {"predicted_us": schedule.predicted_us, "wrong": int(worst[0].item()), "error": round(worst[1].item(), 3)}
    sets = [inputs(row, seed + number) for number in range(3)]
    return schedule, op, found | {"changed_late": changed_late(op, sets, seed, late_calls)}


def measured(row: Row, seed: int, late_calls: int, forms: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = asdict(row)
    schedule, op, facts = checked(row, seed, late_calls, {})
    found |= facts
    given = inputs(row, seed)
    found["ours_us"] = slowest_us(lambda: op(*given))
    found["choices"] = {
        name: value for name, value in schedule.choices if "mover" in name or "tile" in name or "cut" in name
    }
    for form in forms if not (row.zigzag or row.window) else ():
        try:
            _, other, facts = checked(row, seed, late_calls, FORMS[form](row))
        except TileLinkError as error:  # such as several sequences, whose tokens do not lie one behind the other
            found[f"{form}_not"] = str(error)
            continue
        found |= {f"{form}_{name}": value for name, value in facts.items()}
        found[f"{form}_us"] = slowest_us(partial(other, *given))
    if row.sequences == 1 and not row.window:
        serial = GatheredAttention(*given, row.causal, row.width**-0.5)
        serial.gather()
        found["alone_us"] = slowest_us(serial.attend)
        found["gather_us"] = slowest_us(serial.gather)
        found["serial_us"] = slowest_us(lambda: (serial.gather(), serial.attend()))
        if not row.zigzag:  # the same tokens
            ours, torchs = op(*given).float(), serial.attend().float()
            far = (ours - torchs).abs().max()
            dist.all_reduce(far, op=dist.ReduceOp.MAX)
            found["from_torch"] = far.item()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--drawn", default="", metavar="SEED:COUNT")
    parser.add_argument("--only-drawn", action="store_true")
    parser.add_argument("--tokens", type=int, nargs="*", help="rows with so many tokens, besides drawn ones")
    parser.add_argument("--forms", nargs="*", default=[], choices=FORMS, help="that are timed besides")
    parser.add_argument("--late-calls", type=int, default=120, help="of each row, with ranks that are late in turn")
    parser.add_argument("--seconds", type=float, default=500.0, help="no row begins later")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    join()
    rank, began = dist.get_rank(), time.monotonic()
    listed = [] if arguments.only_drawn else list(rows())
    if arguments.tokens:
        listed = [row for row in listed if row.tokens in arguments.tokens]
    if arguments.drawn:
        seed, count = map(int, arguments.drawn.split(":"))
        listed += drawn(seed, count, dist.get_world_size())
    lines = [{"machine": machine(), "commit": arguments.commit, "seed": arguments.seed, "drawn": arguments.drawn}]
    for row in listed:
        late = torch.tensor([time.monotonic() - began > arguments.seconds], device="cuda")
        dist.broadcast(late, 0)
        if late.item():
            break
        found = measured(row, arguments.seed, arguments.late_calls, arguments.forms)
        lines.append(found)
        if rank == 0:
            print(json.dumps(found), flush=True)
            if arguments.json is not None:
                arguments.json.write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    wrong = sum(any(one[name] for name in one if name.endswith(("wrong", "changed_late"))) for one in lines)
    if rank == 0:
        print(f"{len(lines) - 1} rows, {wrong} wrong")
    dist.destroy_process_group()
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
