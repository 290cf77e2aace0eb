"""Small forms of steps: at small values of their own dims they are proved, and compute what the spec means there."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

import topologies
from tests.elaborate.test_meaning import differing, inputs_of
from tests.pipeline.workloads import SIZES, load
from tilelink.declaration import Overlap
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.schedule import Schedule as Planned
from tilelink.ir.spec import BoundSpec, bind
from tilelink.planner.sample import sample_schedule
from tilelink.proof.happens_before.check import checked
from tilelink.runtime.meaning import evaluate, whole_inputs
from tilelink.schedule.errors import NoSmallForm
from tilelink.schedule.instance import instantiated
from tilelink.schedule.interpreter import Interpreter
from tilelink.schedule.roles import Schedule
from tilelink.schedule.small import small_form, small_values

REAL = {"M": 8192, "K": 4096, "N": 14336, "H": 4096, "F": 14336, "B": 8 * 2025, "C": 128}
RAGGED = {"M": 8 * 129, "K": 8 * 69, "N": 8 * 101, "H": 8 * 69, "F": 8 * 101, "B": 8 * 101, "C": 72}
WORKLOADS = sorted(name for name in SIZES if "user_op" not in name)  # whose bodies are functions of pointers
MACHINES = ("h200-nvswitch", "laptop-switch", "l20-pcie")


def large(seed: int) -> tuple[Overlap, Planned]:
    drawn = random.Random(seed)
    overlap = load(drawn.choice(WORKLOADS))
    topology = topologies.load(drawn.choice(MACHINES), drawn.choice((2, 4)))
    sizes = {name: drawn.choice((REAL, RAGGED))[name] for name in overlap.spec.symbols()}
    return overlap, sample_schedule(bind(overlap.spec, sizes, topology.num_ranks, "bf16"), topology, drawn)


def spec_of(overlap: Overlap, planned: Planned, small: Schedule) -> BoundSpec:
    """The spec at the sizes that the inputs of `small` have."""
    sizes = dict(planned.spec.sizes)
    for value, bound in zip(overlap.spec.inputs, planned.spec.inputs, strict=True):
        for symbol, before, now in zip(value.shape, bound.local, small.shapes[value.name], strict=True):
            sizes[str(symbol)] = dict(planned.spec.sizes)[str(symbol)] * now // before
    return bind(overlap.spec, sizes, planned.num_ranks, "bf16")


def wrong(overlap: Overlap, planned: Planned, seed: int) -> list[str]:
    """Outputs of two calls of the small form that are not what the spec means; empty where there is no small form."""
    small = small_form(elaborated(planned))
    assert checked(small).refutation is None, planned.choices
    spec, generator = spec_of(overlap, planned, small), torch.Generator().manual_seed(seed)
    assert max(max(value.local) for value in spec.inputs) <= 1024
    run, found = Interpreter(small, seed=seed), list[str]()
    for _ in range(2):
        ranks = inputs_of(spec, generator)
        values = evaluate(spec, whole_inputs(spec, ranks))
        results = run.call([{name: part.numpy() for name, part in parts.items()} for parts in ranks])
        found += [name for rank, outputs in enumerate(results) for name in differing(spec, values, outputs, rank)]
    return found


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.quick(6)
def test_meaning_at_small_sizes(seed: int) -> None:
    try:
        overlap, planned = large(seed)
    except (LookupError, IndexError):
        return  # a spec that has no schedule there
    try:
        assert wrong(overlap, planned, seed) == [], planned.choices
    except NoSmallForm as error:
        assert "follows from no name" in str(error), planned.choices  # chunks that are no whole tiles


def gemm_rs(sizes: dict[str, int], **pins: str) -> Planned:
    chosen = {"algorithm": "direct", "compute": "triton", **pins}
    return load("03_gemm_rs.py:gemm_rs").plan_for(topologies.load("h200-nvswitch", 4), sizes, "bf16", chosen)


def test_branches_stay() -> None:
    """Ragged tiles, several chunks of several tiles, groups, several tiles a program, several steps of k."""
    sizes = {"M": 8192, "K": 4096, "N": 4096 + 24}
    named = elaborated(gemm_rs(sizes, mover="CommSms(16)", chunks="4", tile="128x128x64/8w3s", group="4"))
    values = small_values(named)
    small = replace(named, dims=tuple(replace(one, size=values.get(one.name, one.size)) for one in named.dims)).sizes
    before = "Y_" if "Y_TILE_M" in small else ""
    assert small[f"{before}TILE_M"] == small[f"{before}TILE_K"] == 16
    assert small["Y_PARTS_CHUNKS"] == 2 and small["Y_PARTS_CHUNK_ROWS"] % 16 == 0
    assert small[f"{before}N_SIZE"] % small[f"{before}TILE_N"] != 0 < small[f"{before}N_TILES"] - 1
    assert small[f"{before}K_TILES"] > 1 and small[f"{before}GROUP_M"] == 2
    assert small[f"{before}NUM_TILES"] > small[f"{before}PROGRAMS"] > 1


def test_counts_without_names_have_no_small_form() -> None:
    """Chunks that are no whole tiles: how many tiles complete one depends on the sizes in no simple way."""
    planned = gemm_rs({"M": 4 * 72, "K": 128, "N": 64}, mover="Fused()", chunks="2", tile="16x16x16/4w1s")
    with pytest.raises(NoSmallForm):
        small_form(elaborated(planned))


def test_numbers_have_themselves() -> None:
    numbers = instantiated(elaborated(gemm_rs({"M": 256, "K": 128, "N": 128})))
    assert small_form(numbers) == numbers
