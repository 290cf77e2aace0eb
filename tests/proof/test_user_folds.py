"""The proof of folds of users: elements that are left out, seen twice or in another order, and parts that are mixed up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import topologies
from tests.pipeline.fold_specs import spec_of
from tests.proof.planted import Change, refuted
from tilelink.ir.schedule import Schedule
from tilelink.proof.verify import verify
from tilelink.schedule.index import Index, Number, rank
from tilelink.schedule.memory import Region
from tilelink.schedule.steps import Compute, For, Load, Step, Store

_PARTS = ("top", "weight", "picked")


def scheduled(kind: str, how: str, splits: int = 2) -> Schedule:
    spec = spec_of(kind, how)
    sizes = {"M": 9 if how in ("scattered", "alone") else 10, "N": 84}
    pins = {f"{spec.spec.outputs[0]}.fold": "4x8x1/1w1s", f"{spec.spec.outputs[0]}.splits": str(splits)}
    found = spec.plan_for(topologies.load("laptop-mesh", 3), sizes, "bf16", pins)
    proof = verify(found)
    assert proof.proved, proof.findings
    return found


def loops(variable: str, change: Callable[[For], For]) -> Change:
    return lambda step: (change(step),) if isinstance(step, For) and step.variable == variable else (step,)


def computes(op: str, change: Callable[[Compute], Compute]) -> Change:
    return lambda step: (change(step),) if isinstance(step, Compute) and step.op == op else (step,)


def accesses(kind: type[Load] | type[Store], name: str, change: Callable[[Region], Region]) -> Change:
    def changed(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Load | Store) and isinstance(step, kind) and step.region.buffer == name:
            return (replace(step, region=change(step.region)),)
        return (step,)

    return changed


def started(dim: int, by: Callable[[Number], Number]) -> Callable[[Region], Region]:
    def change(region: Region) -> Region:
        start = list(region.start)
        start[dim] = by(start[dim])
        return replace(region, start=tuple(start))

    return change


def argument(place: int, value: str | float | Index | int) -> Callable[[Compute], Compute]:
    def change(step: Compute) -> Compute:
        operands = list(step.operands)
        operands[place] = value
        return replace(step, operands=tuple(operands))

    return change


# of the parameters x, labels, m, n, num_m, num_n, first_n, TILE_M, TILE_N
_FIRST, _END = 6, 5
BUGS: dict[str, Change] = {
    "the last state is not merged": loops("state", lambda one: replace(one, count=one.count - 1)),
    "only the first state is": loops("state", lambda one: replace(one, count=1)),
    "states in reverse": accesses(Load, "out_0_top_state", started(1, lambda state: 5 - state)),
    "one state twice": accesses(Load, "out_0_picked_state", started(1, lambda state: state * 0)),
    "no last block": loops("block", lambda one: replace(one, count=one.count - 1)),
    "the first block again": loops("block", lambda one: replace(one, let=(("n", Index("begins") * 8),))),
    "blocks that overlap": loops("block", lambda one: replace(one, let=(("n", (Index("begins") + Index("block")) * 4),))),
    "blocks with gaps": loops("block", lambda one: replace(one, let=(("n", (Index("begins") + Index("block")) * 16),))),
    "told of the first block": computes("cross_entropy", argument(3, Index("begins") * 8)),
    "given the first block": accesses(Load, "x", started(1, lambda n: Index("begins") * 8)),
    "a block of half the width": computes("cross_entropy", argument(8, 4)),
    "a block too many": loops("block", lambda one: replace(one, count=one.count + 1)),
    "another beginning": computes("full", lambda one: replace(one, operands=(0.0,))),
    "the later state first": computes("merge_weights", lambda one: replace(one, operands=(*one.operands[3:], *one.operands[:3]))),
    "parts are swapped": computes("merge_weights", argument(0, "weight")),
    "its own state twice": computes("merge_weights", lambda one: replace(one, operands=(*_PARTS, *_PARTS))),
    "a part of the block is lost": computes("merge_weights", argument(5, "picked")),
    "elements of rank 0": computes("cross_entropy", argument(_FIRST, 0)),
    "elements of the next rank": computes("cross_entropy", argument(_FIRST, (rank + 1) * 28)),
    "an element fewer": computes("cross_entropy", argument(_END, 27)),
    "other labels": accesses(Load, "labels", started(0, lambda row: row + 1)),
    "other rows": accesses(Load, "x", started(0, lambda row: row * 0)),
    "weights in the place of tops": accesses(Store, "out_0_weight_state", lambda one: replace(one, buffer="out_0_top_state")),
    "in the place of the next state": accesses(Store, "out_0_top_state", started(1, lambda state: state + 1)),
    "to one rank only": accesses(Store, "out_0_top_state", lambda one: replace(one, at=rank)),
    "rows of another tile": accesses(Load, "out_0_weight_state", started(2, lambda row: row + 1)),
    "lse in the place of the loss": computes("loss_of", lambda one: replace(one, op="lse_of", operands=("top", "weight"))),
    "of the wrong parts": computes("loss_of", argument(0, "weight")),
    "of the last state only": computes("loss_of", lambda one: replace(one, operands=("more_top", "more_weight", "more_picked"))),
    "a part as it is": computes("lse_of", lambda one: replace(one, op="copy", operands=("top",))),
}  # fmt: skip


@pytest.mark.quick(2)
@pytest.mark.parametrize("bug", BUGS)
def test_a_wrong_fold_is_refuted(bug: str) -> None:
    assert refuted(scheduled("losses", "all"), BUGS[bug])


@pytest.mark.quick(1)
@pytest.mark.parametrize("bug", ["a row further", "to the first rank"])
def test_a_wrong_scatter_is_refuted(bug: str) -> None:
    part = "out_total_state"
    changes = {
        "a row further": accesses(Store, part, started(2, lambda row: row + 1)),
        "to the first rank": accesses(Store, part, lambda one: replace(one, at=one.at * 0)),
    }
    assert refuted(scheduled("norms", "scattered"), changes[bug])


_ALONE: dict[str, Change] = {
    "the last split is not merged": loops("state", lambda one: replace(one, count=one.count - 1)),
    "the mean of more": computes("rsqrt_of_mean", argument(1, 85)),
    "counted as on the next rank": computes("rms", argument(2, 8)),
    "the sum as it is": computes("rsqrt_of_mean", lambda one: replace(one, op="copy", operands=("total",))),
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("bug", _ALONE)
def test_a_wrong_fold_of_own_elements_is_refuted(bug: str) -> None:
    assert refuted(scheduled("norms", "alone"), _ALONE[bug])


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", ["losses", "norms", "recurrences"])
@pytest.mark.parametrize("how", ["all", "scattered", "alone", "whole"])
@pytest.mark.parametrize("splits", [1, 3])
def test_what_is_planned_is_proved(kind: str, how: str, splits: int) -> None:
    scheduled(kind, how, splits)
