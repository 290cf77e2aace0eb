"""Warps beside the groups that attend push keys and values: emulated ranks, mistakes that the proof finds, what is refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

import lowering
import topologies
from tests.pipeline.attention_runs import farthest
from tests.pipeline.attention_specs import How, spec_of
from tests.schedule.edits import Change, both, edit, fields
from tilelink.adversary.small import small_form
from tilelink.compiled.check import check_compiled
from tilelink.elaborate.schedule import elaborated
from tilelink.errors import TileLinkError
from tilelink.ir.movers import CopyWarps
from tilelink.ir.schedule import Schedule
from tilelink.proof.rules import broken_rules
from tilelink.proof.verify import verify
from tilelink.runtime.load import load_source
from tilelink.runtime.run import run_emulated
from tilelink.schedule.index import Index, rank
from tilelink.schedule.instance import instantiated
from tilelink.schedule.memory import Access
from tilelink.schedule.roles import Phase, Role, Sms
from tilelink.schedule.roles import Schedule as Steps
from tilelink.schedule.steps import If, Move, Notify, Wait
from topologies.topology import Topology


def machine(ranks: int, sms: int = 132, name: str = "h100-nvswitch") -> Topology:
    found = topologies.load(name, ranks)
    return replace(found, gpu=replace(found.gpu, num_sms=sms))


def planned(ranks: int, how: How, *, sms: int = 3, dtype: str = "bf16", **sizes: int) -> Schedule:
    known = {"B": 1, "S": ranks * 128, "Q": 4, "G": 2, "D": 64} | sizes
    pins = {"mover": "CopyWarps()", "tile": f"128x{known['D']}x64/4w2s2g"}
    return spec_of("gathered", how).plan_for(machine(ranks, sms), known, dtype, pins)


@pytest.mark.quick(2)
@pytest.mark.parametrize("target", ["triton", "triton-distributed"])
@pytest.mark.parametrize("how", [How(), How(causal=True), How(soft_cap=4.0), How(causal=True, zigzag=True)], ids=str)
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_it_is_right_call_after_call(ranks: int, how: How, target: str) -> None:
    schedule = planned(ranks, how, S=ranks * (256 if how.zigzag else 128))
    assert verify(schedule).proved
    source = lowering.emit(schedule, target)
    assert ("_moves, (" in source) is (target == "triton")  # elsewhere programs push before their tiles
    assert run_emulated(schedule, source, calls=3).equal


@pytest.mark.quick(1)
@pytest.mark.parametrize("seed", range(24))
def test_each_element_is_what_the_definition_says(seed: int) -> None:
    rng = random.Random(seed)
    causal, ranks, dtype = rng.random() < 0.6, rng.choice([2, 2, 3, 8]), rng.choice(["bf16", "fp16"])
    how = How(causal=causal, soft_cap=rng.choice([0.0, 5.0]), zigzag=causal and rng.random() < 0.4)
    few = ranks == 8
    heads, rows = 1 if few else rng.choice([1, 2, 3]), (1 if few else rng.choice([1, 2])) * (256 if how.zigzag else 128)
    sizes = {"S": ranks * rows, "G": heads, "Q": heads * rng.choice([1, 2]), "D": 64 if few else rng.choice([64, 128])}
    schedule = planned(ranks, how, sms=rng.choice([1, 2, 5]), dtype=dtype, **sizes)
    assert farthest(schedule, lowering.emit(schedule), how, seed) <= 1


@pytest.mark.quick(1)
@pytest.mark.parametrize("sequences", [2, 3])
def test_sequences_lie_one_behind_the_other(sequences: int) -> None:
    schedule = planned(2, How(causal=True), B=sequences, S=256)
    assert verify(schedule).proved
    assert run_emulated(schedule, lowering.emit(schedule), calls=2).equal


@pytest.mark.quick(1)
@pytest.mark.parametrize("rows", [144, 200])
@pytest.mark.parametrize("how", [How(), How(causal=True)], ids=str)
def test_tokens_need_not_fill_tiles(how: How, rows: int) -> None:
    sizes = {"B": 1, "S": 2 * rows, "Q": 2, "G": 2, "D": 64}
    schedule = spec_of("gathered", how).plan_for(machine(2), sizes, "bf16", {"mover": "CopyWarps()"})
    assert verify(schedule).proved
    assert farthest(schedule, lowering.emit(schedule), how, rows) <= 1


def test_keys_alone_may_go_so() -> None:
    pins = {"keys.mover": "CopyWarps()", "values.mover": "CopyEngine()", "tile": "128x64x64/4w2s2g"}
    sizes = {"B": 1, "S": 256, "Q": 2, "G": 2, "D": 64}
    schedule = spec_of("gathered", How()).plan_for(machine(2, 3), sizes, "bf16", pins)
    assert verify(schedule).proved
    assert run_emulated(schedule, lowering.emit(schedule), calls=2).equal


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 8])
@pytest.mark.parametrize("how", [How(), How(causal=True)], ids=str)
def test_of_real_sizes_it_is_chosen_proved_and_compiled_in_order(how: How, ranks: int) -> None:
    sizes = {"B": 1, "S": 4096 * ranks, "Q": 32, "G": 32, "D": 128}
    schedule = spec_of("gathered", how).plan_for(machine(ranks), sizes, "bf16", {})
    assert {one.mover for one in schedule.exchanges} == {CopyWarps()}
    assert verify(schedule).proved
    if ranks == 2:
        report = check_compiled(load_source(lowering.emit(schedule), "attention"), ranks, "sm_90")
        assert not report.findings and not report.unknown


def test_all_warps_together_are_no_faster_than_the_link() -> None:
    sizes = {"B": 1, "S": 4096, "Q": 32, "G": 32, "D": 128}
    for name in ("h100-nvswitch", "h800-nvswitch"):
        link = machine(2, name=name)
        schedule = spec_of("gathered", How()).plan_for(link, sizes, "bf16", {"mover": "CopyWarps()"})
        (kernel,) = schedule.kernels()
        us = {comm.pace / 1750 for comm in kernel.comm}.pop()
        assert len(kernel.comm) * 16 * 256 * 132 / us / 1e3 == pytest.approx(link.link_gb_per_s(0, 1), rel=0.05)


@pytest.mark.quick(1)
@pytest.mark.parametrize("heads", [32, 1, 2])
def test_a_small_form_has_the_same_choices(heads: int) -> None:
    link, sizes = machine(2), {"B": 1, "S": 4096, "Q": 32, "G": heads, "D": 128}
    operator = spec_of("gathered", How(causal=True))
    small = small_form(operator.spec, operator.plan_for(link, sizes, "bf16", {"mover": "CopyWarps()"}), link)
    assert {one.mover for one in small.exchanges} == {CopyWarps()}
    assert dict(small.spec.sizes)["D"] == 64 and dict(small.spec.sizes)["S"] <= 512
    assert run_emulated(small, lowering.emit(small), calls=2).equal


# ---- mistakes ----

BUGS: dict[str, Change] = {
    "no wait for keys": edit(Wait, lambda one: replace(one, until=0), lambda one: one.signal == "keys_arrived"),
    "a move less is awaited": edit(
        Wait, lambda one: replace(one, until=one.until - 1), lambda one: one.signal == "values_arrived"
    ),
    "the word of another head": edit(
        Notify, lambda one: replace(one, index=(one.index[0], 0)), lambda one: one.signal == "keys_arrived"
    ),
    "told before it has gone": edit(
        Phase,
        lambda one: replace(one, body=one.body[::-1]),
        lambda one: any(isinstance(step, Move) for step in one.body),
    ),
    "the part of another rank": edit(
        Move,
        lambda one: replace(one, target=tuple(replace(to, start=((rank + 1) % 3, *to.start[1:])) for to in one.target)),
    ),
    "the rows of another move": edit(
        Move,
        lambda one: replace(one, source=tuple(replace(of, start=(0, *of.start[1:])) for of in one.source)),
    ),
    "values for keys": edit(Move, lambda one: replace(one, source=tuple(replace(of, buffer="v") for of in one.source))),
    "nobody waits for the last call": edit(
        Role,
        lambda one: replace(one, phases=one.phases[1:]),
        lambda one: one.inside,
    ),
    "a peer left out": edit(
        Phase,
        lambda one: replace(one, count=one.count // 2),
        lambda one: any(isinstance(step, Move) for step in one.body),
    ),
}


def refuted(schedule: Schedule, change: Change) -> bool:
    return not verify(schedule, change(instantiated(elaborated(schedule)))).proved


@pytest.mark.parametrize("bug", BUGS)
def test_a_mistake_is_found(bug: str) -> None:
    schedule = planned(3, How(), S=768)
    assert not refuted(schedule, lambda steps: steps)
    assert refuted(schedule, BUGS[bug])


def test_a_causal_mask_that_sends_too_little_is_found() -> None:
    nearer = edit(If, lambda one: replace(one, left=Index("max", (Index("peer") - rank - 1, 0))))
    schedule = planned(3, How(causal=True))
    assert not refuted(schedule, lambda steps: steps)
    assert refuted(schedule, nearer)


RULES: dict[str, tuple[Callable[[Steps], Steps], str]] = {
    "programs of another number": (
        edit(Role, lambda one: replace(one, engine=replace(one.engine, programs=2)), lambda one: one.inside),
        "which has others, or no groups",
    ),
    "by pointers": (
        edit(
            Move,
            lambda one: replace(one, target=tuple(replace(to, access=Access.POINTER) for to in one.target)),
        ),
        "it stores by pointers",
    ),
    "no whole pieces": (
        edit(Move, lambda one: replace(one, target=tuple(replace(to, extent=(1, 24, 64)) for to in one.target))),
        "no whole pieces of 16 rows",
    ),
    "programs of their own": (both(fields(Sms, lambda one: one.inside, inside=False)), "do not fit on 3 SMs"),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_kept(rule: str) -> None:
    schedule = planned(2, How())
    change, says = RULES[rule]
    assert any(says in one.fact for one in broken_rules(change(instantiated(elaborated(schedule))), schedule.machine))


# ---- what is refused ----


@pytest.mark.parametrize(
    ("kind", "sizes", "pins", "where", "says"),
    [
        ("gathered", {"D": 32}, {}, "h100-nvswitch", "a multiple of 128 bytes"),
        ("gathered", {}, {"tile": "128x64x64/8w2s"}, "h100-nvswitch", "two warpgroups"),
        ("gathered", {}, {"compute": "library"}, "h100-nvswitch", "no tile loop"),
        ("gathered", {}, {"keys.chunks": "1"}, "h100-nvswitch", "keys.chunks"),
        ("gathered", {}, {}, "mi300x-full-mesh", "CopyWarps()"),
    ],
)
def test_what_cannot_go_so_is_refused(
    kind: str, sizes: dict[str, int], pins: dict[str, str], where: str, says: str
) -> None:
    known = {"B": 1, "S": 256, "Q": 2, "G": 2, "D": 64} | sizes
    with pytest.raises(TileLinkError) as caught:
        spec_of(kind, How()).plan_for(topologies.load(where, 2), known, "bf16", {"mover": "CopyWarps()"} | pins)
    assert says in str(caught.value)
