"""On GPUs: a layer of attention by heads (`examples/15_attention_layer.py`) beside NCCL, cuBLAS and cuDNN, each element checked.

    torchrun --nproc-per-node 2 benchmarks/attention_layer.py --json benchmarks/results/attention_layer_2xh200.jsonl

A row is planned, emitted and checked element by element, then bit by bit while one rank or the other is late. `serial` gathers
tokens by NCCL, multiplies by the three weights as one, attends by cuDNN, multiplies and scatters. Times are those of CUDA graphs,
of the slowest rank, the median of five rounds. Drawn rows have any number of tokens, of heads and of sequences.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import lowering
import topologies
from benchmarks.attention import changed_late, slowest_us
from tests.pipeline.layer_specs import by_heads
from tilelink.bench.machine import topology_of_gpus
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.ranks import join, machine


@dataclass(frozen=True)
class Row:
    tokens: int  # of a sequence
    queries: int  # heads
    keys: int
    width: int
    hidden: int
    sequences: int = 1

    @property
    def sizes(self) -> dict[str, int]:
        return {
            "B": self.sequences, "S": self.tokens, "Q": self.queries, "G": self.keys, "D": self.width, "H": self.hidden
        }  # fmt: skip


ROWS = [Row(tokens, *model) for model in ((32, 8, 128, 4096), (64, 8, 128, 8192)) for tokens in (1024, 4096, 8192)]


def drawn(seed: int, count: int, ranks: int) -> list[Row]:
    rng, found = random.Random(seed), list[Row]()
    for _ in range(count):
        keys, width, sequences = ranks * rng.choice([1, 2, 4]), rng.choice([64, 128]), rng.choice([1, 1, 2])
        heads, tokens = keys * rng.choice([1, 2, 4]), ranks * round(2 ** rng.uniform(5, 11))
        found.append(Row(tokens, heads, keys, width, 256 * rng.randint(2, 16), sequences))
    return found


def inputs(row: Row, seed: int) -> list[torch.Tensor]:
    """Of one rank: its tokens, and the parts of weights that have its heads, about as large as those of a model."""
    ranks, heads = dist.get_world_size(), row.width // dist.get_world_size()
    generator = torch.Generator("cuda").manual_seed(seed * 1000 + dist.get_rank())
    shapes = [
        (row.sequences * row.tokens // ranks, row.hidden),
        *((row.hidden, many * heads) for many in (row.queries, row.keys, row.keys)),
        (row.queries * heads, row.hidden),
    ]
    made = [torch.randn(one, generator=generator, device="cuda") for one in shapes]
    return [made[0].bfloat16(), *((one * one.shape[0] ** -0.5).bfloat16() for one in made[1:])]


class Serial:
    def __init__(
        self, row: Row, x: torch.Tensor, wq: torch.Tensor, wk: torch.Tensor, wv: torch.Tensor, wo: torch.Tensor
    ):
        self.row, self.x, self.wo, self.weights = row, x, wo, torch.cat([wq, wk, wv], 1)
        self.widths = [one.shape[1] for one in (wq, wk, wv)]
        self.whole = x.new_empty(row.sequences * row.tokens, row.hidden)
        self.out = torch.empty_like(x)

    def __call__(self) -> torch.Tensor:
        row = self.row
        dist.all_gather_into_tensor(self.whole, self.x)
        parts = (self.whole @ self.weights).split(self.widths, 1)
        q, k, v = (one.view(row.sequences, row.tokens, -1, row.width).transpose(1, 2) for one in parts)
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            heads = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        rows = heads.transpose(1, 2).reshape(row.sequences * row.tokens, -1)
        dist.reduce_scatter_tensor(self.out, rows @ self.wo)
        return self.out


def measured(row: Row, seed: int, late_calls: int) -> dict[str, Any]:
    topology = topologies.load(topology_of_gpus(), dist.get_world_size())
    schedule = by_heads.plan_for(topology, row.sizes, "bf16", {})
    module = load_source(lowering.emit(schedule), "attention_layer")
    op = operator_class(module)(module.SymmetricMemoryFabric())
    facts = module.check_call(op, 0, seed)
    worst = torch.tensor([sum(one["wrong"] for one in facts), max(one["error"] for one in facts)], device="cuda")
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    given = inputs(row, seed)
    serial = Serial(row, *given)
    far = (op(*given).float() - serial().float()).abs().max()
    dist.all_reduce(far, op=dist.ReduceOp.MAX)
    return asdict(row) | {
        "predicted_us": schedule.predicted_us,
        "wrong": int(worst[0].item()),
        "error": round(worst[1].item(), 3),
        "changed_late": changed_late(op, [inputs(row, seed + number) for number in range(2)], seed, late_calls),
        "ours_us": slowest_us(lambda: op(*given)),
        "serial_us": slowest_us(serial),
        "from_torch": round(far.item(), 5),
        "choices": dict(schedule.choices),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--drawn", default="", metavar="SEED:COUNT")
    parser.add_argument("--late-calls", type=int, default=120, help="of each row, with ranks that are late in turn")
    parser.add_argument("--seconds", type=float, default=300.0, help="no row begins later")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    join()
    listed = list(ROWS)
    if arguments.drawn:
        seed, count = map(int, arguments.drawn.split(":"))
        listed += drawn(seed, count, dist.get_world_size())
    began, lines = time.monotonic(), list[dict[str, Any]]()
    for row in listed:
        late = torch.tensor([time.monotonic() - began > arguments.seconds], device="cuda")
        dist.broadcast(late, 0)
        if late.item():
            break
        lines.append(
            measured(row, arguments.seed, arguments.late_calls) | {"commit": arguments.commit, "machine": machine()}
        )
        if dist.get_rank() == 0:
            print(json.dumps(lines[-1]), flush=True)
            if arguments.json is not None:
                arguments.json.write_text("".join(f"{json.dumps(one)}\n" for one in lines))
        torch.cuda.empty_cache()
    dist.destroy_process_group()
    sys.exit(1 if any(one["wrong"] or one["changed_late"] for one in lines) else 0)


if __name__ == "__main__":
    main()
