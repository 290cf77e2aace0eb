"""Without pins the search ends no later than with any one pin: a pin only takes choices away."""

from __future__ import annotations

import random

import pytest

import topologies
from tests.pipeline.attention_specs import How, spec_of
from tests.planner.grid import Cell, chain, columns, gathered_weights, gemm_rs, logits, mlp, sampled_cells
from tilelink.declaration import Overlap
from tilelink.errors import IllegalPin, NoLegalSchedule, TileLinkError
from tilelink.ir.choices import Choices, ComputeChoice, ExchangeChoice
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import bind
from tilelink.planner.fields import OUTPUTS
from tilelink.planner.pins import checked_pins, pin_names
from tilelink.planner.plan import search
from tilelink.spec_file import load_overlap

_MARGIN = 0.02  # of the time of library calls alone, within which they are taken
_ALIKE = 1e-3  # what a search may leave
PACKETS = ("ll", "lamport")  # many of them are planned only if pinned
ONLY_PINNED = ("own", "streams")  # fields some of whose values are: the model says more of them than was measured


ATTENTION_PINS: tuple[dict[str, str], ...] = (
    *({"mover": one} for one in ("CopyEngine()", "CommSms(8)", "CommSms(32)", "OwnKernel()", "CopyWarps()", "Fused()")),
    {"keys.mover": "CopyEngine()", "values.mover": "OwnKernel()"},
    {"mover": "CopyEngine()", "compute": "library"},
)
attention = spec_of("gathered", How(causal=False))
moe_rs = load_overlap("examples/08_moe_rs.py:moe_rs")
MACHINES = ("h200-nvswitch", "h100-nvswitch", "mi300x-full-mesh", "l20-pcie")
EXPERTS = ("07_ag_moe.py:ag_moe", "08_moe_rs.py:moe_rs", "09_ep_layer.py:ep_layer")


def by_library(schedule: Schedule) -> bool:
    return all(how.by_library for _, how in schedule.decided.collectives)


def compared(operator: Overlap, sizes: dict[str, int], machine: str, ranks: int, pin: dict[str, str]) -> float:
    """Predicted time without a pin over that with it."""
    topology = topologies.load(machine, ranks)
    free, pinned = operator.plan_for(topology, sizes), operator.plan_for(topology, sizes, pin=pin)
    return free.predicted_us / pinned.predicted_us


# a mover that needs other tiles; tiles that need other chunks; a mover that needs another one of the next collective; halves,
# without which a tile is not worth it; a mover that has no streams, of chunks in the same order
@pytest.mark.parametrize(
    ("operator", "sizes", "machine", "ranks", "pin"),
    [
        (gathered_weights, {"M": 4096, "K": 4096, "N": 8192}, "h200-nvswitch", 4, {"mover": "Fused()"}),
        (mlp, {"M": 64, "H": 4096, "N": 14336}, "l20-pcie", 2, {"x_full.algorithm": "library"}),
        (columns, {"M": 4096, "K": 4096, "N": 4096}, "mi300x-full-mesh", 4, {"mover": "CommSms(32)"}),
        (gemm_rs, {"M": 8192, "K": 14336, "N": 4096}, "mi300x-full-mesh", 4, {"matmul_out.tile": "128x128x64/8w2s"}),
        (logits, {"M": 4096, "K": 14336, "N": 8192}, "h200-nvswitch", 4, {"out_whole.chunks": "4"}),
        # of attention: keys by copies and values by packets; both by warps, which need other tiles; keys part by part
        (attention, {"B": 3, "S": 1000, "Q": 32, "G": 8, "D": 128}, "h200-nvswitch", 2, {"keys.mover": "CopyEngine()"}),
        (attention, {"B": 2, "S": 8192, "Q": 4, "G": 4, "D": 64}, "h200-nvswitch", 8, {"mover": "CopyWarps()"}),
        (attention, {"B": 1, "S": 704, "Q": 32, "G": 8, "D": 64}, "h200-nvswitch", 2, {"mover": "CopyWarps()"}),
        # of experts on two nodes: what is likely for a sum along rails does not go together
        (moe_rs, {"T": 4096, "H": 4096, "F": 2048, "E": 32, "K": 2}, "h800-2-nodes@2", 8, {"mover": "Rails(16)"}),
        (attention, {"B": 1, "S": 4340, "Q": 16, "G": 8, "D": 128}, "h200-nvswitch", 2, {"compute": "library"}),
        pytest.param(
            chain,
            {"M": 2048, "K": 8192, "H": 8192, "N": 28672},
            "h200-nvswitch",
            8,
            {"matmul_out_sum_full.mover": "Fused()"},
            marks=pytest.mark.slow,
        ),
    ],
)
@pytest.mark.quick(3)
def test_known_pairs(operator: Overlap, sizes: dict[str, int], machine: str, ranks: int, pin: dict[str, str]) -> None:
    assert compared(operator, sizes, machine, ranks, pin) <= 1 + _ALIKE


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16))
def test_no_single_pin_leads_to_a_better_one(seed: int) -> None:
    rng = random.Random(seed)
    (cell,) = (one for one in sampled_cells(1, seed))
    free = cell.spec.plan_for(cell.topology, cell.sizes)
    for name, value in _pins(cell, free, rng, 6):
        try:
            pinned = cell.spec.plan_for(cell.topology, cell.sizes, pin={name: value})
        except (IllegalPin, NoLegalSchedule):
            continue
        allowed = 1 / (1 - _MARGIN) if by_library(free) else 1.0
        assert free.predicted_us <= pinned.predicted_us * (allowed + _ALIKE), f"{cell}, {name}={value}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16))
def test_no_single_pin_leads_to_better_attention(seed: int) -> None:
    rng = random.Random(seed)
    topology = topologies.load(
        rng.choice(["h200-nvswitch", "h100-nvswitch", "mi300x-full-mesh"]), rng.choice([2, 4, 8])
    )
    rows, heads = rng.choice([rng.randint(30, 3000), 128 * rng.randint(1, 32)]), rng.choice([1, 2, 4, 8])
    causal = rng.random() < 0.5
    spec = spec_of("gathered", How(causal=causal, window=rng.choice([0, 0, 512]) if causal else 0))
    sizes = {"B": rng.choice([1, 1, 2, 3]), "S": topology.num_ranks * rows, "Q": heads * rng.choice([1, 2, 4, 8])}
    sizes |= {"G": heads, "D": rng.choice([64, 128])}
    free = spec.plan_for(topology, sizes)
    for pin in ATTENTION_PINS:
        try:
            pinned = spec.plan_for(topology, sizes, pin=pin)
        except TileLinkError:
            continue
        allowed = 1 / (1 - _MARGIN) if by_library(free) else 1.0
        assert free.predicted_us <= pinned.predicted_us * (allowed + 10 * _ALIKE), f"{sizes}, {pin}"


def experts_cell(seed: int) -> Cell:
    """Experts of any number of ranks, of one node or of several."""
    rng = random.Random(seed)
    ranks, nodes = rng.choice([(2, 1), (4, 1), (8, 1), (4, 2), (8, 2), (8, 4), (16, 2)])
    name = rng.choice(MACHINES) if nodes == 1 else "h800-2-nodes"
    experts = rng.choice([ranks, 2 * ranks, 8 * ranks])
    tokens = ranks * rng.choice([rng.randint(1, 40), 16 * rng.randint(1, 40), 128 * rng.randint(1, 16)])
    sizes = {"T": tokens, "H": 128 * rng.randint(4, 32), "F": 128 * ranks * rng.choice([1, 2, 4]), "E": experts}
    sizes |= {"K": rng.choice([1, 2, 4])}
    spec = load_overlap(f"examples/{rng.choice(EXPERTS)}")
    return Cell(spec, sizes, topologies.load(name, ranks, nodes if nodes > 1 else None))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16))
def test_no_single_pin_leads_to_better_experts(seed: int) -> None:
    cell = experts_cell(seed)
    spec = bind(cell.spec.spec, cell.sizes, cell.topology.num_ranks, "bf16")
    free, _ = search(spec, cell.topology, {})
    names = pin_names(spec, cell.topology)
    every = [
        (name, value)
        for name, values in names.items()
        for value in sorted(values)
        if value not in PACKETS and not name.endswith(ONLY_PINNED)
    ]
    for name, value in random.Random(seed).sample(every, 6):
        try:
            pinned, _ = search(spec, cell.topology, checked_pins(spec, cell.topology, {name: value}))
        except (IllegalPin, NoLegalSchedule):
            continue
        allowed = 1 / (1 - _MARGIN) if free.structure.all_by_library else 1.0
        assert free.us <= pinned.us * (allowed + _ALIKE), f"{cell}, {name}={value}"


def _pins(cell: Cell, free: Schedule, rng: random.Random, count: int) -> list[tuple[str, str]]:
    """Pins that choose otherwise than `free`."""
    names = pin_names(bind(cell.spec.spec, cell.sizes, cell.topology.num_ranks, "bf16"), cell.topology)
    held = dict(free.choices)
    every = [
        (name, value)
        for name, values in names.items()
        for value in sorted(values)
        if held.get(name) != value and name != OUTPUTS.name and value not in PACKETS
    ]
    return rng.sample(every, min(count, len(every)))


def test_a_choice_computes_its_hash_once() -> None:
    """A dataclass does not inherit `__hash__`."""
    for kind in (ExchangeChoice, ComputeChoice, Choices):
        assert kind.__hash__ is Choices.__hash__
