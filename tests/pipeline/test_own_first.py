"""Tiles of own tokens that come before the wait for rows of other ranks: as planned, as proved, and as run on emulated ranks."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

import lowering
import tilelink
import topologies
from tests.pipeline.expert_draws import drawn, known
from tests.pipeline.expert_specs import OF_RANKS, SPECS, by_definition
from tests.pipeline.test_emitted import compiles
from tilelink import Shard, Tensor, dims
from tilelink.adversary.small import small_form
from tilelink.elaborate.routed import OWN_TOKENS
from tilelink.emulator import World
from tilelink.errors import IdlePin, IllegalPin, NoLegalSchedule
from tilelink.ir.calls import SortRows
from tilelink.ir.nodes import ComputeRole, Kernel
from tilelink.ir.schedule import Schedule
from tilelink.proof.verify import verify
from tilelink.runtime.meaning import cut, whole_inputs
from tilelink.runtime.operator import build_operator
from tilelink.runtime.reference import make_inputs
from tilelink.runtime.run import run_emulated

SIZES = {"T": 24, "H": 48, "F": 96, "E": 4, "K": 3}
FIRST: dict[str, object] = {"own": "first"}
Ids = Callable[[int, int, int, int], torch.Tensor]
ROUTINGS: dict[str, Ids] = {  # of tokens, choices, experts, ranks
    "uniform": lambda t, k, e, _: torch.randint(0, e, (t, k)),
    "all at one": lambda t, k, e, _: torch.full((t, k), e - 1),
    "none": lambda t, k, *_: torch.full((t, k), -1),
    "some missing": lambda t, k, e, _: torch.randint(-1, e, (t, k)),
    "one expert twice": lambda t, k, e, _: torch.randint(0, e, (t, 1)).expand(t, k).clone(),
    "each rank its own experts": lambda t, k, e, n: (torch.arange(t) // (t // n) % e)[:, None].expand(t, k).clone(),
    "each rank the next rank's": lambda t, k, e, n: (torch.arange(t) // (t // n) + 1)[:, None].expand(t, k) % e,
}


def planned(name: str, ranks: int, pins: dict[str, object], topology: str = "laptop-switch", **sizes: int) -> Schedule:
    given = SIZES | ({"E": 2 * ranks} if name in OF_RANKS else {}) | sizes
    return SPECS[name].plan_for(topologies.load(topology, ranks), known(name, given), "bf16", FIRST | pins)


def roles(schedule: Schedule) -> list[ComputeRole]:
    kernels = (one.compute for one in schedule.launches if isinstance(one, Kernel))
    return [one for one in kernels if one is not None]


def own_first(schedule: Schedule) -> list[str]:
    return [one.name for one in roles(schedule) if one.own_first]


def check(schedule: Schedule, target: str = "triton", seed: int = 0, calls: int = 5) -> None:
    assert own_first(schedule)
    proof = verify(schedule)
    assert proof.proved, "\n".join(proof.lines())
    outcome = run_emulated(schedule, lowering.emit(schedule, target), calls=calls, seed=seed)
    assert outcome.equal, "\n".join(outcome.lines())


PINS: dict[str, tuple[str, dict[str, object]]] = {
    "rows are pushed by copy engines": ("ag_moe", {"mover": "CopyEngine()", "transfer": "push", "chunks": "2"}),
    "rows are pulled by copy engines": ("ag_moe", {"mover": "CopyEngine()", "transfer": "pull"}),
    "rows are pushed by programs": ("ag_moe", {"mover": "CommSms(2)", "transfer": "push"}),
    "rows are pulled by programs": ("ag_moe", {"mover": "CommSms(2)", "transfer": "pull"}),
    "needed rows": ("ep_layer", {"rows_value.mover": "NeededRows()", "out.adder": "sender"}),
    "needed rows, and they return": (
        "ep_layer",
        {"rows_value.mover": "NeededRows()", "out.adder": "receiver", "out_rows.transfer": "push"},
    ),
    "rows return": (
        "ep_layer",
        {"rows_value.mover": "CopyEngine()", "out.adder": "receiver", "out_rows.transfer": "push"},
    ),
    "a function and a matmul": ("of_functions", {"rows_value.mover": "NeededRows()"}),
    "loops of one height share tables": (
        "moe_layer",
        {"xf.mover": "CommSms(2)", "h.tile": "16x32x16/4w1s", "grouped_matmul_out_3.tile": "16x16x16/4w1s"},
    ),
    "loops of two heights": (
        "moe_layer",
        {"xf.mover": "CopyEngine()", "h.tile": "16x32x16/4w1s", "grouped_matmul_out_3.tile": "32x16x16/4w1s"},
    ),
}


# a copy stream takes an SM on the other target, of which these plans leave none
ELSEWHERE = [case for case, (_, pins) in PINS.items() if "CopyEngine" not in str(pins)]
MOVED = [
    *((case, "triton") for case in PINS),
    *(pytest.param(case, "triton-distributed", marks=pytest.mark.slow) for case in ELSEWHERE),
]


@pytest.mark.quick(4)
@pytest.mark.parametrize("tokens", [24, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("case", "target"), MOVED)
def test_movers_bring_rows_of_others(case: str, target: str, tokens: int) -> None:
    name, pins = PINS[case]
    check(planned(name, 3, pins, T=tokens), target)


@pytest.mark.quick(2)
@pytest.mark.parametrize("kind", ROUTINGS)
@pytest.mark.parametrize(
    ("ranks", "tokens", "choices"), [(2, 40, 1), (3, 60, 2), pytest.param(4, 72, 4, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", ["ag_moe", "ep_layer"])
def test_results_are_those_of_the_definition(name: str, ranks: int, tokens: int, choices: int, kind: str) -> None:
    """With a reference that shares no code with what it checks. Tokens of a rank are no multiple of the rows of a tile, and tiles
    of one call are others than those of the next."""
    torch.manual_seed(ranks)
    gathered = "x_full" if name == "ag_moe" else "rows_value"
    pins: dict[str, object] = {f"{gathered}.mover": "CommSms(2)" if name == "ag_moe" else "NeededRows()", "group": "2"}
    schedule = planned(name, ranks, pins, T=tokens, K=choices)
    assert own_first(schedule) and verify(schedule).proved
    spec, experts = schedule.spec, dict(schedule.spec.sizes)["E"]
    world = World(ranks, num_sms=schedule.machine.num_sms, seed=len(kind))
    source = lowering.emit(schedule)
    operators = [build_operator(source, schedule.name, fabric) for fabric in world.fabrics]
    calls = []
    for call, one in enumerate((kind, "uniform", kind)):
        inputs = make_inputs(spec, call)
        ids = ROUTINGS[one](tokens, choices, experts, ranks).int()
        for rank, parts in enumerate(inputs):
            parts["ids"] = cut(ids, spec.value("ids").placement, rank, ranks).contiguous()
        results = [operator(*parts.values()) for operator, parts in zip(operators, inputs, strict=True)]
        calls.append((inputs, results))
    world.run()
    for inputs, results in calls:
        wanted = by_definition(name, list(whole_inputs(spec, inputs).values()), experts)
        for rank, found in enumerate(results):
            assert isinstance(found, torch.Tensor)
            part = cut(wanted, spec.value(spec.outputs[0]).placement, rank, ranks)
            assert torch.allclose(found.double(), part, rtol=0.05, atol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_random_schedules(seed: int) -> None:
    rng = random.Random(9000 + seed)
    _, schedule, target = drawn(rng, own_first=True)
    check(schedule, target, rng.randrange(1000), calls=4)


def test_two_loops_share_the_tables_of_one_of_them() -> None:
    name, pins = PINS["loops of one height share tables"]
    schedule = planned(name, 3, pins)
    (made,) = (one for one in schedule.launches if isinstance(one, SortRows))
    assert made.own_first and len(own_first(schedule)) == 1 and len(roles(schedule)) > 2
    name, pins = PINS["loops of two heights"]
    both = [one for one in planned(name, 3, pins).launches if isinstance(one, SortRows)]
    assert [one.own_first for one in both] == [True, False]


def test_own_tiles_come_before_the_wait() -> None:
    source = lowering.emit(planned("ag_moe", 2, {"mover": "CommSms(2)", "transfer": "push"}))
    tiles = source[source.index("def out_tiles(") :]
    places = [tiles.index(text) for text in (f"# {OWN_TOKENS}", "wait_", "first_position = ")]
    assert places == sorted(places)


def test_without_the_choice_nothing_says_which_tokens_are_own() -> None:
    pins: dict[str, object] = {"mover": "CopyEngine()", "transfer": "push", "own": "in order"}
    schedule = planned("ag_moe", 2, pins)
    assert not own_first(schedule)
    assert "own_tiles" not in lowering.emit(schedule) and "place_own_rows" not in lowering.emit(schedule)


@pytest.mark.parametrize("name", ["moe_rs", "moe_ar"])
def test_loops_that_wait_for_no_tokens_have_no_such_choice(name: str) -> None:
    with pytest.raises(IdlePin):
        planned(name, 2, {})


def test_it_is_a_choice_of_what_exchanges_bring() -> None:
    """Packets and the library bring all rows before the loop begins."""
    for pins in ({"algorithm": "ll"}, {"x_full.mover": "Library()"}):
        with pytest.raises((IllegalPin, NoLegalSchedule)):
            planned("ag_moe", 2, dict(pins))


T, D, H, F, E, K = dims("T D H F E K")


@tilelink.overlap
def of_made_rows(
    x: Tensor(T, D, placement=Shard(0)),  # type: ignore[valid-type]
    a: Tensor(D, H),  # type: ignore[valid-type]
    ids: Tensor(T, K, dtype="int32"),  # type: ignore[valid-type]
    w: Tensor(E, H, F, placement=Shard(2)),  # type: ignore[valid-type]
) -> Tensor:
    """Rows of tokens are made in the call."""
    rows = tilelink.all_gather(tilelink.matmul(x, a), dim=0)
    return tilelink.grouped_matmul(rows, w, tilelink.route(ids, num_experts=E))


def of_rows(mover: str) -> Schedule:
    pins = FIRST | {"rows_value.mover": mover, "rows_value.transfer": "push", "matmul_out.compute": "triton"}
    return of_made_rows.plan_for(topologies.load("laptop-switch", 2), SIZES | {"T": 40, "D": 32}, "bf16", pins)


def test_own_rows_that_are_made_in_the_call_are_read_where_they_were_made() -> None:
    check(of_rows("CommSms(2)"))
    check(of_rows("CopyEngine()"))


def test_rows_that_tiles_store_among_those_of_peers_are_no_own_ones() -> None:
    with pytest.raises((IllegalPin, NoLegalSchedule), match="stored among those of peers"):
        of_rows("Fused()")


A, FEW = {"T": 4096, "H": 4096, "F": 14336, "E": 8, "K": 2}, {"T": 2048, "H": 2048, "F": 1536, "E": 160, "K": 6}


def test_the_search_chooses_it_where_it_hides_rows_on_their_way() -> None:
    machine = topologies.load("h100-nvswitch", 2)
    schedule = SPECS["ag_moe"].plan_for(machine, known("ag_moe", A), "bf16", {})
    other = SPECS["ag_moe"].plan_for(machine, known("ag_moe", A), "bf16", {"own": "in order"})
    assert own_first(schedule) and schedule.predicted_us < other.predicted_us - 5


@pytest.mark.slow
def test_the_search_does_not_where_no_tile_has_own_tokens_alone() -> None:
    schedule = SPECS["ep_layer"].plan_for(topologies.load("h100-nvswitch", 2), FEW, "bf16", {})
    assert not own_first(schedule)


def test_a_small_form_has_it_as_well() -> None:
    name, machine = "ag_moe", topologies.load("h100-nvswitch", 2)
    schedule = SPECS[name].plan_for(machine, known(name, A), "bf16", FIRST | {"mover": "CopyEngine()"})
    small = small_form(SPECS[name].spec, schedule, machine)
    assert own_first(small) == own_first(schedule)
    check(small, calls=3)


@pytest.mark.parametrize(("topology", "arch"), [("h200-nvswitch", "sm_90"), ("mi300x-full-mesh", "gfx942")])
def test_it_compiles(topology: str, arch: str) -> None:
    sizes = {"T": 1024, "H": 512, "F": 1024, "E": 8, "K": 2}
    pins: dict[str, object] = {"mover": "CommSms(16)", "transfer": "push"}
    compiles(lowering.emit(planned("ag_moe", 4, pins, topology, **sizes)), topology, arch)


WRONG_TABLES = {
    "one own tile less": ("tl.store(num_own, first_part)", "tl.store(num_own, tl.maximum(first_part - 1, 0))"),
    "tokens of the first rank": ("first_own, CHUNK, OWN_ROWS)", "0, CHUNK, OWN_ROWS)"),
}


@pytest.mark.parametrize("bug", WRONG_TABLES)
def test_tables_of_a_call_are_those_of_its_ids(bug: str) -> None:
    schedule = planned("ag_moe", 2, {"mover": "CommSms(2)"}, T=48)
    source, (old, new) = lowering.emit(schedule), WRONG_TABLES[bug]
    assert old in source
    outcome = run_emulated(schedule, source.replace(old, new), calls=5)
    assert not outcome.equal and "routing_" in outcome.first_off, outcome.lines()
