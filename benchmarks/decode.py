"""On GPUs: flash decode over keys and values of all ranks, beside attention of libraries and NCCL; each element, with late ranks.

    torchrun --nproc-per-node 2 benchmarks/decode.py --json benchmarks/results/decode_2xh100.jsonl --drawn 7:12

Where keys and values are small, each element is checked against its bounds (`lowering/selfcheck`), in memory that no call has
seen. Each element of three results is compared with a merge in float64 of what `Split` finds, or of the states that are given:
a full sequence, random lengths, ranks that have seen nothing; then bit by bit with the same results, while one rank or the
other is late. Times are those of CUDA graphs of several calls, of the slowest rank, the median of five rounds. Calls take turns
with inputs, and a turn is several times as large as the L2. A baseline is an attention of own keys, `alone_us`, and NCCL, which
takes states to the ranks of their heads, where a kernel merges them, `us`. `floor_us`: the same bytes are read.
Drawn rows have any number of sequences, tokens and heads, and random lengths; of baselines, only `split` knows of these.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist

import lowering
import tilelink
import topologies
from benchmarks.decode_baselines import (
    Attention,
    Decode,
    Given,
    each_us,
    exchange_of,
    floor_us,
    of_flashinfer,
    of_torch,
    split_of,
    tuned_split,
)
from tilelink import Partial, Shard, Tensor, dims
from tilelink.bench.machine import topology_of_gpus
from tilelink.bench.split_states import Exchange, Split, States
from tilelink.declaration import Overlap
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.ranks import join, machine

_MOST_CYCLES = 400_000
_FEW_LENGTHS, _MANY_LENGTHS, _MANY_CALLS = 3, 24, 1000  # sets of lengths; late calls from which on there are many
_TURN_BYTES, _MOST_SETS = 2**29, 64  # keys and values of a rank that calls take turns with
_CALLS, _FEW_CALLS, _FEW_BYTES = 20, 4, 2**28  # of a graph: few where one of them reads as much
_CHECKED_BYTES = 200e6  # keys and values of all ranks, of which there is room for float64
_BYTES_A_US = 2.75e6

B, S, Q, G, D, T, H = dims("B S Q G D T H")


@tilelink.overlap
def decode(
    q: Tensor(B, Q, D),
    k: Tensor(B, S, G, D, placement=Shard(1)),
    v: Tensor(B, S, G, D, placement=Shard(1)),
    lengths: Tensor(B, dtype="int32"),
):
    return tilelink.reduce_scatter(tilelink.attention(q, k, v, lengths=lengths), dim=1)


def combine(dim: int | None) -> Overlap:
    """Of states of ranks: some tokens or heads for each rank, or all."""

    @tilelink.overlap
    def merged(means: Tensor(T, H, D, placement=Partial()), lse: Tensor(T, H, dtype="fp32", placement=Partial())):
        whole = tilelink.merge_states(means, lse)
        return tilelink.all_reduce(whole) if dim is None else tilelink.reduce_scatter(whole, dim=dim)

    return merged


@dataclass(frozen=True)
class Combine:
    tokens: int
    dim: int | None
    heads: int = 64
    width: int = 128

    @property
    def sizes(self) -> dict[str, int]:
        return {"T": self.tokens, "H": self.heads, "D": self.width}


def rows(which: str, ranks: int) -> Iterator[Decode | Combine]:
    if which in ("b1", "all"):
        yield from (Decode(1, tokens * 1024) for tokens in (8, 32, 128, 1024))
    if which == "all":
        yield from (Decode(sequences, tokens * 1024) for sequences in (8, 64) for tokens in (8, 32))
    if which in ("combine", "all"):
        yield from (
            Combine(tokens, dim) for tokens, dim in product((1, 8, 64), (0, 1, None)) if dim != 0 or tokens % ranks == 0
        )


def drawn(seed: int, count: int, ranks: int) -> Iterator[Decode]:
    rng = random.Random(seed)
    for _ in range(count):
        keys = rng.choice([1, 2, 4, 8])
        queries = keys * rng.choice([many for many in range(1, 9) if keys * many % ranks == 0])
        tokens = ranks * max(1, round(2 ** rng.uniform(8, 16) / ranks))
        yield Decode(rng.randint(1, 16), tokens, queries, keys, rng.choice([64, 128]), ragged=True)


def most(*found: float) -> list[float]:
    """Of all ranks."""
    numbers = torch.tensor(found, dtype=torch.float64, device="cuda")
    dist.all_reduce(numbers, op=dist.ReduceOp.MAX)
    return numbers.tolist()


def joined(states: States, shape: Sequence[int], dim: int | None) -> torch.Tensor:
    """A rank's part of the merged states of all, in float64."""
    ranks, everywhere = dist.get_world_size(), []
    for one in states[:2]:
        everywhere.append(torch.empty(ranks * one.shape[0], *one.shape[1:], dtype=one.dtype, device=one.device))
        dist.all_gather_into_tensor(everywhere[-1], one)
    weights = torch.softmax(everywhere[1].double(), 0).nan_to_num(0.0)[..., None]
    whole = (weights * torch.where(weights > 0, everywhere[0], 0.0)).sum(0).view(*shape)
    return whole if dim is None else whole.chunk(ranks, dim)[dist.get_rank()]


def far(result: torch.Tensor, wanted: torch.Tensor) -> int:
    """Elements that are further off than roundings to bf16 take them: a part of the element, and of those of its sequence."""
    size = wanted.square().mean((1, 2), keepdim=True).sqrt()
    near = (result.double() - wanted).abs() <= 2**-7 * wanted.abs() + 2**-6 * size
    return int((~near).sum().item())


def changed_late(
    op: Callable[..., torch.Tensor], sets: Sequence[Given], wanted: Sequence[torch.Tensor], seed: int, calls: int
) -> int:
    """Elements that are another bit pattern when ranks are late, over many calls."""
    rng, rank, ranks = random.Random(seed), dist.get_rank(), dist.get_world_size()
    changed = torch.zeros((), dtype=torch.int64, device="cuda")
    for call in range(calls):
        late, cycles = rng.randrange(2 * ranks), rng.randrange(1, _MOST_CYCLES)
        if late == rank:
            torch.cuda._sleep(cycles)
        changed += (op(*sets[call % len(sets)]) != wanted[call % len(sets)]).sum()
    return int(most(changed.item())[0])


def operator(
    spec: Overlap,
    row: Decode | Combine,
    bounds: bool,
    sets: Sequence[Given],
    truths: Sequence[torch.Tensor],
    seed: int,
    late_calls: int,
) -> tuple[Callable[..., torch.Tensor], dict[str, Any]]:
    """Planned and emitted; and whether it is right."""
    schedule = spec.plan_for(topologies.load(topology_of_gpus(), dist.get_world_size()), row.sizes, "bf16", {})
    module = load_source(lowering.emit(schedule), "decode")
    op = operator_class(module)(module.SymmetricMemoryFabric())
    facts = module.check_call(op, 0, seed) if bounds else []
    results = [op(*one).clone() for one in sets]
    off, wrong, error = most(
        sum(map(far, results, truths)),
        sum(one["wrong"] for one in facts),
        max((one["error"] for one in facts), default=0),
    )
    found = asdict(row) | {"predicted_us": schedule.predicted_us, "choices": dict(schedule.choices)}
    found |= {"check": "bounds, states" if bounds else "states", "wrong": int(off + wrong), "error": round(error, 3)}
    torch.cuda.synchronize()
    held = torch.cuda.memory_allocated()
    found |= {"late_calls": late_calls, "changed_late": changed_late(op, sets, results, seed, late_calls)}
    return op, found | {"grown_bytes": int(most(torch.cuda.memory_allocated() - held)[0])}


def normal(shape: Sequence[int], seed: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator("cuda").manual_seed(seed), device="cuda", dtype=dtype)


def lengths_of(row: Decode, rng: random.Random, ragged: bool) -> list[int]:
    """Some of them none, some all of the tokens."""
    if not ragged:
        return [row.tokens] * row.sequences
    return [min(row.tokens, max(0, rng.randint(-row.tokens // 8, row.tokens * 9 // 8))) for _ in range(row.sequences)]


def measured_decode(row: Decode, seed: int, late_calls: int) -> dict[str, Any]:
    rank, ranks, rng = dist.get_rank(), dist.get_world_size(), random.Random(seed)
    shape, keys = (row.sequences, row.queries, row.width), (row.sequences, row.tokens // ranks, row.keys, row.width)
    whole = 4 * math.prod(keys)  # bytes
    many = _MANY_LENGTHS if late_calls > _MANY_CALLS else _FEW_LENGTHS
    lengths = [lengths_of(row, rng, ragged or row.ragged) for ragged in (False, *[True] * (many - 1))]
    on_gpu = [torch.tensor(one, dtype=torch.int32, device="cuda") for one in lengths]
    turn: list[Given] = []
    for number in range(min(_MOST_SETS, -(-_TURN_BYTES // whole))):
        first = 100 * (1000 * seed + number)
        own = (normal(keys, first + 1 + 2 * rank + value) for value in range(2))
        turn.append((normal(shape, first), *own, on_gpu[0]))
    sets = [(*turn[number % len(turn)][:3], one) for number, one in enumerate(on_gpu)]
    exact = split_of(row, 8, 64, 2)
    truths = [joined(exact(*one), shape, 1) for one in sets]
    op, found = operator(decode, row, whole * ranks <= _CHECKED_BYTES, sets, truths, seed, late_calls)
    least = _CALLS if whole < _FEW_BYTES else _FEW_CALLS
    seen = [sum(min(keys[1], max(0, one - other * keys[1])) for one in lengths[0]) for other in range(ranks)]
    limit = 4 * row.keys * row.width * max(seen) / _BYTES_A_US
    found |= {"sets": len(turn), "ours_us": each_us(op, turn, least), "limit_us": round(limit, 2)}
    if not row.ragged:
        found["floor_us"] = floor_us(turn, least)
    found["baselines"] = baselines(row, op, turn, least)
    times = {name: one["us"] for name, one in found["baselines"].items() if "us" in one}
    best = min(times, key=times.__getitem__)
    return found | {"best": best, "best_us": times[best]}


def baselines(
    row: Decode, op: Callable[..., torch.Tensor], turn: Sequence[Given], least: int
) -> dict[str, dict[str, Any]]:
    """Times of each, and how far its result is from ours; or why there are none."""
    exchange, found = exchange_of((row.sequences, row.queries, row.width), 1), {}
    makers: dict[str, Callable[[], Attention]] = {
        "flash": lambda: of_torch("flash", row),
        "cudnn": lambda: of_torch("cudnn", row),
        "flashinfer": lambda: of_flashinfer(row),
        "split": lambda: tuned_split(row, exchange, turn, least),
    }
    for name, make in makers.items():
        reason = ""
        try:
            if row.ragged and name != "split":
                raise ValueError("it is given no lengths")
            attention = make()
            attention(*turn[0])
            torch.cuda.synchronize()
        except Exception as error:  # whatever a library has against it
            reason = f"{type(error).__name__}: {error}"[:200]
        if most(bool(reason))[0]:
            found[name] = {"skipped": reason or "it raised on another rank"}
        else:
            found[name] = timed(attention, exchange, op, turn, least)
    return found


def timed(
    attention: Attention, exchange: Exchange, op: Callable[..., torch.Tensor], turn: Sequence[Given], least: int
) -> dict[str, Any]:
    def alone(*given: torch.Tensor) -> None:
        states = attention(*given)
        if len(states[0]) > 1:  # parts are merged into what is sent
            exchange.pack(states)

    def whole(*given: torch.Tensor) -> torch.Tensor:
        exchange.pack(attention(*given))
        return exchange.finish()

    from_ours = apart(op(*turn[0]), whole(*turn[0]))
    how = {"how": [attention.grid[2], attention.tile[2], attention.stages]} if isinstance(attention, Split) else {}
    return {"alone_us": each_us(alone, turn, least), "us": each_us(whole, turn, least), "from_ours": from_ours} | how


def apart(ours: torch.Tensor, other: torch.Tensor) -> float:
    return most((ours.float() - other.float()).abs().max().item())[0]


def measured_combine(row: Combine, seed: int, late_calls: int) -> dict[str, Any]:
    shape, rank = (row.tokens, row.heads, row.width), dist.get_rank()
    turn: list[Given] = []
    for number in range(4):
        first = 100 * (1000 * seed + number) + 2 * rank
        turn.append((normal(shape, first), 2 * normal(shape[:2], first + 1, torch.float32)))
    unseen = [lse < -2 for _, lse in turn]  # on this rank: its mean is of no matter
    sets = [
        turn[0],
        *(
            (means.masked_fill(none[..., None], math.nan), lse.masked_fill(none, -math.inf))
            for none, (means, lse) in zip(unseen[1:], turn[1:], strict=True)
        ),
    ]

    def states(means: torch.Tensor, lse: torch.Tensor) -> States:
        return means.view(1, -1, row.width), lse.view(1, -1), 1.0

    exchange = exchange_of(shape, row.dim)

    def nccl(means: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
        exchange.pack(states(means, lse))
        return exchange.finish()

    truths = [joined(states(*one), shape, row.dim) for one in sets]
    op, found = operator(combine(row.dim), row, True, sets, truths, seed, late_calls)
    found |= {"from_nccl": apart(op(*turn[0]), nccl(*turn[0])), "ours_us": each_us(op, turn, _CALLS)}
    return found | {"nccl_us": each_us(nccl, turn, _CALLS)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", choices=["b1", "all", "combine", "none"], default="all", help="besides drawn ones")
    parser.add_argument("--drawn", default="", metavar="SEED:COUNT")
    parser.add_argument("--seconds", type=float, default=500.0, help="no row begins later")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--late-calls", type=int, default=120, help="of each row, with ranks that are late in turn")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    join()
    began, listed = time.monotonic(), list(rows(arguments.rows, dist.get_world_size()))
    if arguments.drawn:
        seed, count = map(int, arguments.drawn.split(":"))
        listed += drawn(seed, count, dist.get_world_size())
    lines = [{"machine": machine(), "commit": arguments.commit, "seed": arguments.seed, "drawn": arguments.drawn}]
    for row in listed:
        if most(time.monotonic() - began)[0] > arguments.seconds:
            break
        how = arguments.seed, arguments.late_calls
        lines.append(measured_decode(row, *how) if isinstance(row, Decode) else measured_combine(row, *how))
        torch.cuda.empty_cache()
        if dist.get_rank() == 0:
            print(json.dumps(lines[-1]), flush=True)
            if arguments.json is not None:
                arguments.json.write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    wrong = sum(bool(one.get("wrong") or one.get("changed_late")) for one in lines)
    if dist.get_rank() == 0:
        print(f"{len(lines) - 1} rows, {wrong} wrong")
    dist.destroy_process_group()
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
