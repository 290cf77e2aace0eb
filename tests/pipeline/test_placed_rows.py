"""Dispatched rows that go to their places in the order of the receiver's tiles, on emulated ranks for both targets."""

from __future__ import annotations

import random

import pytest
import torch

import lowering
import topologies
from tests.pipeline.expert_specs import OF_RANKS, SPECS, alone, by_definition
from tests.pipeline.test_emitted import compiles
from tests.pipeline.test_expert_bits import CALLS, TILES, results
from tests.pipeline.test_experts import PLACED, check, planned
from tests.pipeline.workloads import STOCK_FIRST
from tilelink.emulator import World
from tilelink.errors import IllegalIds, IllegalPin, NoLegalSchedule
from tilelink.ir.calls import ListPlaces
from tilelink.ir.routed import Follows
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import Access, MatmulBody
from tilelink.runtime.meaning import whole_inputs
from tilelink.runtime.operator import build_operator
from tilelink.runtime.reference import make_inputs
from tilelink.runtime.run import run_emulated

LAYER = SPECS["ep_layer"]


@pytest.mark.quick(1)
@pytest.mark.parametrize("target", STOCK_FIRST)
@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow), 4])
@pytest.mark.parametrize("adder", ["receiver", "sender"])
def test_rows_go_to_their_places(adder: str, ranks: int, target: str) -> None:
    check(planned("ep_layer", ranks, PLACED | {"out.adder": adder}), target)


@pytest.mark.slow
@pytest.mark.parametrize("choices", [1, 2, 5, 8, 32])
@pytest.mark.parametrize("tokens", [1, 7, 32])
def test_any_number_of_tokens_and_choices(tokens: int, choices: int) -> None:
    """Pieces are whole, whatever both are; choices may be more than there are experts."""
    check(planned("ep_layer", 2, PLACED, T=2 * tokens, K=choices), seed=tokens + choices, calls=4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_random_sizes(seed: int) -> None:
    rng = random.Random(9000 + seed)
    ranks, name, height = rng.choice([2, 3, 4, 8]), rng.choice(OF_RANKS), rng.choice([16, 32, 64])
    sizes = {
        "T": ranks * rng.choice([1, 2, 5, 8, 17]),
        "H": rng.choice([8, 24, 40, 66]),
        "F": rng.choice([8, 33, 48]),
        "E": rng.randrange(1, 4 * ranks),
        "K": rng.choice([1, 2, 3, 4, 9]),
    }
    rows = "dispatch_out" if name == "there_and_back" else "rows_value"
    adder = "sender" if name == "of_functions" else rng.choice(["sender", "receiver"])
    pins: dict[str, object] = {f"{rows}.mover": f"PlacedRows({height})", "out.adder": adder}
    tile = f"{height}x16x16/{rng.choice([1, 4])}w{rng.choice([1, 3])}s"
    pins |= {"ep_layer": {"h.tile": tile}, "of_functions": {"tile": tile}}.get(name, {})
    if name != "ep_layer":
        pins["dispatch_out_spread.tile" if name == "there_and_back" else "relu_out.tile"] = f"{height}x16x0/4w1s"
    known = {size: sizes[size] for size in SPECS[name].spec.symbols()}
    topology = topologies.load(rng.choice(("laptop-switch", "laptop-mesh")), ranks)
    schedule = SPECS[name].plan_for(topology, known, rng.choice(["bf16", "fp16", "fp32"]), pins)
    check(schedule, rng.choice(["triton", "triton-distributed"]), rng.randrange(1000), calls=4)


@pytest.mark.slow
def test_the_mover_does_not_show_in_the_bits() -> None:
    wanted = results(alone, 2, {**TILES})
    found = results(LAYER, 4, {**TILES, "out.adder": "receiver", "rows_value.mover": "PlacedRows(16)"})
    assert [torch.equal(*both) for both in zip(found, wanted, strict=True)] == [True] * CALLS


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["one expert twice", "no experts", "all to the last rank", "nobody"])
def test_ids_of_all_kinds(kind: str) -> None:
    """A token that chooses an expert twice has two rows there; what is no expert's goes nowhere."""
    ranks, experts = 2, 5
    schedule = planned("ep_layer", ranks, PLACED, E=experts)
    world = World(ranks, num_sms=schedule.machine.num_sms)
    operators = [build_operator(lowering.emit(schedule), schedule.name, fabric) for fabric in world.fabrics]
    inputs = make_inputs(schedule.spec, 0)
    for parts in inputs:
        match kind:
            case "one expert twice":
                parts["ids"][:, 1] = parts["ids"][:, 0]
            case "no experts":
                parts["ids"][0] = torch.tensor([experts, 2**31 - 1, -7])
                parts["ids"][3] = torch.tensor([-1, experts + 1, 0])
            case "all to the last rank":
                parts["ids"][:] = experts - 1
            case "nobody":
                parts["ids"][:] = -1
    found = [operator(*parts.values()) for operator, parts in zip(operators, inputs, strict=True)]
    world.run()
    wanted = by_definition("ep_layer", list(whole_inputs(schedule.spec, inputs).values()))
    for rank, one in enumerate(found):
        assert isinstance(one, torch.Tensor)
        assert torch.allclose(one.double(), wanted.chunk(ranks)[rank], rtol=0.05, atol=0.05)
    if kind == "no experts":
        with pytest.raises(IllegalIds):
            operators[0].check()  # type: ignore[attr-defined]


def _left(schedule: Schedule) -> tuple[Access, tuple[Follows | None, ...]]:
    """How tiles of h read their rows."""
    role = next(one.compute for one in schedule.kernels() if one.compute is not None and one.compute.name == "h")
    body = next(step for step in role.body if isinstance(step, MatmulBody))
    return body.left.access, body.left.along


@pytest.mark.slow
@pytest.mark.parametrize(("hidden", "access"), [(64, Access.DESCRIPTOR), (66, Access.POINTER)])
def test_tiles_read_rows_that_follow_each_other(hidden: int, access: Access) -> None:
    """Through a descriptor, if rows begin at multiples of 16 bytes."""
    schedule = planned("ep_layer", 2, PLACED, H=hidden)
    assert _left(schedule) == (access, (Follows.PLACE, None))
    assert _left(planned("ep_layer", 2, {"rows_value.mover": "NeededRows()"}, H=hidden))[0] is Access.POINTER
    check(schedule, calls=3)


@pytest.mark.slow
def test_a_schedule_goes_through_json() -> None:
    schedule = planned("ep_layer", 2, PLACED)
    assert Schedule.from_json(schedule.to_json()) == schedule


@pytest.mark.slow
@pytest.mark.parametrize("target", STOCK_FIRST)
def test_loops_in_order_compile(target: str) -> None:
    sizes = {"T": 1024, "H": 512, "F": 256, "E": 16, "K": 2}
    pins = {"rows_value.mover": "PlacedRows(128)", "h.tile": "128x64x64/4w3s"}
    schedule = LAYER.plan_for(topologies.load("h200-nvswitch", 4), sizes, "bf16", pins)
    compiles(lowering.emit(schedule, target), "h200-nvswitch", "sm_90")


@pytest.mark.slow
def test_it_is_predicted_to_pay_for_few_large_experts() -> None:
    """Where rows go to few ranks, and products take most of the time. It is planned only if pinned."""
    topology = topologies.load("h100-nvswitch", 2)
    few, many = {"H": 4096, "F": 14336, "E": 8, "K": 2}, {"H": 2048, "F": 768, "E": 128, "K": 8}
    for sizes, pays in ((few | {"T": 4096}, True), (many | {"T": 8192}, False)):
        planned = LAYER.plan_for(topology, sizes, "bf16", {})
        placed = LAYER.plan_for(topology, sizes, "bf16", {"rows_value.mover": "PlacedRows(128)"})
        assert (placed.predicted_us < planned.predicted_us) is pays
        assert [any(isinstance(one, ListPlaces) for one in each.launches) for each in (planned, placed)] == [
            False,
            True,
        ]


REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "tiles of another height": (
        {"h.tile": "32x32x16/4w1s"},
        r"where tiles of 16 rows read them, and those of h have 32; legal: PlacedRows\(32\), or tiles of 16 rows",
    ),
    "one of two loops": (
        {
            "grouped_matmul_out_2.loop": "own",
            "silu_out.tile": "16x32x16/4w1s",
            "grouped_matmul_out_2.tile": "32x32x16/4w1s",
        },
        r"those of grouped_matmul_out_2 have 32; legal: PlacedRows\(32\)",
    ),
    "pulled": ({"rows_value.transfer": "pull"}, r"finds their places, and pushes them there: NeededRows\(\) may"),
    "chunks": ({"rows_value.chunks": "2"}, "listed rows of rows_value go in one chunk"),
    "own tiles first": ({"h.own": "first"}, "tiles of own tokens come first in h; legal: h.own=in order"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_illegal_is_refused_with_the_reason(case: str) -> None:
    pins, reason = REFUSED[case]
    tile = {"grouped_matmul_out_2.loop": "shared", "h.tile": "16x32x16/4w1s"}
    if case == "one of two loops":
        tile = {}
    with pytest.raises(NoLegalSchedule, match=reason):
        planned("ep_layer", 2, {"rows_value.mover": "PlacedRows(16)", **tile, **pins})


@pytest.mark.slow
def test_rows_that_no_routing_finds_are_not_placed() -> None:
    with pytest.raises(IllegalPin, match=r"x_full.mover=PlacedRows\(16\): no schedule of this spec has it"):
        planned("ag_moe", 2, {"x_full.mover": "PlacedRows(16)"})


WRONG_PLACES = {
    "places of the next tile": ("tl.gather(begin + before - ahead, expert, 0)", "TILE + ", "_placed["),
    "tokens of the first one": ("(first + keys % CHUNK) // CHOICES", "0 * ", "_listed["),
    "a row less in each piece": ("tl.maximum(tl.minimum(many", "-1 + ", "_here["),
}


@pytest.mark.slow
@pytest.mark.parametrize("bug", WRONG_PLACES)
def test_tables_of_a_call_are_those_of_its_ids(bug: str) -> None:
    right, before, table = WRONG_PLACES[bug]
    schedule = planned("ep_layer", 2, PLACED)
    source = lowering.emit(schedule)
    assert source.count(right) == 1
    outcome = run_emulated(schedule, source.replace(right, before + right), calls=3)
    assert not outcome.equal and table in outcome.first_off, outcome.lines()
