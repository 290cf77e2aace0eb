"""Bugs of attention over ranks: keys that are lost, taken twice, or seen by the wrong rows, and state that is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import topologies
from tests.pipeline.attention_specs import How, spec_of
from tests.proof.planted import Change, refuted
from tilelink.ir.schedule import Schedule
from tilelink.proof.verify import verify
from tilelink.schedule.index import Index, Number, greatest, rank
from tilelink.schedule.memory import Region
from tilelink.schedule.steps import Compute, For, Load, Step, Wait

CAUSAL, WINDOW, ALL = How(causal=True), How(True, 40), How()
TOKENS = {"gathered": 270, "cross": 90, "given": 270}


def planned(how: How, kind: str = "gathered", tokens: int = 0, **pins: object) -> Schedule:
    sizes = {"B": 1, "S": tokens or TOKENS[kind], "Q": 4, "G": 2, "D": 16}
    if kind == "cross":
        sizes["T"] = 150
    pins = {"tile": "32x16x16/4w2s", "mover": "CopyEngine()", **pins} if kind != "given" else {"tile": "32x16x16/4w2s"}
    return spec_of(kind, how).plan_for(topologies.load("laptop-switch", 3), sizes, "bf16", pins)


def computed(op: str, new: Callable[[Compute], tuple[Step, ...]]) -> Change:
    return lambda step: new(step) if isinstance(step, Compute) and step.op == op else (step,)


def operand(at: int, new: Callable[[object], object]) -> Callable[[Compute], tuple[Step, ...]]:
    def change(step: Compute) -> tuple[Step, ...]:
        operands = list(step.operands)
        operands[at] = new(operands[at])  # type: ignore[call-overload]
        return (replace(step, operands=tuple(operands)),)

    return change


def loop(op: str, new: Callable[[For], For]) -> Change:
    def change(step: Step) -> tuple[Step, ...]:
        folds = isinstance(step, For) and isinstance(step.body[-1], Compute) and step.body[-1].op == op
        return (new(step),) if isinstance(step, For) and folds else (step,)

    return change


def shifted(step: For, by: Number) -> For:
    return replace(step, let=tuple((name, index + by) for name, index in step.let))


def loaded(name: str, new: Callable[[Region], Region]) -> Change:
    def change(step: Step) -> tuple[Step, ...]:
        return (replace(step, region=new(step.region)),) if isinstance(step, Load) and step.result == name else (step,)

    return change


def moved(region: Region, dim: int, by: int) -> Region:
    start = list(region.start)
    start[dim] = start[dim] + by
    return replace(region, start=tuple(start))


def parts(new: Callable[[For], For]) -> Change:
    return lambda step: (new(step),) if isinstance(step, For) and step.variable == "k_place" else (step,)


BUGS: dict[str, tuple[How, Change]] = {
    "a tile of keys less": (CAUSAL, loop("attend", lambda step: replace(step, count=step.count - 1))),
    "a tile of keys more": (CAUSAL, loop("attend", lambda step: replace(step, count=step.count + 1))),
    "keys from the second tile on": (ALL, loop("attend", lambda step: shifted(step, 16))),
    "no keys behind the whole tiles": (CAUSAL, loop("attend_some", lambda step: replace(step, count=0))),
    "a part less": (CAUSAL, parts(lambda step: replace(step, count=step.count - 1))),
    "a part more": (CAUSAL, parts(lambda step: replace(step, count=step.count + 1))),
    "the same part in each round": (ALL, parts(lambda step: replace(step, let=((step.let[0][0], (Index("rank") + 1) % 3),)))),
    "no mask": (CAUSAL, computed("attend_some", lambda step: (replace(step, op="attend", operands=step.operands[:8]),))),
    "a mask one key further": (CAUSAL, computed("attend_some", operand(8, lambda ahead: ahead + 1))),  # type: ignore[operator]
    "a mask one key too early": (CAUSAL, computed("attend_some", operand(8, lambda ahead: ahead - 1))),  # type: ignore[operator]
    "no window": (WINDOW, computed("attend_some", operand(10, lambda _: 0))),
    "a window that is one wider": (WINDOW, computed("attend_some", operand(10, lambda _: 41))),
    "keys that do not exist": (ALL, computed("attend_some", operand(9, lambda _: 16))),
    "values of other keys": (ALL, loaded("values_tile", lambda region: moved(region, -2, 16))),
    "values of another head": (ALL, loaded("values_tile", lambda region: moved(region, -1, 16))),
    "keys of another head": (ALL, loaded("keys_tile", lambda region: moved(region, -1, 16))),
    "queries of other rows": (CAUSAL, loaded("queries_tile", lambda region: moved(region, -2, 32))),
    "another scale": (ALL, computed("attend", operand(6, lambda _: 0.5))),
    "keys for values": (ALL, computed("attend", operand(5, lambda _: "keys_tile"))),
    "the largest score is not carried on": (ALL, computed("attend", operand(0, lambda _: "fresh"))),
    "weights begin anew": (ALL, computed("attend", lambda step: (Compute(("out_weight",), "zeros", shape=(32, 1)), step))),
    "sums begin anew": (ALL, computed("attend", lambda step: (Compute(("out",), "zeros", shape=(32, 16)), step))),
    "a round twice": (ALL, computed("attend", lambda step: (step, step))),
    "no mean at the end": (ALL, computed("attended", lambda step: ())),
    "a mean of the weights": (ALL, computed("attended", operand(1, lambda _: "out_top"))),
    "a start above scores": (ALL, computed("full", operand(0, lambda _: 0.0))),
    "no wait": (ALL, lambda step: () if isinstance(step, Wait) and set(step.covers) & {"keys", "values"} else (step,)),
    "a wait for another part": (
        ALL,
        lambda step: (
            (replace(step, index=(Index("rank"), *step.index[1:])),)
            if isinstance(step, Wait) and "values" in step.covers
            else (step,)
        ),
    ),
}  # fmt: skip


@pytest.mark.quick(8)
@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_refuted(name: str) -> None:
    how, change = BUGS[name]
    assert refuted(planned(how), change)


GROUPS = {"tile": "128x16x64/4w2s2g", "mover": "CopyEngine()", "cut": "columns", "chunks": "2"}


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", ["a tile of keys more", "a part less", "no mask", "values of another head", "no wait"])
def test_so_is_it_where_warpgroups_share_tiles(name: str) -> None:
    how, change = BUGS[name]
    sizes, machine = {"B": 1, "S": 768, "Q": 4, "G": 2, "D": 16}, topologies.load("h100-nvswitch", 3)
    schedule = spec_of("gathered", how).plan_for(machine, sizes, "bf16", GROUPS)
    assert verify(schedule).proved
    assert refuted(schedule, change)


@pytest.mark.parametrize("by", [-1, 1])
def test_a_wait_for_other_heads_is_refuted(by: int) -> None:
    sizes, machine = {"B": 1, "S": 768, "Q": 8, "G": 4, "D": 16}, topologies.load("h100-nvswitch", 3)
    schedule = spec_of("gathered", ALL).plan_for(machine, sizes, "bf16", {**GROUPS, "chunks": "4"})

    def other(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Wait) and "values" in step.covers:
            part, chunk = step.index
            return (replace(step, index=(part, (chunk + by) % 4)),)
        return (step,)

    assert refuted(schedule, other)


@pytest.mark.parametrize(
    "name", ["a tile of keys less", "keys that do not exist", "another scale", "no mean at the end"]
)
def test_so_is_it_where_all_ranks_have_the_queries(name: str) -> None:
    how, change = BUGS[name]
    assert refuted(planned(ALL if how is CAUSAL else how, "cross"), change)


@pytest.mark.quick(4)
@pytest.mark.parametrize("how", [ALL, CAUSAL, WINDOW])
@pytest.mark.parametrize("tokens", [288, 270, 21, 3])
def test_right_schedules_are_proved(how: How, tokens: int) -> None:
    assert verify(planned(how, tokens=tokens)).proved


ZIGZAG = How(causal=True, zigzag=True)
ZIGZAG_BUGS: dict[str, Change] = {
    "a tile of keys more": loop("attend", lambda step: replace(step, count=step.count + 1)),
    "a block of tokens less": loop("attend", lambda step: replace(step, count=greatest(step.count - 3, 0))),
    "both blocks of ranks before": parts(lambda step: replace(step, let=((step.let[0][0], (rank - 1) % 3),))),
    "a part less": parts(lambda step: replace(step, count=step.count - 1)),
    "no mask": BUGS["no mask"][1],
    "a mask one key further": BUGS["a mask one key further"][1],
    "queries of other rows": loaded("queries_tile", lambda region: moved(region, -2, 32)),
    "values of other keys": loaded("values_tile", lambda region: moved(region, -2, 16)),
    "no wait": BUGS["no wait"][1],
}


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", ZIGZAG_BUGS)
def test_so_is_it_where_tokens_lie_in_zigzag(name: str) -> None:
    schedule = planned(ZIGZAG, tokens=288, tile="16x16x16/4w2s")
    assert verify(schedule).proved
    assert refuted(schedule, ZIGZAG_BUGS[name])


@pytest.mark.parametrize("how", [CAUSAL, ZIGZAG])
def test_tokens_in_order_and_in_zigzag_differ(how: How) -> None:
    """What is right for one of them is refuted for the other."""
    schedule = planned(how, tokens=288, tile="16x16x16/4w2s")
    other = planned(ZIGZAG if how is CAUSAL else CAUSAL, tokens=288, tile="16x16x16/4w2s")
    assert not verify(replace(schedule, spec=other.spec)).proved
