"""The same function of values with the same elements: what a tile is called tells which result it belongs to."""

from __future__ import annotations

from dataclasses import replace

import pytest

import lowering
import tilelink
import topologies
from tests.pipeline.user_ops import OPS
from tests.proof.planted import refuted
from tilelink import Partial, Shard, Tensor, dims
from tilelink.declaration import Overlap
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.schedule import Schedule
from tilelink.proof.verify import verify
from tilelink.runtime.run import run_emulated
from tilelink.schedule.instance import instantiated
from tilelink.schedule.memory import Region
from tilelink.schedule.steps import Load, Step

M, K, N = dims("M K N")


@tilelink.overlap
def of_sums(x: Tensor(M, K, placement=Shard(1)), w: Tensor(K, N, placement=Shard(0))) -> tuple[Tensor, Tensor]:  # type: ignore[valid-type]
    y = x @ w
    return tilelink.silu(tilelink.all_reduce(y)), tilelink.silu(tilelink.reduce_scatter(y, dim=0))


@tilelink.overlap
def of_parts(x: Tensor(M, K, placement=Shard(0)), w: Tensor(K, N)) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[valid-type]
    return tilelink.silu(tilelink.all_gather(x, dim=0)) @ w, tilelink.silu(x), tilelink.all_gather(x, dim=0) @ w


@tilelink.overlap
def of_matmuls(x: Tensor(M, K, placement=Shard(0)), w: Tensor(K, N)) -> tuple[Tensor, Tensor]:  # type: ignore[valid-type]
    return tilelink.all_gather(x, dim=0) @ w, x @ w


@tilelink.overlap
def of_slices(x: Tensor(2 * M, K), w: Tensor(K, N)) -> tuple[Tensor, Tensor]:  # type: ignore[valid-type]
    return tilelink.silu(x[M:]), tilelink.silu(x)


@tilelink.overlap
def of_gathers(x: Tensor(2 * M, K, placement=Shard(1))) -> tuple[Tensor, Tensor]:  # type: ignore[valid-type]
    return OPS["softmax"](tilelink.all_gather(x, dim=1)), OPS["softmax"](tilelink.all_gather(x[M:], dim=1))


@tilelink.overlap
def of_shares(y: Tensor(M, K, placement=Partial())) -> tuple[Tensor, Tensor]:  # type: ignore[valid-type]
    return OPS["by_position"](tilelink.all_reduce(y)), tilelink.reduce_scatter(y, dim=1)


SPECS = [of_sums, of_parts, of_matmuls, of_slices, of_gathers]


def planned(spec: Overlap, **pins: str) -> Schedule:
    names = {
        str(name) for value in spec.spec.inputs for dim in value.shape for name in ("M", "K", "N") if name in str(dim)
    }
    sizes = {name: size for name, size in {"M": 24, "K": 32, "N": 24}.items() if name in names}
    return spec.plan_for(topologies.load("laptop-switch", 4), sizes, "fp32", pins)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.spec.name)
def test_each_result_is_found(spec: Overlap) -> None:
    schedule = planned(spec)
    assert verify(schedule).proved
    assert run_emulated(schedule, lowering.emit(schedule), calls=2).equal


@pytest.mark.parametrize("mover", ["CopyEngine()", "CommSms(2)"])
def test_sums_in_parts_are_one_value(mover: str) -> None:
    """The op counts through the parts of all ranks, and a reduce_scatter has sums of the same."""
    schedule = planned(of_shares, shots="2", protocol="simple", mover=mover)
    assert "[0 : +4, 0 : +" in str(schedule) and verify(schedule).proved
    assert run_emulated(schedule, lowering.emit(schedule), calls=2).equal


def test_parts_with_rows_in_between_are_not_one_behind_the_other() -> None:
    """The op would take what lies behind the rows of a part for rows of the next one."""
    schedule = planned(of_shares, shots="2", protocol="simple", mover="CommSms(2)")
    steps = instantiated(elaborated(schedule))
    longer = (replace(one, shape=(4, 8, 32)) if one.name == "y_sum" else one for one in steps.buffers)
    proof = verify(schedule, replace(steps, buffers=tuple(longer)))
    assert verify(schedule, steps).proved
    assert any("does not hold parts one behind the other" in one.fact for one in proof.findings), proof.lines()


def test_parts_of_columns_are_not_one_behind_the_other() -> None:
    """In memory they are rows: an op that counts through them would take rows of other parts for its own."""

    def straight(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Load) and step.region.buffer == "x_full" and step.region.extent[-1] == 32:
            return (replace(step, region=Region("x_full_whole", (0, 0, 0), (4, 48, 8))),)
        return (step,)

    assert refuted(planned(of_gathers), straight)


@pytest.mark.parametrize("buffer", ["y_parts", "matmul_out_sum_2_from_parts_staged"])
def test_rows_of_others_are_refuted(buffer: str) -> None:
    """A row further up, the function makes other elements of the same result, or some of another rank's."""

    def one_row_up(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Load) and step.region.buffer == buffer:
            *lead, row, col = step.region.start
            return (replace(step, region=replace(step.region, start=(*lead, row - 1, col))),)
        return (step,)

    assert refuted(planned(of_sums), one_row_up)
