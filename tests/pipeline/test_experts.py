"""Operators with experts: proved for every routing, and equal to their definition on emulated ranks for both targets."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

import lowering
import tilelink
import topologies
from tests.pipeline.expert_draws import drawn, known
from tests.pipeline.expert_specs import OF_RANKS, SPECS, by_definition
from tests.pipeline.test_emitted import compiles
from tests.pipeline.workloads import STOCK_FIRST
from tilelink import Shard, Tensor, dims
from tilelink.emulator import World
from tilelink.errors import IdlePin, IllegalIds, NoLegalSchedule
from tilelink.ir.calls import SortRows
from tilelink.ir.choices import TritonLoop
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import bind
from tilelink.planner.options import compute_options
from tilelink.planner.space import structures
from tilelink.proof.verify import verify
from tilelink.runtime.emulated import EmulatedRun
from tilelink.runtime.meaning import cut, whole_inputs
from tilelink.runtime.operator import build_operator
from tilelink.runtime.reference import make_inputs
from tilelink.runtime.run import run_emulated

SIZES = {"T": 24, "H": 48, "F": 96, "E": 5, "K": 3}


def planned(name: str, ranks: int, pins: dict[str, object] | None = None, **sizes: int) -> Schedule:
    given = SIZES | ({"E": 2 * ranks} if name in OF_RANKS else {}) | sizes
    return SPECS[name].plan_for(topologies.load("laptop-switch", ranks), known(name, given), "bf16", pins or {})


def check(schedule: Schedule, target: str = "triton", seed: int = 0, calls: int = 5) -> None:
    """Each seed has ids of another kind, so that calls follow each other with other routings."""
    proof = verify(schedule)
    assert proof.proved, "\n".join(proof.lines())
    outcome = run_emulated(schedule, lowering.emit(schedule, target), calls=calls, seed=seed)
    assert outcome.equal, "\n".join(outcome.lines())


@pytest.mark.quick(2)
@pytest.mark.parametrize("target", STOCK_FIRST)
@pytest.mark.parametrize(
    "ranks", [2, pytest.param(3, marks=pytest.mark.slow), 4, pytest.param(8, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", SPECS)
def test_an_operator_gives_what_its_definition_says(name: str, ranks: int, target: str) -> None:
    check(planned(name, ranks), target)


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", SPECS)
def test_results_are_those_of_the_definition_token_by_token(name: str) -> None:
    """With a reference that shares no code with what it checks."""
    schedule = planned(name, 2)
    run = EmulatedRun(schedule, lowering.emit(schedule), seed=3)
    for _ in range(5):
        run.call()
    run.finish()
    spec = schedule.spec
    for inputs, results in run.calls:
        wanted = by_definition(name, list(whole_inputs(spec, inputs).values()), 4)
        for rank, (found,) in enumerate(results):
            part = cut(wanted, spec.value(spec.outputs[0]).placement, rank, 2)
            assert torch.allclose(found.double(), part, rtol=0.05, atol=0.05)
            assert ((found.double() - part).norm() <= 0.01 * part.norm() + 1e-9).item()


PLACED: dict[str, object] = {"rows_value.mover": "PlacedRows(16)", "h.tile": "16x32x16/4w1s"}
PINS: dict[str, tuple[str, dict[str, object]]] = {
    "rows arrive by copy engines": ("ag_moe", {"mover": "CopyEngine()", "transfer": "push", "chunks": "2"}),
    "rows are pulled by programs": ("ag_moe", {"mover": "CommSms(2)", "transfer": "pull"}),
    "rows arrive by packets": ("ag_moe", {"algorithm": "ll"}),
    "rows arrive by the library": ("ag_moe", {"mover": "Library()"}),
    "sums leave as they are combined": ("moe_rs", {"mover": "Fused()", "transfer": "push"}),
    "sums are added in the epilogue": ("moe_rs", {"mover": "Fused()", "transfer": "push", "sum": "epilogue"}),
    "sums leave by copy engines": ("moe_rs", {"mover": "CopyEngine()", "transfer": "push", "chunks": "2"}),
    "sums in packets of tiles": ("moe_ar", {"algorithm": "ll-tiles"}),
    "tokens and sums travel by copy engines, ids by the library": (
        "ep_layer",
        {"mover": "CopyEngine()", "transfer": "push", "ids_full.mover": "Library()"},
    ),
    "rows return and are added at the ranks of their tokens": (
        "ep_layer",
        {"out.adder": "receiver", "out_rows.transfer": "push"},
    ),
    "rows return, and come by copy engines": (
        "ep_layer",
        {
            "out.adder": "receiver",
            "out_rows.transfer": "push",
            "rows_value.mover": "CopyEngine()",
            "out.tile": "16x32x0/4w1s2p",
        },
    ),
    "needed rows come": ("ep_layer", {"rows_value.mover": "NeededRows()", "out.adder": "sender"}),
    "needed rows come, and return": (
        "ep_layer",
        {"rows_value.mover": "NeededRows()", "out.adder": "receiver", "out_rows.transfer": "push"},
    ),
    "needed rows are pulled": (
        "ep_layer",
        {"rows_value.mover": "NeededRows()", "rows_value.transfer": "pull", "out.adder": "sender"},
    ),
    "needed rows are pulled, and return": (
        "there_and_back",
        {
            "dispatch_out.mover": "NeededRows()",
            "dispatch_out.transfer": "pull",
            "out.adder": "receiver",
            "out_rows.transfer": "push",
        },
    ),
    "rows are fetched, and added": ("ep_layer", {"out.adder": "receiver", "out_rows.transfer": "pull"}),
    "needed rows are pulled, and fetched": (
        "ep_layer",
        {
            "rows_value.mover": "NeededRows()",
            "rows_value.transfer": "pull",
            "out.adder": "receiver",
            "out_rows.transfer": "pull",
        },
    ),
    "rows of one choice are fetched": ("there_and_back", {"out.adder": "receiver", "out_rows.transfer": "pull"}),
    "needed rows go there and back": ("there_and_back", {"dispatch_out.mover": "NeededRows()"}),
    "needed rows for a function and a matmul": ("of_functions", {"rows_value.mover": "NeededRows()"}),
    "rows go to their places": ("ep_layer", PLACED | {"out.adder": "sender"}),
    "rows go to their places, and return": ("ep_layer", PLACED | {"out.adder": "receiver"}),
    "rows go to their places, and are fetched": (
        "ep_layer",
        PLACED | {"out.adder": "receiver", "out_rows.transfer": "pull"},
    ),
    "rows go to their places and back": ("there_and_back", {"dispatch_out.mover": "PlacedRows(16)"}),
    "rows go to their places for a function and a matmul": ("of_functions", {"rows_value.mover": "PlacedRows(16)"}),
    "tiles of 16 rows": ("moe_layer", {"h.tile": "16x32x16/4w1s"}),
    "tiles of own tokens first": ("ag_moe", {"mover": "CopyEngine()", "transfer": "push", "own": "first"}),
}


@pytest.mark.quick(2)
@pytest.mark.parametrize("case", PINS)
def test_movers_carry_rows_of_tokens_and_their_sums(case: str) -> None:
    name, pins = PINS[case]
    check(planned(name, 3, pins))


@pytest.mark.quick(2)
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", ["ag_moe", "ep_layer", "of_functions", "there_and_back"])
def test_columns_come_one_chunk_after_the_other(name: str, ranks: int) -> None:
    """To one matmul, to two, to one beside a function that waits for all of them, to none."""
    value = {"ag_moe": "x_full", "there_and_back": "dispatch_out"}.get(name, "rows_value")
    pins: dict[str, object] = {f"{value}.cut": "columns", f"{value}.chunks": "3"}
    schedule = planned(name, ranks, pins, H=192, T=8 * ranks)
    assert schedule.exchanges[0].chunk_cols == 64
    check(schedule)


def test_columns_come_on_the_other_target() -> None:
    check(planned("ag_moe", 2, {"x_full.cut": "columns", "x_full.chunks": "2"}, H=64), "triton-distributed")


T, H, F, E, K = dims("T H F E K")


@tilelink.overlap
def with_bias(
    x: Tensor(T, H, placement=Shard(0)),  # type: ignore[valid-type]
    ids: Tensor(T, K, dtype="int32"),  # type: ignore[valid-type]
    w: Tensor(E, H, F, placement=Shard(2)),  # type: ignore[valid-type]
    bias: Tensor(1, F, placement=Shard(1)),  # type: ignore[valid-type]
) -> Tensor:
    """Tiles load something behind the matmul."""
    rows = tilelink.all_gather(x, dim=0)
    biased: Tensor = tilelink.grouped_matmul(rows, w, tilelink.route(ids, num_experts=E)) + bias
    return biased


COLUMNS = {"rows_value.cut": "columns", "rows_value.chunks": "2"}


def test_what_tiles_load_behind_the_matmul_stands_where_they_have_rows() -> None:
    """A first tile waits without rows, too, and compiles: what a branch loads is used in it."""
    small = with_bias.plan_for(topologies.load("laptop-switch", 3), SIZES | {"H": 96}, "bf16", COLUMNS)
    check(small)
    large = {"T": 1024, "H": 512, "F": 1024, "E": 16, "K": 4}
    schedule = with_bias.plan_for(topologies.load("h200-nvswitch", 4), large, "bf16", COLUMNS)
    assert any("bias" in str(kernel.compute) for kernel in schedule.kernels() if "rows_value" in str(kernel.compute))
    compiles(lowering.emit(schedule), "h200-nvswitch", "sm_90")


def test_who_waits_for_all_columns_gains_nothing_by_them() -> None:
    """A sum of dispatched rows has no loop over k."""
    where, sizes = topologies.load("h100-nvswitch", 2), {"T": 8192, "H": 4096, "E": 16, "K": 1}
    pins = {"mover": "CopyEngine()", "transfer": "push", "chunks": "4", "nest": "chunk by chunk"}
    named = {f"dispatch_out.{one}": value for one, value in pins.items()} | {"out.adder": "sender"}
    of_rows, of_columns = (
        SPECS["there_and_back"].plan_for(where, sizes, "bf16", {**named, "dispatch_out.cut": one})
        for one in ("rows", "columns")
    )
    assert of_rows.predicted_us == of_columns.predicted_us


@pytest.mark.parametrize("target", STOCK_FIRST)
def test_loops_by_columns_compile(target: str) -> None:
    sizes = {"T": 1024, "H": 512, "F": 256, "E": 16, "K": 4}
    schedule = SPECS["ep_layer"].plan_for(topologies.load("h200-nvswitch", 4), sizes, "bf16", COLUMNS)
    compiles(lowering.emit(schedule, target), "h200-nvswitch", "sm_90")


@pytest.mark.parametrize("name", ["ag_moe", "ep_layer"])
def test_loops_by_columns_of_few_rows_compile(name: str) -> None:
    """Tiles that compute the transposed product turn it behind the loop, where they have rows."""
    value, loop = ("x_full", "out") if name == "ag_moe" else ("rows_value", "h")
    pins: dict[str, object] = {f"{value}.cut": "columns", f"{value}.chunks": "2", f"{loop}.tile": "32x64x64/4w4s"}
    sizes = {"T": 1024, "H": 512, "F": 256, "E": 16, "K": 4}
    schedule = SPECS[name].plan_for(topologies.load("h200-nvswitch", 4), sizes, "bf16", pins)
    compiles(lowering.emit(schedule), "h200-nvswitch", "sm_90")
    check(planned(name, 2, {pin: value for pin, value in pins.items() if "tile" not in pin}, H=64))


REFUSED = {
    "by programs": ({"x_full.mover": "CommSms(2)"}, "columns of x_full are pushed by copy engines"),
    "by the reader": ({"x_full.transfer": "pull"}, "columns of x_full are pushed by copy engines"),
    "not as many in each chunk": ({"x_full.chunks": "5"}, "48 columns of x_full are not 5 chunks of as many"),
    "steps of two chunks": (
        {"x_full.chunks": "3", "out.tile": "16x16x32/4w1s"},
        "no whole steps of 32 of the loop over k",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_columns_are_refused_with_the_reason(case: str) -> None:
    pins, reason = REFUSED[case]
    with pytest.raises(NoLegalSchedule, match=reason):
        planned("ag_moe", 2, {"x_full.cut": "columns", **pins})


@pytest.mark.parametrize("tokens", [1, 5, 16])
def test_any_number_of_needed_rows_of_a_rank(tokens: int) -> None:
    """Blocks of rows are whole, whatever the number of tokens."""
    check(planned("there_and_back", 2, {"dispatch_out.mover": "NeededRows()"}, T=2 * tokens))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_random_specs_sizes_and_schedules(seed: int) -> None:
    rng = random.Random(7000 + seed)
    _, schedule, target = drawn(rng)
    check(schedule, target, rng.randrange(1000), calls=4)


def test_a_loop_has_tables_for_its_tiles_once() -> None:
    """Matmuls of one routing whose tiles have one height share the index program."""
    schedule = planned("moe_layer", 2)
    made = [one for one in schedule.launches if isinstance(one, SortRows)]
    assert len(made) == len({one.height for one in made})
    assert schedule.launches[: len(made)] == tuple(made)


@pytest.mark.parametrize("pin", ["prefetch", "tail"])
def test_loops_over_rows_by_experts_have_no_other_fields(pin: str) -> None:
    assert {name.rpartition(".")[2] for name, _ in planned("ag_moe", 2).choices if name.startswith("out.")} == {
        "compute",
        "tile",
        "group",
    }
    with pytest.raises(IdlePin):
        planned("ag_moe", 2, {pin: "yes" if pin == "prefetch" else "halves"})


@pytest.mark.quick(1)
@pytest.mark.parametrize("experts", [1, 3, 16])
@pytest.mark.parametrize("choices", [1, 2, 9])
def test_any_number_of_experts_and_choices(experts: int, choices: int) -> None:
    check(planned("moe_rs", 2, E=experts, K=choices), seed=experts + choices, calls=3)


def test_calls_are_equal_bit_by_bit_from_run_to_run() -> None:
    schedule = planned("moe_layer", 2)
    source, found = lowering.emit(schedule), []
    for _ in range(2):
        run = EmulatedRun(schedule, source, seed=5)
        run.call()
        run.finish()
        found.append([result for _, results in run.calls for result in results])
    for one, other in zip(*found, strict=True):
        assert all(map(torch.equal, one, other))


def test_a_schedule_goes_through_json() -> None:
    schedule = planned("moe_layer", 2)
    assert Schedule.from_json(schedule.to_json()) == schedule
    assert replace(schedule, predicted_us=0.0).program.hash == schedule.program.hash


def test_ids_that_are_no_experts_are_counted_and_raised_when_asked() -> None:
    """They choose no expert, so that nothing outside of the weights is multiplied."""
    schedule = planned("moe_layer", 2)
    world = World(2, num_sms=schedule.machine.num_sms)
    operators = [build_operator(lowering.emit(schedule), schedule.name, fabric) for fabric in world.fabrics]
    inputs = make_inputs(schedule.spec, 0)
    for parts in inputs:
        parts["ids"][0, :2] = torch.tensor([5, 2**31 - 1])
        parts["ids"][3, 1] = -7
    results = [operator(*parts.values()) for operator, parts in zip(operators, inputs, strict=True)]
    world.run()
    wanted = by_definition("moe_layer", list(whole_inputs(schedule.spec, inputs).values()))
    for rank, found in enumerate(results):
        assert isinstance(found, torch.Tensor)
        assert torch.allclose(found.double(), wanted.chunk(2)[rank], rtol=0.05, atol=0.05)
    with pytest.raises(IllegalIds, match="ids: 3 ids of calls so far"):
        operators[0].check()  # type: ignore[attr-defined]


def test_rows_leave_by_one_store_where_a_tile_can_store_at_several_ranks() -> None:
    """Triton-distributed takes the address of one rank at a time."""
    schedule = planned("ep_layer", 2, {"out.adder": "receiver", "out_rows.transfer": "push"})
    kernels = {target: lowering.emit(schedule, target) for target in ("triton", "triton-distributed")}
    assert kernels["triton"].count("on_ranks(out_rows_peers") == 1
    assert "on_ranks(" not in kernels["triton-distributed"]
    assert "dl.symm_at(out_rows, peer)" in kernels["triton-distributed"]


WRONG_TABLES = {
    "a row more is listed": (
        "found | is_one_of(expert, NUM_EXPERTS, first_expert)",
        "found | is_one_of(expert, NUM_EXPERTS + 1, first_expert)",
        "rows_value_here[",
    ),
    "rows of an expert in another order": ("keys = tl.sort(found * CHUNK + lanes)", None, "_rows_16["),
    "a tile more": ("used + tl.cdiv(none, TILE))", "used + tl.cdiv(none, TILE) + 1)", "_tiles_16["),
}


@pytest.mark.parametrize("bug", WRONG_TABLES)
def test_tables_of_a_call_are_those_of_its_ids_even_where_results_are_right(bug: str) -> None:
    schedule = planned(
        "ep_layer", 2, {"rows_value.mover": "NeededRows()", "out.adder": "receiver", "out_rows.transfer": "push"}
    )
    source, (old, new, table) = lowering.emit(schedule), WRONG_TABLES[bug]
    if new is None:  # the last assignment of an expert first
        source = source.replace("assignment = first + keys % CHUNK", "assignment = first + CHUNK - 1 - keys % CHUNK")
        new = "keys = tl.sort(found * CHUNK + CHUNK - 1 - lanes)"
    assert old in source
    outcome = run_emulated(schedule, source.replace(old, new), calls=5)
    assert not outcome.equal and not outcome.differences
    assert table in outcome.first_off, outcome.lines()


@pytest.mark.parametrize(("tokens", "least"), [(512, 128), (64, 16)])
def test_tiles_are_no_lower_than_the_rows_of_an_expert(tokens: int, least: int) -> None:
    """Up to 128 rows; experts with fewer may have lower tiles."""
    spec = bind(SPECS["moe_rs"].spec, {"T": tokens, "H": 2048, "F": 4096, "E": 8, "K": 2}, 2, "bf16")
    structure = next(structures(spec, topologies.load("h200-nvswitch", 2), {}))
    group = next(one for one in structure.groups if one.name == "grouped_matmul_out")
    loops = (one.loop for one in compute_options(structure, group, {}))
    assert min(loop.tile.m for loop in loops if isinstance(loop, TritonLoop)) == least


def test_there_are_tiles_where_high_ones_do_not_fit() -> None:
    """A laptop has little shared memory."""
    name, schedule, target = drawn(random.Random(20261128000006))
    assert name == "of_functions" and dict(schedule.spec.sizes)["T"] * 9 / 2 > 128
    check(schedule, target, calls=2)
