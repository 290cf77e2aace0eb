"""A layer of experts where ranks have not as many each: the last ones have fewer, or none."""

from __future__ import annotations

import random

import pytest
import torch

import lowering
import topologies
from tests.pipeline.expert_specs import OF_RANKS, SPECS, by_definition
from tests.pipeline.workloads import STOCK_FIRST
from tilelink.adversary.sizes import uneven
from tilelink.adversary.small import small_form
from tilelink.emulator import World
from tilelink.errors import IllegalIds
from tilelink.ir.nodes import CopyProgram
from tilelink.ir.routed import Routed
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import bind
from tilelink.planner.sample import sample_schedule
from tilelink.proof.verify import verify
from tilelink.runtime.emulated import EmulatedRun
from tilelink.runtime.meaning import cut, whole_inputs
from tilelink.runtime.operator import build_operator
from tilelink.runtime.reference import make_inputs
from tilelink.runtime.run import run_emulated

LAYER = SPECS["ep_layer"]
SIZES = {"T": 24, "H": 48, "F": 96, "K": 3}
ADDERS: dict[str, dict[str, object]] = {  # who adds rows, and how they come there
    "sender": {"out.adder": "sender"},
    "receiver": {"out.adder": "receiver", "out_rows.transfer": "push"},
    "receiver, which fetches them": {"out.adder": "receiver", "out_rows.transfer": "pull"},
}
SHARES = {  # (ranks, experts) -> experts of each rank
    (2, 5): (3, 2),
    (2, 1): (1, 0),
    (3, 2): (1, 1, 0),
    (4, 5): (2, 2, 1, 0),
    (8, 11): (2, 2, 2, 2, 2, 1, 0, 0),
    (8, 3): (1, 1, 1, 0, 0, 0, 0, 0),
}


def planned(ranks: int, experts: int, pins: dict[str, object] | None = None) -> Schedule:
    return LAYER.plan_for(topologies.load("laptop-switch", ranks), SIZES | {"E": experts}, "bf16", pins or {})


def check(schedule: Schedule, target: str = "triton", seed: int = 0, calls: int = 5) -> None:
    """Each call has ids of another kind."""
    proof = verify(schedule)
    assert proof.proved, "\n".join(proof.lines())
    outcome = run_emulated(schedule, lowering.emit(schedule, target), calls=calls, seed=seed)
    assert outcome.equal, "\n".join(outcome.lines())


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "experts"), [(3, 2), (4, 5), (2, 5), (2, 1), (8, 11), (8, 3)])
@pytest.mark.parametrize("adder", ADDERS)
@pytest.mark.parametrize("target", STOCK_FIRST)
def test_a_layer_gives_what_its_definition_says(target: str, adder: str, ranks: int, experts: int) -> None:
    """With a reference that shares no code with what it checks; inputs are what ranks hold."""
    schedule = planned(ranks, experts, ADDERS[adder])
    assert verify(schedule).proved
    run = EmulatedRun(schedule, lowering.emit(schedule, target), seed=3)
    for _ in range(4):
        run.call()
    run.finish()
    for inputs, results in run.calls:
        assert tuple(len(parts["gate"]) for parts in inputs) == SHARES[ranks, experts]
        wanted = by_definition("ep_layer", list(whole_inputs(schedule.spec, inputs).values()))
        for rank, (found,) in enumerate(results):
            part = cut(wanted, schedule.spec.value("out").placement, rank, ranks)
            assert torch.allclose(found.double(), part, rtol=0.05, atol=0.05)
            assert ((found.double() - part).norm() <= 0.01 * part.norm() + 1e-9).item()


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "experts"), [(3, 2), (4, 5)])
@pytest.mark.parametrize("transfer", ["push", "pull"])
@pytest.mark.parametrize("adder", ADDERS)
def test_only_needed_rows_travel(adder: str, transfer: str, ranks: int, experts: int) -> None:
    """To a rank without experts none do."""
    pins: dict[str, object] = {"rows_value.mover": "NeededRows()", "rows_value.transfer": transfer, **ADDERS[adder]}
    check(planned(ranks, experts, pins))


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "experts"), [(2, 1), (3, 2), (4, 5), (4, 7)])
@pytest.mark.parametrize("adder", ADDERS)
def test_rows_go_to_their_places(adder: str, ranks: int, experts: int) -> None:
    """Places at the last rank are those of its fewer experts."""
    pins: dict[str, object] = {"rows_value.mover": "PlacedRows(16)", "h.tile": "16x32x16/4w1s", **ADDERS[adder]}
    check(planned(ranks, experts, pins))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in OF_RANKS if name != LAYER.name])
@pytest.mark.parametrize(("ranks", "experts"), [(2, 1), (3, 4), (4, 5)])
def test_other_readers_of_dispatched_rows(name: str, ranks: int, experts: int) -> None:
    sizes = SIZES | {"E": experts}
    known = {size: sizes[size] for size in SPECS[name].spec.symbols()}
    check(SPECS[name].plan_for(topologies.load("laptop-switch", ranks), known, "bf16", {}))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_random_sizes_and_schedules(seed: int) -> None:
    rng = random.Random(8000 + seed)
    ranks = rng.choice([2, 3, 4, 8])
    sizes = {
        "T": ranks * rng.choice([1, 2, 5, 8]),
        "H": rng.choice([8, 24, 40, 66]),
        "F": rng.choice([8, 33, 48]),
        "E": rng.choice([number for number in range(1, 4 * ranks) if number % ranks]),
        "K": rng.choice([1, 2, 3, 9]),
    }
    spec = bind(LAYER.spec, sizes, ranks, rng.choice(["bf16", "fp16", "fp32"]))
    schedule = sample_schedule(spec, topologies.load(rng.choice(("laptop-switch", "laptop-mesh")), ranks), rng)
    copies = any(isinstance(launch, CopyProgram) for launch in schedule.launches)
    # a copy stream takes an SM on Triton-distributed, and the sample leaves none
    target = "triton" if copies else rng.choice(["triton", "triton-distributed"])
    check(schedule, target, rng.randrange(1000), calls=4)


@pytest.mark.parametrize("adder", [pytest.param("sender", marks=pytest.mark.slow), "receiver"])
def test_a_rank_without_matrices_has_descriptors(adder: str) -> None:
    """A tensor map of no rows cannot be made, so that a rank without matrices gives other memory, which nobody reads."""
    tile = "64x64x64/4w2s"
    pins = {"out.adder": adder, "h.tile": tile, "grouped_matmul_out_3.tile": tile}
    sizes = {"T": 48, "H": 64, "F": 64, "K": 2}
    topology = topologies.load("h200-nvswitch", 3)
    none, fewer = (LAYER.plan_for(topology, sizes | {"E": experts}, "bf16", pins) for experts in (2, 5))
    assert lowering.emit(none).count("TensorDescriptor.from_tensor(rows_of_matrices(") == 3
    assert "rows_of_matrices" not in lowering.emit(fewer)
    check(none, calls=3)


@pytest.mark.parametrize("adder", ADDERS)
def test_ids_behind_the_last_expert_choose_none(adder: str) -> None:
    """Even where they would be an expert's if ranks had as many each."""
    ranks, experts = 2, 5
    schedule = planned(ranks, experts, ADDERS[adder])
    world = World(ranks, num_sms=schedule.machine.num_sms)
    operators = [build_operator(lowering.emit(schedule), schedule.name, fabric) for fabric in world.fabrics]
    inputs = make_inputs(schedule.spec, 0)
    for parts in inputs:
        parts["ids"][0, :2] = torch.tensor([experts, experts - 1])
        parts["ids"][3] = torch.tensor([experts + 1, -7, experts])
    results = [operator(*parts.values()) for operator, parts in zip(operators, inputs, strict=True)]
    world.run()
    wanted = by_definition("ep_layer", list(whole_inputs(schedule.spec, inputs).values()))
    for rank, found in enumerate(results):
        assert isinstance(found, torch.Tensor)
        assert torch.allclose(found.double(), wanted.chunk(ranks)[rank], rtol=0.05, atol=0.05)
    for operator in operators:
        with pytest.raises(IllegalIds, match=f"{4 * ranks} ids of calls so far are outside of -1 to {experts - 1}"):
            operator.check()  # type: ignore[attr-defined]


def test_an_operator_takes_as_many_matrices_as_its_rank_has() -> None:
    schedule = planned(4, 5)
    world = World(4, num_sms=schedule.machine.num_sms)
    operators = [build_operator(lowering.emit(schedule), schedule.name, fabric) for fabric in world.fabrics]
    for rank, operator in enumerate(operators):
        shape, _ = operator.INPUTS["gate"]  # type: ignore[attr-defined]
        assert shape == (SHARES[4, 5][rank], SIZES["H"], SIZES["F"])
    inputs = make_inputs(schedule.spec, 0)
    with pytest.raises(ValueError, match=r"gate is \[2, 48, 96\] .*; this schedule takes \[1, 48, 96\]"):
        operators[2](*(inputs[0 if name == "gate" else 2][name] for name in inputs[2]))


def test_even_shares_are_printed_as_before() -> None:
    """Neither a rank's number of experts nor shapes of its own."""
    even, fewer = lowering.emit(planned(2, 6)), lowering.emit(planned(2, 5))
    for text in ("MATRICES", "inputs_of", "max(min("):
        assert text not in even and text in fewer


def test_what_is_expected_of_the_rank_with_the_most_experts() -> None:
    """Predicted times are those of the slowest rank."""
    even, fewer = Routed("r", "ids", 512, 8, 8, 4), Routed("r", "ids", 512, 8, 8, 4, missing=3)
    assert (even.every, fewer.every) == (32, 29)
    assert fewer.likely_rows > even.likely_rows > 512 * 8 / 4
    assert fewer.likely_tiles(16) > even.likely_tiles(16)
    assert fewer.most_tiles(16) == even.most_tiles(16)


@pytest.mark.parametrize(
    ("ranks", "experts", "small"), [(4, 5, {"E": 5}), (2, 1, {"E": 1}), (4, 130, {"E": 62}), (4, 128, {})]
)
def test_a_small_form_has_as_many_experts_missing(ranks: int, experts: int, small: dict[str, int]) -> None:
    assert uneven(LAYER.spec, planned(ranks, experts)) == small


@pytest.mark.slow
@pytest.mark.parametrize("adder", ADDERS)
def test_a_small_form_is_of_uneven_experts(adder: str) -> None:
    topology, schedule = topologies.load("laptop-switch", 4), planned(4, 5, ADDERS[adder])
    found = dict(small_form(LAYER.spec, schedule, topology).spec.sizes)
    assert (found["E"], found["K"]) == (5, SIZES["K"])


def test_a_schedule_goes_through_json() -> None:
    schedule = planned(4, 5)
    assert Schedule.from_json(schedule.to_json()) == schedule
