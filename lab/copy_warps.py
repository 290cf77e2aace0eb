"""On GPUs: warps that push keys beside tiles of attention, with other constants in the emitted file, and without waits.

    torchrun --nproc-per-node 2 lab/copy_warps.py --pieces 8 16 --rows 128 32 --pace 0 5000 --json copy_warps.jsonl

Each run is `by copies`, with the copies of copy engines, or a triple: rows that a move tells of, rows of a piece, clocks from
piece to piece. `--alone` times each once more with waits left out (results are wrong then), so that what is left is what moving
costs the tiles. Times are those of `benchmarks/attention.py`: CUDA graphs, the slowest rank, the median of five rounds.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch.distributed as dist

import lowering
import topologies
from benchmarks.attention import Row, inputs, slowest_us
from tests.pipeline.attention_specs import How, spec_of
from tilelink.bench.machine import topology_of_gpus
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.ranks import join, machine

_SPIN = '    while tl.atomic_add(word, 0, sem="acquire", scope="sys") - value < 0:\n        pass\n'
_LOOK = '    tl.atomic_add(word, 0, sem="acquire", scope="sys")\n'


def changed(source: str, rows: int, piece: int, pace: int) -> str:
    """An emitted file with other constants. Raises ValueError for one that has none of them."""
    for name, value in ((r"\w+_MOVED_ROWS", rows), (r"\w+_PIECE_ROWS", piece), (r"\w+_PACE", pace)):
        source, count = re.subn(rf"(?m)^({name}) = tl.constexpr\(\d+\)", rf"\1 = tl.constexpr({value})", source)
        if count != 2:
            raise ValueError(f"{count} constants {name}, and there are keys and values")
    return source


def measured(row: Row, topology: topologies.Topology, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    known = {"tokens": row.tokens, "heads": [row.queries, row.keys], "causal": row.causal}
    triples: list[tuple[int, int, int] | None] = [None, *product(arguments.rows, arguments.pieces, arguments.pace)]
    for triple in triples:
        pins = {"mover": "CopyWarps()" if triple else "CopyEngine()", "compute": "triton"}
        schedule = spec_of("gathered", How(causal=row.causal)).plan_for(topology, row.sizes, "bf16", pins)
        source = lowering.emit(schedule)
        if triple:
            source = changed(source, *triple)
        for waits in (True, False) if arguments.alone else (True,):
            module = load_source(source if waits else source.replace(_SPIN, _LOOK), "attention")
            op = operator_class(module)(module.SymmetricMemoryFabric())
            wrong = sum(one["wrong"] for one in module.check_call(op, 0, 3)) if waits else None
            us = slowest_us(partial(op, *inputs(row, 1)))
            yield known | {"run": triple or "by copies", "waits": waits, "us": us, "wrong_of_rank_0": wrong}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokens", type=int, nargs="*", default=[4096, 8192, 16384])
    parser.add_argument("--heads", type=int, nargs=2, default=[32, 32], help="of queries, of keys")
    parser.add_argument("--rows", type=int, nargs="*", default=[128])
    parser.add_argument("--pieces", type=int, nargs="*", default=[16])
    parser.add_argument("--pace", type=int, nargs="*", default=[0, 5000])
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    join()
    topology, found = topologies.load(topology_of_gpus(), dist.get_world_size()), list[dict[str, Any]]()
    for tokens, causal in product(arguments.tokens, (False, True)):
        for one in measured(Row(tokens, *arguments.heads, 128, causal), topology, arguments):
            found.append(one | {"machine": machine()})
            if dist.get_rank() == 0:
                print(json.dumps(one), flush=True)
                if arguments.json is not None:
                    arguments.json.write_text("".join(f"{json.dumps(some)}\n" for some in found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
