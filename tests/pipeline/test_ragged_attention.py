"""Tiles that warpgroups share, of tokens that are no whole tiles: emulated ranks against the definition, proof, mistakes."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

import lowering
import topologies
from tests.pipeline.attention_runs import farthest
from tests.pipeline.attention_specs import How, sizes_of, spec_of
from tests.schedule.edits import Change, edit, loads
from tilelink.adversary.small import small_form
from tilelink.compiled.check import check_compiled
from tilelink.elaborate.schedule import elaborated
from tilelink.errors import TileLinkError
from tilelink.ir.schedule import Schedule
from tilelink.proof.rules import broken_rules
from tilelink.proof.verify import verify
from tilelink.runtime.emulated import EmulatedRun
from tilelink.runtime.load import load_source
from tilelink.runtime.run import run_emulated
from tilelink.schedule.instance import instantiated
from tilelink.schedule.memory import Access
from tilelink.schedule.roles import Phase
from tilelink.schedule.steps import Compute, For, Load, Move, Store, Wait


def planned(
    kind: str,
    ranks: int,
    how: How,
    *,
    sms: int = 3,
    keys: int = 128,
    dtype: str = "bf16",
    mover: str = "CopyEngine()",
    **sizes: int,
) -> Schedule:
    found = topologies.load("h100-nvswitch", ranks)
    machine = replace(found, gpu=replace(found.gpu, num_sms=sms))
    known = {"B": 1, "S": ranks * 200, "T": ranks * 136, "Q": 4, "G": 2, "D": 64} | sizes
    pins = {"tile": f"128x{known['D']}x{keys}/4w2s2g"}
    if kind in ("gathered", "cross"):
        pins["mover"] = mover
    operator = spec_of(kind, how)
    return operator.plan_for(machine, sizes_of(operator, known), dtype, pins)


def shared(schedule: Schedule) -> bool:
    return any(kernel.compute is not None and kernel.compute.cooperative for kernel in schedule.kernels())


@pytest.mark.quick(1)
@pytest.mark.parametrize("target", ["triton", "triton-distributed"])
@pytest.mark.parametrize("how", [How(), How(causal=True), How(causal=True, soft_cap=4.0)], ids=str)
@pytest.mark.parametrize("mover", ["CopyEngine()", "CopyWarps()"])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_it_is_right_call_after_call(ranks: int, mover: str, how: How, target: str) -> None:
    schedule = planned("gathered", ranks, how, sms=3 if target == "triton" else 16, mover=mover)
    assert shared(schedule) and verify(schedule).proved
    source = lowering.emit(schedule, target)
    assert ("load_tile_of_part(" in source) is (target == "triton")
    assert run_emulated(schedule, source, calls=3).equal


@pytest.mark.quick(1)
@pytest.mark.parametrize("seed", range(30))
def test_each_element_is_what_the_definition_says(seed: int) -> None:
    rng = random.Random(seed)
    causal, ranks, dtype = rng.random() < 0.6, rng.choice([2, 2, 3, 5, 8]), rng.choice(["bf16", "fp16"])
    how = How(causal=causal, soft_cap=rng.choice([0.0, 5.0]))
    kind = rng.choice(["gathered", "gathered", "gathered", "given", "heads"]) if not causal else "gathered"
    heads = ranks if kind == "heads" else rng.choice([1, 2])
    rows = rng.randint(8, 160 if ranks > 3 else 330)
    sizes = {"S": rows if kind == "heads" else ranks * rows, "G": heads, "Q": heads * rng.choice([1, 2])}
    sizes["D"] = rng.choice([64, 128])
    keys = 128 if causal else rng.choice([64, 128])
    mover = rng.choice(["CopyEngine()", "CopyWarps()"])
    schedule = planned(kind, ranks, how, sms=rng.choice([1, 2, 5]), keys=keys, dtype=dtype, mover=mover, **sizes)
    assert shared(schedule)
    assert farthest(schedule, lowering.emit(schedule), how, seed) <= 1


@pytest.mark.quick(1)
@pytest.mark.parametrize("how", [How(lse=True), How(causal=True, lse=True, base2=True)], ids=str)
def test_logarithms_of_rows_that_exist_are_stored(how: How) -> None:
    schedule = planned("gathered", 2, how)
    assert shared(schedule) and verify(schedule).proved
    assert run_emulated(schedule, lowering.emit(schedule), calls=2).equal


def test_what_lies_behind_a_part_is_no_number_and_is_not_seen() -> None:
    """With a weight of 0 it would make none either."""
    schedule = planned("gathered", 2, How(causal=True), S=2 * 72, Q=1, G=1)
    run = EmulatedRun(schedule, lowering.emit(schedule), 1)
    run.call()
    run.finish()
    ((_, outputs),) = run.calls
    parts = run.operators[1].values.local  # type: ignore[attr-defined]
    assert parts[0].isfinite().all() and parts[1].isnan().all()
    assert all(out.isfinite().all() for (out,) in outputs)


@pytest.mark.slow
@pytest.mark.parametrize("mover", ["CopyEngine()", "CopyWarps()"])
@pytest.mark.parametrize("how", [How(), How(causal=True)], ids=str)
def test_of_real_sizes_it_is_proved_and_compiled_in_order(how: How, mover: str) -> None:
    schedule = planned("gathered", 2, how, sms=132, mover=mover, S=1606, Q=64, G=8, D=128)
    assert verify(schedule).proved
    report = check_compiled(load_source(lowering.emit(schedule), "attention"), 2, "sm_90")
    assert not report.findings and not report.unknown


@pytest.mark.parametrize("how", [How(), How(causal=True)], ids=str)
def test_an_edit_that_breaks_the_first_loop_is_refused(how: How) -> None:
    source = lowering.emit(planned("gathered", 2, how, S=2 * 320))
    edited = source.replace("TILE_K = tl.constexpr(128)", "TILE_K = tl.constexpr(64)")
    with pytest.raises(AssertionError, match="has one round"):
        exec(compile(edited, "edited", "exec"), {"__name__": "edited"})


# ---- mistakes ----

BUGS: dict[str, Change] = {
    "a descriptor that runs on into the next part": edit(
        Load,
        lambda one: replace(one, region=replace(one.region, access=Access.DESCRIPTOR)),
        lambda one: one.region.access is Access.PARTS,
    ),
    "keys that do not exist": edit(
        Compute,
        lambda one: replace(one, operands=(*one.operands[:9], 128, *one.operands[10:])),
        lambda one: one.op == "attend_some",
    ),
    "a tile too few": edit(For, lambda one: replace(one, count=0), lambda one: one.count == 1 and _masked(one)),
    "the diagonal a row too far": edit(
        Compute,
        lambda one: replace(one, operands=(*one.operands[:8], one.operands[8] + 1, *one.operands[9:])),  # type: ignore[operator]
        lambda one: one.op == "attend_some" and not isinstance(one.operands[8], int),
    ),
}


BUGS_OF_WARPS: dict[str, Change] = {
    "a move less is awaited": edit(
        Wait, lambda one: replace(one, until=one.until - 1), lambda one: one.signal == "values_arrived"
    ),
    "the last rows stay": edit(
        Phase,
        lambda one: replace(one, count=one.count - 1),
        lambda one: any(isinstance(step, Move) for step in one.body),
    ),
    "rows of the next part": edit(
        Move,
        lambda one: replace(one, target=tuple(replace(to, extent=(1, 128, 64)) for to in one.target)),
    ),
}


@pytest.mark.parametrize("bug", BUGS_OF_WARPS)
def test_a_mistake_of_warps_is_found(bug: str) -> None:
    schedule = planned("gathered", 2, How(), mover="CopyWarps()")
    steps = instantiated(elaborated(schedule))
    assert verify(schedule, steps).proved
    assert not verify(schedule, BUGS_OF_WARPS[bug](steps)).proved


def _masked(loop: For) -> bool:
    return any(isinstance(step, Compute) and step.op == "attend_some" for step in loop.body)


@pytest.mark.parametrize("bug", BUGS)
def test_a_mistake_is_found(bug: str) -> None:
    schedule = planned("gathered", 2, How(causal=True))
    steps = instantiated(elaborated(schedule))
    assert verify(schedule, steps).proved
    assert not verify(schedule, BUGS[bug](steps)).proved


RULES: dict[str, tuple[Change, str]] = {
    "stores": (
        edit(Store, lambda one: replace(one, region=replace(one.region, access=Access.PARTS))),
        "descriptors of parts load",
    ),
    "a matrix without parts": (loads("k", access=Access.PARTS), "descriptors of parts load"),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_kept(rule: str) -> None:
    schedule = planned("gathered", 2, How())
    change, says = RULES[rule]
    assert any(says in one.fact for one in broken_rules(change(instantiated(elaborated(schedule))), schedule.machine))


# ---- what is refused ----


@pytest.mark.parametrize(
    ("how", "sizes", "pins", "says"),
    [
        (How(causal=True), {}, {"tile": "128x64x64/4w2s2g"}, "no whole tiles that a causal mask cuts alike"),
        (How(), {"B": 2}, {}, "not moved through descriptors"),
        (How(causal=True, window=100), {}, {}, "tiles behind a window"),
        (How(causal=True), {}, {"mover": "OwnKernel()"}, "cuts alike"),
    ],
)
def test_what_cannot_be_shared_is_refused(how: How, sizes: dict[str, int], pins: dict[str, str], says: str) -> None:
    known = {"B": 1, "S": 400, "Q": 4, "G": 2, "D": 64} | sizes
    asked = {"mover": "CopyEngine()", "tile": "128x64x128/4w2s2g"} | pins
    with pytest.raises(TileLinkError) as caught:
        spec_of("gathered", how).plan_for(topologies.load("h100-nvswitch", 2), known, "bf16", asked)
    assert says in str(caught.value)


@pytest.mark.parametrize("mover", ["CopyEngine()", "CopyWarps()"])
@pytest.mark.parametrize("how", [How(), How(causal=True)], ids=str)
def test_a_small_form_is_as_ragged(how: How, mover: str) -> None:
    link = topologies.load("h200-nvswitch", 2)
    schedule = planned("gathered", 2, how, sms=132, mover=mover, S=1606, Q=8, G=4, D=128)
    small = small_form(spec_of("gathered", how).spec, schedule, link)
    rows = dict(small.spec.sizes)["S"] // 2
    assert shared(small) and 128 < rows <= 600 and rows % 128
    assert {one.mover for one in small.exchanges} == {one.mover for one in schedule.exchanges}
