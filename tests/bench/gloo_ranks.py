"""`python gloo_ranks.py RANK NUM_RANKS STORE OUT`: one rank of a benchmark on the CPU, over gloo, timed by the wall clock.

What needs GPUs (ours, second streams, symmetric memory) fails here, as a contender may; the rest is compared and timed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import torch.distributed.distributed_c10d as c10d

from lowering.selfcheck.compare import Comparison
from tests.pipeline.attention_specs import How
from tests.pipeline.attention_specs import spec_of as prefill_of
from tests.pipeline.decode_specs import How as More
from tests.pipeline.decode_specs import spec_of as decode_of
from tilelink.bench.attention_baselines import attention_baselines
from tilelink.bench.baselines import FusedOperators, baselines
from tilelink.bench.contender import Setting
from tilelink.bench.expert_inputs import ExpertInputs
from tilelink.bench.fused_experts import Tile
from tilelink.bench.fused_loop import with_fused_loop
from tilelink.bench.ours import ours
from tilelink.bench.plans import Candidate, Origin
from tilelink.bench.ranks import make_problem
from tilelink.bench.routings import Routing
from tilelink.bench.rows import WITH_EXPERTS, WITHOUT_EXPERTS, Operator, select
from tilelink.ir.spec import BoundSpec, bind
from tilelink.measuring.device import Call, Change, Texts
from tilelink.measuring.measure import Options, Problem, measure_row
from tilelink.measuring.spec_problem import spec_problem

_TILES = (Tile(16, 16, 16, 4, 2), Tile(16, 32, 32, 4, 2))


class CpuDevice:
    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.num_ranks = dist.get_world_size()
        self._texts = Texts(c10d._get_default_store(), self.rank, self.num_ranks)

    def meet(self) -> None:
        dist.barrier()

    def exchange(self, text: str) -> list[str]:
        return self._texts.exchange(text)

    def usable(self) -> bool:
        return True

    def capture(self, call: Call, calls: int) -> Call:
        raise RuntimeError("no graphs on the CPU")

    def time(self, batch: Call, lead_in: int, batches: int, change: Change | None = None) -> list[float]:
        found = []
        for number in range(lead_in + batches):
            if change is not None:
                change(number)
            start = time.perf_counter()
            batch()
            found.append(1e6 * (time.perf_counter() - start))
        return found[lead_in:]

    def host_us(self, call: Call, calls: int) -> float:
        return self.time(partial(self._repeat, call, calls), 0, 1)[0] / calls

    def _repeat(self, call: Call, calls: int) -> tuple[torch.Tensor, ...]:
        for _ in range(calls):
            call()
        return ()

    def now_s(self) -> float:
        return time.monotonic()

    def flush_l2(self) -> None: ...

    def release(self) -> None: ...


def fused_loop(problem: Problem) -> bool | None:
    """Whether the fused loop between collectives is right, in Triton's interpreter. Beside an all_gather it needs a stream."""
    assert isinstance(problem.setting, Setting), "of a row"
    if problem.setting.row.operator not in (Operator.MOE_RS, Operator.EP_LAYER):
        return None
    whole = with_fused_loop(ExpertInputs.of(problem.setting)).whole
    return all(Comparison.of(whole(tile), problem.wanted[0]).equal for tile in _TILES)


def attention_specs(num_ranks: int) -> list[BoundSpec]:
    """Several sequences, heads that share keys, lengths and states of any numbers."""
    keys, states = {"B": 2, "Q": 8, "D": 16, "S": 88, "G": 2}, {"T": 2, "H": 8, "D": 16}
    made = [
        *((prefill_of("gathered", How(causal=causal)), keys) for causal in (False, True)),
        (prefill_of("gathered", How(causal=True, zigzag=True)), keys | {"S": 128}),
        (decode_of("heads", More(lengths=True)), keys),
        (decode_of("all", More()), keys),
        (decode_of("sequences", More(merge=True, base2=True)), states),
    ]
    # the interpreter multiplies no bf16
    return [bind(overlap.spec, sizes, num_ranks, "fp32") for overlap, sizes in made]


def attended(spec: BoundSpec, rank: int) -> list[tuple[str, bool]]:
    """Whether baselines are right, before and after inputs are others. They are not timed: the interpreter takes a second."""
    found = []
    for contender in attention_baselines(spec):
        problem = spec_problem(spec, rank, 5, torch.device("cpu"))
        call = contender.prepare(problem.setting)
        found.append((contender.name, Comparison.of(call()[0], problem.wanted[0]).equal))
        fresh, wanted = problem.fresh()
        for here, now in zip(problem.setting.inputs, fresh, strict=True):
            here.copy_(now)
        found.append((contender.name, Comparison.of(call()[0], wanted[0]).equal))
    return found


def main() -> None:
    rank, num_ranks, store, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=num_ranks)
    device = CpuDevice()
    fused = FusedOperators(symm_mem._fused_all_gather_matmul_fallback, symm_mem._fused_matmul_reduce_scatter_fallback)
    found, loops = {}, dict[str, bool]()
    rows = select(WITHOUT_EXPERTS, ["64x32x64"], "fp32", num_ranks)
    rows += select([Operator.GEMM_AR], ["7x32x64"], "fp32", num_ranks)
    rows += select(WITH_EXPERTS, ["24x32x16x6x3"], "fp32", num_ranks, [Routing.HOT7])
    for row in rows:
        problem = make_problem(row, device, torch.device("cpu"), 3)
        loop = fused_loop(problem)
        absent = Candidate("planned", Origin.PLANNED, None, "no GPU")
        contenders = [ours(absent), *baselines(row.operator, fused, row.m % num_ranks == 0)]
        results = measure_row(device, problem, contenders, Options(rounds=2), lambda step, contender: None)
        found[row.key] = [asdict(result) for result in results]
        if loop is not None:
            loops[row.key] = loop
    attention = [attended(spec, rank) for spec in attention_specs(num_ranks)]
    said = {"loops": device.exchange(json.dumps(loops)), "attention": device.exchange(json.dumps(attention))}
    out.write_text(json.dumps({"rows": found} | said))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
