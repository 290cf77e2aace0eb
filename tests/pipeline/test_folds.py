"""Folds of users over an axis that ranks share, or that a rank has: random ones against their definition, and what is refused."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Callable

import pytest
import torch
import triton
import triton.language as tl

import lowering
import tilelink
import topologies
from lowering.entry import _CHECKS
from tests.pipeline import decode_specs
from tests.pipeline.checked_calls import checked_calls
from tests.pipeline.fold_specs import Drawn, by_definition, cross_entropy, drawn, m, n, rms, row_sum, spec_of
from tilelink import Shard, Tensor, all_reduce, dims, reduce_scatter
from tilelink.adversary.small import small_form
from tilelink.compiled.check import check_compiled
from tilelink.declaration import Overlap
from tilelink.errors import IllegalPin, NoLegalSchedule, NotOnThisMachine, TileLinkError
from tilelink.ir.calls import StateMerge
from tilelink.ir.schedule import Schedule, _types
from tilelink.ir.trace import safe_name
from tilelink.planner.pins import checked_pins
from tilelink.planner.plan import plan_with
from tilelink.proof.verify import verify
from tilelink.runtime.load import load_source
from tilelink.runtime.meaning import cut, whole_inputs
from tilelink.runtime.run import run_emulated

M, N, K = dims("M N K")
_MACHINES = ("laptop-mesh", "h100-nvswitch", "mi300x-full-mesh")


def scheduled(rng: random.Random, found: Drawn) -> Schedule:
    """With random tiles and splits, or as it is planned."""
    spec, out = found.spec, found.spec.outputs[0]
    machine = topologies.load(rng.choice(_MACHINES), spec.num_ranks)
    rows, block = (rng.choice([1, 2, 4, 8, 16]), rng.choice([8, 16, 32, 64]))
    pins: dict[str, object] = {f"{out}.fold": f"{rows}x{block}x1/{rng.choice([1, 4])}w{rng.choice([1, 3])}s"}
    pins[f"{out}.splits"] = str(rng.randint(1, 5))
    try:
        return plan_with(spec, machine, checked_pins(spec, machine, pins if rng.random() < 0.8 else {}))
    except (NoLegalSchedule, IllegalPin):
        return plan_with(spec, machine, {})


@pytest.mark.quick(3)
@pytest.mark.parametrize("seed", range(160))
def test_a_random_fold_computes_what_the_definition_says(seed: int) -> None:
    rng = random.Random(9000 + seed)
    found = drawn(rng, rng.choice([2, 2, 3, 3, 4, 8]))
    schedule, spec = scheduled(rng, found), found.spec
    for inputs, outputs in checked_calls(schedule, rng.choice(["triton", "triton-distributed"]), seed, 2):
        exact = by_definition(found.kind, whole_inputs(spec, inputs))
        for rank, results in enumerate(outputs):
            for name, one, result in zip(spec.outputs, exact, results, strict=True):
                part = cut(one, spec.value(name).placement, rank, spec.num_ranks)
                assert result.dtype == torch.float32
                assert torch.allclose(result.double(), part, rtol=1e-4, atol=1e-4), (found.kind, found.how)


def _losses(how: Callable[[Tensor, Tensor], tuple[Tensor, ...]]) -> Overlap:
    @tilelink.overlap
    def losses(x: Tensor(M, N, placement=Shard(1)), labels: Tensor(M, dtype="int32")):
        return how(*cross_entropy(x, labels))

    return losses


_HOWS: dict[str, tuple[Callable[[Tensor, Tensor], tuple[Tensor, ...]], int]] = {  # launches
    "alike": (lambda loss, lse: (all_reduce(loss), all_reduce(lse)), 1),
    "the second one first": (lambda loss, lse: (all_reduce(lse), all_reduce(loss)), 1),
    "only one": (lambda loss, lse: (all_reduce(loss),), 1),
    "only the second one": (lambda loss, lse: (all_reduce(lse),), 1),
    "one is not needed": (lambda loss, lse: (all_reduce(lse), all_reduce(loss))[:1], 1),
    "otherwise": (lambda loss, lse: (all_reduce(loss), reduce_scatter(lse, dim=0)), 2),
    "twice": (lambda loss, lse: (all_reduce(loss), all_reduce(lse), all_reduce(loss)), 2),
    "with a sum behind it": (lambda loss, lse: (all_reduce(loss) + 1.0, all_reduce(lse)), 1),
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("how", _HOWS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_results_that_are_reduced_alike_are_made_at_once(how: str, ranks: int) -> None:
    reduced, launches = _HOWS[how]
    spec = _losses(reduced)
    schedule = spec.plan_for(topologies.load("laptop-mesh", ranks), {"M": 12, "N": 40 * ranks}, "bf16", {})
    assert verify(schedule).proved
    assert sum(isinstance(one, StateMerge) for one in schedule.launches) == launches
    assert ("lse_of" in str(schedule)) == (how != "only one")
    assert run_emulated(schedule, lowering.emit(schedule), calls=2).equal


@tilelink.op(
    reads={"x": (m, n), "scale": (m,), "weight": (n,)},
    writes=(m, n),
    reference=lambda x, scale, weight: x * scale[:, None] * weight,
)
@triton.jit
def scaled(x, scale, weight, m, n, num_m, num_n, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    row, col = m + tl.arange(0, TILE_M), n + tl.arange(0, TILE_N)
    there = (row < num_m)[:, None] & (col < num_n)[None, :]
    tile = tl.load(x + row[:, None] * num_n + col[None, :], mask=there, other=0.0).to(tl.float32)
    by = tl.load(scale + row, mask=row < num_m, other=0.0)
    return tile * by[:, None] * tl.load(weight + col, mask=col < num_n, other=0.0).to(tl.float32)[None, :]


@pytest.mark.slow
@pytest.mark.parametrize("target", ["triton", "triton-distributed"])
def test_it_stands_between_a_matmul_and_others(target: str) -> None:
    @tilelink.overlap
    def block(
        x: Tensor(M, K, placement=Shard(0)),
        w: Tensor(K, N, placement=Shard(1)),
        total: Tensor(N, placement=Shard(0)),
        v: Tensor(N, K, placement=Shard(0)),
    ):
        y = tilelink.all_gather(x, dim=0) @ w
        return reduce_scatter(scaled(y, all_reduce(rms(y)), total) @ v, dim=0)

    schedule = block.plan_for(topologies.load("laptop-switch", 2), {"M": 40, "K": 48, "N": 96}, "bf16", {})
    assert verify(schedule).proved
    assert run_emulated(schedule, lowering.emit(schedule, target), calls=2).equal


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "how"), [("losses", "all"), ("norms", "scattered"), ("columns", "alone"), ("products", "all")]
)
@pytest.mark.parametrize(("machine", "arch"), [("h100-nvswitch", "sm_90"), ("mi300x-full-mesh", "gfx942")])
def test_compiled_kernels_keep_the_order(kind: str, how: str, machine: str, arch: str) -> None:
    schedule = spec_of(kind, how).plan_for(topologies.load(machine, 2), {"M": 64, "N": 20_000}, "bf16", {})
    report = check_compiled(load_source(lowering.emit(schedule), "fold"), 2, arch)
    assert report.kernels and not report.findings and not report.unknown


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "how"), [("losses", "all"), ("norms", "scattered"), ("products", "alone")])
def test_a_small_form_has_its_splits(kind: str, how: str) -> None:
    spec, topology = spec_of(kind, how), topologies.load("h200-nvswitch", 4)
    name = spec.spec.outputs[0]
    pins = {f"{name}.splits": "4"}
    schedule = spec.plan_for(topology, {"M": 512, "N": 65_536}, "bf16", pins)
    small = small_form(spec.spec, schedule, topology)
    assert dict(small.decided.collectives)[name].splits == 2
    assert verify(small).proved
    assert run_emulated(small, lowering.emit(small), calls=2).equal


@pytest.mark.slow
def test_a_long_axis_of_few_rows_is_split_and_of_many_rows_is_not() -> None:
    def splits(rows: int) -> int:
        plan = spec_of("sums", "all").plan_for(topologies.load("h200-nvswitch", 2), {"M": rows, "N": 2**18}, "bf16", {})
        return dict(plan.decided.collectives)["out"].splits

    assert splits(1) > 1 and splits(4096) == 1


def test_pins_say_what_is_wrong_with_them() -> None:
    spec, topology = spec_of("sums", "all"), topologies.load("laptop-mesh", 2)
    for pins, says in (
        ({"out.protocol": "lamport"}, "Legal out.protocol: ll"),
        ({"out.splits": "9", "out.fold": "4x16x1/1w1s"}, "9 programs cannot share them"),
        ({"out.fold": "16x16x16/1w1s"}, "Legal out.fold: "),
        ({"out.fold": "64x1024x1/1w1s"}, "more than registers of 1 warps hold"),
    ):
        with pytest.raises(TileLinkError) as caught:
            spec.plan_for(topology, {"M": 40, "N": 200}, "bf16", pins)
        assert says in str(caught.value)


def test_nodes_that_are_written_as_text_have_names_of_their_own() -> None:
    found = {one for one in _types() if dataclasses.is_dataclass(one)}
    assert len({one.__name__ for one in found}) == len(found)


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", ["losses", "norms", "sums"])
def test_a_schedule_comes_back_from_its_json(kind: str) -> None:
    plan = spec_of(kind, "all").plan_for(topologies.load("laptop-mesh", 2), {"M": 12, "N": 80}, "bf16", {})
    again = Schedule.from_json(plan.to_json())
    assert again == plan
    assert lowering.emit(again) == lowering.emit(plan)


@tilelink.overlap
def of_gathered_rows(x: Tensor(M, N, placement=Shard(0))):
    return row_sum(tilelink.all_gather(x, dim=0))


@tilelink.overlap
def of_gathered_columns(x: Tensor(M, N, placement=Shard(1))):
    return row_sum(tilelink.all_gather(x, dim=1))


@tilelink.overlap
def of_a_sum(x: Tensor(M, K, placement=Shard(1)), w: Tensor(K, N, placement=Shard(0))):
    return rms(all_reduce(x @ w))


@tilelink.overlap
def of_own_rows_of_a_sum(x: Tensor(M, K, placement=Shard(1)), w: Tensor(K, N, placement=Shard(0))):
    return rms(reduce_scatter(x @ w, dim=0))


@tilelink.overlap
def of_own_columns_of_a_sum(x: Tensor(M, K, placement=Shard(1)), w: Tensor(K, N, placement=Shard(0))):
    return all_reduce(rms(reduce_scatter(x @ w, dim=1)))


@tilelink.overlap
def gathered_again(x: Tensor(M, N, placement=Shard(1))):
    return tilelink.all_gather(reduce_scatter(row_sum(x), dim=0), dim=0)


@tilelink.overlap
def of_the_rank_before(x: Tensor(M, N, placement=Shard(0))):
    return row_sum(tilelink.send_recv(x))


@tilelink.overlap
def of_slices(x: Tensor(M, K, placement=Shard(1)), w: Tensor(K, N, placement=Shard(0))):
    gate, up = reduce_scatter(x @ w, dim=0).chunk(2, dim=1)
    return rms(gate), row_sum(up)


@tilelink.overlap
def beside_other_folds(x: Tensor(M, N, placement=Shard(1))):
    return all_reduce(row_sum(x)), all_reduce(rms(x)), x * 2.0


@tilelink.overlap
def of_elements_and_behind_them(x: Tensor(M, N, placement=Shard(1))):
    return all_reduce(row_sum(tilelink.silu(x))) * 0.5 + 1.0


@triton.jit
def largest(best, other):
    return tl.maximum(best, other)


def _largest(part: str):
    """Folds that merge by one function, and call their parts otherwise."""

    @tilelink.fold(
        reads={"x": (m, n)}, over=n, state={part: float("-inf")}, merge=largest, reference=lambda x: x.amax(1)
    )
    @triton.jit
    def of_rows(x, m, n, num_m, num_n, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
        row, col = m + tl.arange(0, TILE_M), n + tl.arange(0, TILE_N)
        there = (row < num_m)[:, None] & (col < num_n)[None, :]
        at = row[:, None] * num_n + col[None, :]
        return tl.max(tl.load(x + at, mask=there, other=float("-inf")).to(tl.float32), axis=1)

    return of_rows


_first, _second = _largest("best"), _largest("peak")


@tilelink.overlap
def by_one_merge(x: Tensor(M, N, placement=Shard(1)), y: Tensor(M, N, placement=Shard(1))):
    return all_reduce(_first(x)), all_reduce(_second(y)), all_reduce(_second(x))


_SPECS: list[Overlap] = [
    *(of_gathered_rows, of_gathered_columns, of_a_sum, of_own_rows_of_a_sum, of_own_columns_of_a_sum, gathered_again),
    *(of_the_rank_before, of_slices, beside_other_folds, of_elements_and_behind_them, by_one_merge),
]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("spec", _SPECS, ids=lambda spec: spec.spec.name)
def test_it_goes_with_other_operations(spec: Overlap, ranks: int) -> None:
    sizes = {
        name: size
        for name, size in {"M": 8 * ranks, "N": 24 * ranks, "K": 16 * ranks}.items()
        if name in spec.spec.symbols()
    }
    for machine in ("h100-nvswitch", "mi300x-full-mesh", "laptop-mesh"):
        schedule = spec.plan_for(topologies.load(machine, ranks), sizes, "bf16", {})
        assert verify(schedule).proved
        assert run_emulated(schedule, lowering.emit(schedule), calls=2, seed=ranks).equal


@pytest.mark.parametrize(
    "spec", [spec_of("sums", "all"), decode_specs.spec_of("heads", decode_specs.How())], ids=["fold", "decode"]
)
def test_states_do_not_travel_where_programs_cannot_store_at_peers(spec: Overlap) -> None:
    sizes = {"M": 4, "N": 64, "B": 3, "S": 132, "Q": 8, "G": 2, "D": 16}
    machine = topologies.load("l20-pcie", 2)
    with pytest.raises(NotOnThisMachine, match="the links of l20-pcie carry none") as caught:
        spec.plan_for(machine, {name: size for name, size in sizes.items() if name in spec.spec.symbols()}, "bf16", {})
    assert "Plan it for another machine" in str(caught.value) and "pin" not in str(caught.value)
    alone = spec_of("sums", "whole").plan_for(machine, {"M": 4, "N": 64}, "bf16", {})
    assert run_emulated(alone, lowering.emit(alone)).equal


def test_kinds_of_inputs_in_a_self_check_are_no_names_of_values() -> None:
    kinds = re.findall(r"if name in ([A-Z]+):", _CHECKS)
    assert "ELEMENTS" in kinds
    assert all(safe_name(one) != one for one in kinds)
