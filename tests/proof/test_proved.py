"""No false alarm: schedules of the whole space, random specs included, are proved; at scale, and quickly."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

import tilelink
import topologies
from tests.machine_speed import within
from tests.pipeline.random_specs import random_spec
from tests.pipeline.workloads import SIZES, load
from tests.planner.operators import ag_gemm, gemm_rs
from tilelink.ir.spec import bind
from tilelink.planner.sample import sample_schedule
from tilelink.proof.verify import verify
from topologies.topology import Topology

REAL = {"M": 8192, "K": 4096, "N": 14336, "H": 4096, "F": 14336, "B": 8 * 2025, "C": 128}
RAGGED = {"M": 8 * 129, "K": 8 * 69, "N": 8 * 101, "H": 8 * 69, "F": 8 * 101, "B": 8 * 101, "C": 72}
MACHINES = ("h200-nvswitch", "mi300x-full-mesh", "laptop-switch", "laptop-mesh")


def check_sampled(seed: int) -> None:
    rng = random.Random(seed)
    overlap = load(rng.choice(sorted(SIZES)))
    topology = topologies.load(rng.choice(MACHINES))
    topology = topologies.load(topology.name, rng.choice([n for n in (2, 4, 8) if n <= topology.num_ranks]))
    sizes = {name: rng.choice((REAL, RAGGED))[name] for name in overlap.spec.symbols()}
    schedule = sample_schedule(bind(overlap.spec, sizes, topology.num_ranks, "bf16"), topology, rng)
    with within(6.0):  # a queue of 8,100 items through one slot takes 4 s: each is handed over in turn
        proof = verify(schedule)
    assert proof.proved, f"seed {seed}\n{schedule}\n{chr(10).join(proof.lines())}"


def check_random_spec(seed: int) -> None:
    rng = random.Random(seed)
    num_ranks = rng.choice((2, 3, 4, 8))
    spec = random_spec(rng, num_ranks)
    topology = topologies.load(rng.choice(("laptop-switch", "laptop-mesh")), num_ranks)
    schedule = sample_schedule(spec, topology, rng)
    proof = verify(schedule)
    assert proof.proved, f"seed {seed}\n{schedule}\n{chr(10).join(proof.lines())}"


SOME_QUICK = pytest.mark.parametrize(
    "block", [0, 1, *(pytest.param(block, marks=pytest.mark.slow) for block in (2, 3))]
)


@SOME_QUICK
def test_schedules_of_the_space(block: int) -> None:
    for seed in range(10 * block, 10 * block + 10):
        check_sampled(seed)


@SOME_QUICK
def test_random_specs(block: int) -> None:
    for seed in range(15 * block, 15 * block + 15):
        check_random_spec(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_many_schedules(block: int) -> None:
    for seed in range(1000 + 50 * block, 1050 + 50 * block):
        check_sampled(seed)
        check_random_spec(seed)


def one_switch(num_ranks: int) -> Topology:
    """A machine that does not exist: so many GPUs on one switch."""
    found = topologies.load("h200-nvswitch", 8)
    levels = tuple(replace(level, size=num_ranks) for level in found.levels)
    return replace(found, num_ranks=num_ranks, levels=levels)


@pytest.mark.parametrize("overlap", [ag_gemm, gemm_rs], ids=lambda overlap: overlap.name)
@pytest.mark.slow
def test_a_thousand_ranks(overlap: tilelink.Overlap) -> None:
    """The relation of one rank is looked at, whatever the number of ranks."""
    sizes = {"M": 1024 * 128, "K": 4096, "N": 8192} if overlap is ag_gemm else {"M": 1024 * 128, "K": 8192, "N": 4096}
    pins = {"algorithm": "direct", "mover": "CopyEngine()", "transfer": "push", "chunks": "2", "compute": "triton"}
    topology = one_switch(1024)
    assert topology.num_ranks == 1024
    schedule = overlap.plan_for(topology, sizes, "bf16", pins | {"nest": "rank by rank"})
    with within(8.0):  # 6 s were measured
        proof = verify(schedule)
    assert proof.proved, proof.lines()


@pytest.mark.parametrize(
    ("overlap", "nodes", "usual_s"),
    [(ag_gemm, 128, 8.0), (gemm_rs, 32, 6.0), (gemm_rs, 128, 18.0)],
    ids=["1,024 gather", "256 scatter", "1,024 scatter"],
)
@pytest.mark.slow
def test_many_nodes(overlap: tilelink.Overlap, nodes: int, usual_s: float) -> None:
    """Nodes are alike, and so are ranks of each node."""
    ranks = nodes * 8
    sizes = {"M": 256 * ranks, "K": 4096 if overlap is ag_gemm else 64 * ranks}
    sizes["N"] = 8192 * ranks if overlap is ag_gemm else 4096
    topology = topologies.load("h200-nvswitch", ranks, nodes)
    schedule = overlap.plan_for(topology, sizes, "bf16", {"mover": "Rails(16)"})
    with within(usual_s):
        proof = verify(schedule)
    assert proof.proved, proof.lines()
