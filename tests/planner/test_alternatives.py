"""What is worth measuring besides the schedule that the planner picks."""

from __future__ import annotations

from typing import Annotated

import pytest

import tilelink
import topologies
from tests.planner.operators import K, M, N, ag_gemm, gemm_ar, gemm_rs, mlp
from tilelink import Shard, Tensor
from tilelink.declaration import Overlap
from tilelink.ir.movers import Library
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import bind
from tilelink.planner.alternatives import alternatives, library_schedule
from tilelink.proof.verify import verify

H200 = topologies.load("h200-nvswitch", 4)
MANY = 20


def found(operator: Overlap, m: int, n: int, k: int) -> tuple[Schedule, list[Schedule]]:
    best = operator.plan_for(H200, {"M": m, "N": n, "K": k})
    return best, alternatives(H200, best, MANY)


def differs(schedule: Schedule, best: Schedule) -> dict[str, str]:
    """Choices that are others than in `best`, but for those that hardly matter."""
    held = dict(best.choices)
    return {
        name: value
        for name, value in schedule.choices
        if held.get(name) != value and name.split(".")[1] not in ("group", "prefetch", "tail")
    }


@pytest.mark.parametrize(("operator", "m", "n", "k"), [(gemm_rs, 8192, 4096, 11008), (ag_gemm, 2048, 14336, 4096)])
@pytest.mark.quick(1)
@pytest.mark.slow
def test_each_differs_from_the_best_where_no_earlier_one_does(operator: Overlap, m: int, n: int, k: int) -> None:
    """First in another field than the earlier ones, then in another value."""
    best, others = found(operator, m, n, k)
    fields, values, of_values = set[str](), set[tuple[str, str]](), list[Schedule]()
    for schedule in others:
        different = differs(schedule, best)
        if of_values or different.keys() <= fields:
            of_values.append(schedule)
            assert different.keys() <= fields, "those that vary a field come first"
            assert not different.items() <= values
        fields |= different.keys()
        values |= different.items()
        assert verify(schedule).proved
        assert (
            operator.plan_for(H200, {"M": m, "N": n, "K": k}, pin=dict(schedule.choices)).launches == schedule.launches
        )
    of_fields = others[: len(others) - len(of_values)]
    assert min(len(of_fields), len(of_values)) >= 2
    for ones in (of_fields, of_values):
        times = [schedule.predicted_us for schedule in (best, *ones)]
        assert times == sorted(times)
        assert times[-1] <= 1.3 * best.predicted_us  # the model is not wrong by more


@pytest.mark.slow
def test_tiles_and_the_library_are_among_them() -> None:
    best, others = found(ag_gemm, 2048, 14336, 4096)
    assert any("out.tile" in differs(schedule, best) for schedule in others)
    best, others = found(gemm_rs, 8192, 4096, 11008)
    assert any(dict(schedule.choices)["y.compute"] == "library" for schedule in others)


def test_the_order_of_a_single_chunk_is_no_alternative() -> None:
    """Chunk by chunk is rank by rank then; on two ranks it was the first alternative, and took as long in other samples."""
    pair = topologies.load("h100-nvswitch", 2)
    best = ag_gemm.plan_for(pair, {"M": 8192, "N": 11008, "K": 4096})
    assert ("x_full.chunks", "1") in best.choices
    others = alternatives(pair, best, MANY)
    assert len(others) >= 3
    for schedule in others:
        same_chunks = ("x_full.chunks", "1") in schedule.choices
        assert differs(schedule, best).keys() != {"x_full.nest"} or not same_chunks, schedule.choices


@tilelink.overlap
def gated(
    x: Annotated[Tensor, (M, K), Shard(0)],
    w_gate: Annotated[Tensor, (K, N), Shard(1)],
    w_up: Annotated[Tensor, (K, N), Shard(1)],
) -> Tensor:
    x_full = tilelink.all_gather(x, dim=0)
    gate = tilelink.matmul(x_full, w_gate)
    up = tilelink.matmul(x_full, w_up)
    return tilelink.silu(gate) * up


@pytest.mark.slow
def test_a_loop_of_its_own_is_an_alternative_to_a_shared_one() -> None:
    best, others = found(gated, 2048, 14336, 4096)
    assert ("up.loop", "shared") in best.choices
    assert any(("up.loop", "own") in schedule.choices for schedule in others)


@pytest.mark.slow
def test_as_many_as_are_asked_for() -> None:
    best, others = found(gemm_rs, 8192, 4096, 11008)
    assert alternatives(H200, best, 2) == others[:2]
    assert alternatives(H200, best, 0) == []


SMALL = {"M": 256, "N": 512, "K": 128, "H": 128, "F": 512}


@pytest.mark.parametrize(
    ("operator", "matmuls", "calls"),
    [
        (ag_gemm, {"out"}, ["LibraryCollective", "LibraryOp"]),
        (gemm_rs, {"y"}, ["LibraryOp", "LibraryCollective"]),
        (gemm_ar, {"y"}, ["LibraryOp", "LibraryCollective"]),
        (
            mlp,
            {"gate", "up", "y"},
            ["LibraryCollective", "LibraryOp", "LibraryOp", "Kernel", "LibraryOp", "LibraryCollective"],
        ),
    ],
    ids=["ag_gemm", "gemm_rs", "gemm_ar", "mlp"],
)
def test_the_library_schedule_is_one_call_after_the_other(
    operator: Overlap, matmuls: set[str], calls: list[str]
) -> None:
    sizes = {name: SMALL[name] for name in operator.spec.symbols()}
    schedule = library_schedule(bind(operator.spec, sizes, 4, "bf16"), H200)
    assert schedule is not None
    assert schedule.by_library == matmuls
    assert all(how.mover == Library() for _, how in schedule.decided.collectives)
    assert [type(launch).__name__ for launch in schedule.launches] == calls
    assert not schedule.exchanges


@tilelink.overlap
def summed_columns(x: Annotated[Tensor, (M, K), Shard(1)], w: Annotated[Tensor, (K, N), Shard(0)]) -> Tensor:
    return tilelink.reduce_scatter(tilelink.matmul(x, w), dim=1)


def test_a_collective_without_a_library_call_has_no_library_schedule() -> None:
    """NCCL scatters rows."""
    assert library_schedule(bind(summed_columns.spec, {"M": 256, "N": 512, "K": 128}, 4, "bf16"), H200) is None
