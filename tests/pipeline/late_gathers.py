"""Gathers whose ranks are late: all elements of several calls are those of torch, to the bit."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Annotated

import torch

import lowering
from tilelink import Shard, Tensor, all_gather, dims, overlap
from tilelink.declaration import Overlap
from tilelink.emulator import World
from tilelink.emulator.policies import policy_by_name
from tilelink.ir.schedule import Schedule
from tilelink.runtime.load import load_source, operator_class

M, K = dims("M K")
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
BITS = {"bf16": torch.int16, "fp16": torch.int16, "fp32": torch.int32}


@overlap
def gathered(x: Annotated[Tensor, (M, K), Shard(0)]) -> Tensor:
    return all_gather(x, dim=0)


@overlap
def gathered_columns(x: Annotated[Tensor, (M, K), Shard(1)]) -> Tensor:
    return all_gather(x, dim=1)


def check(
    operator: Overlap,
    policy: str,
    plan: Callable[[int, dict[str, int], str], Schedule],
    cols: Callable[[random.Random], int],
    part: Callable[[list[int], str], torch.Tensor],
) -> None:
    """Five calls of each dtype, of parts [1 to 7, `cols`] that `part` draws; no other element than that of some rank may appear.
    `plan`: for so many ranks, sizes and a dtype."""
    rng, dim = random.Random(f"{operator.name} {policy}"), 0 if operator is gathered else 1
    for name in DTYPES:
        ranks, shape = rng.choice((2, 3, 4)), [rng.randint(1, 7), cols(rng)]
        ranks = max(ranks, 3) if policy.endswith("2") else ranks
        whole = [size * ranks if place == dim else size for place, size in enumerate(shape)]
        schedule = plan(ranks, {"M": whole[0], "K": whole[1]}, name)
        build = operator_class(load_source(lowering.emit(schedule), operator.name))
        late = policy_by_name(policy)
        world = World(ranks, num_sms=schedule.machine.num_sms, policy=late, multicast=schedule.machine.multicast)
        operators = [build(fabric) for fabric in world.fabrics]
        torch.manual_seed(7)
        for _ in range(5):
            parts = [part(shape, name) for _ in range(ranks)]
            outs = [one(own) for one, own in zip(operators, parts, strict=True)]
            world.run()
            wanted = torch.cat(parts, dim).view(BITS[name])
            assert all(torch.equal(out.view(BITS[name]), wanted) for out in outs)
