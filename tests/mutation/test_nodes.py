"""Mutants of steps: each changes one field by its type, and all differ. What the judge calls equivalent is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace

import pytest

from tests.mutation.subjects import SUBJECTS, subject
from tests.schedule.operators import OPERATORS, all_reduce_ll, gemm_rs, queue
from tests.schedule.test_interpreter import OPS
from tilelink.elaborate.schedule import elaborated
from tilelink.mutation.judges import SAME_MEANING, JudgeSteps
from tilelink.mutation.mutant import StepMutant, Verdict
from tilelink.mutation.nodes import mutants
from tilelink.mutation.sites import Site, at, sites
from tilelink.schedule.index import Index, replaced
from tilelink.schedule.instance import instantiated, reindexed
from tilelink.schedule.memory import Memory
from tilelink.schedule.roles import Schedule, Sms
from tilelink.schedule.steps import For, Load, Notify, Step, Store, Wait
from tilelink.schedule.walk import mapped, with_bodies


def by_operator(schedule: Schedule) -> dict[str, list[StepMutant]]:
    found: dict[str, list[StepMutant]] = {}
    for mutant in mutants(schedule):
        found.setdefault(mutant.operator, []).append(mutant)
    return found


def placed(before: object, after: object) -> list[tuple[object, object]]:
    """The innermost values that differ."""
    if before == after:
        return []
    alike = type(before) is type(after)
    if alike and is_dataclass(before) and not isinstance(before, type):
        pairs = [(getattr(before, one.name), getattr(after, one.name)) for one in fields(before)]
    elif alike and isinstance(before, tuple) and isinstance(after, tuple) and len(before) == len(after):
        pairs = list(zip(before, after, strict=True))
    else:
        return [(before, after)]
    inner = [one for pair in pairs for one in placed(*pair)]
    return inner if len(inner) == 1 else [(before, after)]


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.quick(4)
def test_mutants_differ_in_one_place(name: str) -> None:
    original = OPERATORS[name]().schedule
    found = list(mutants(original))
    assert original not in {mutant.schedule for mutant in found}
    assert len({mutant.schedule for mutant in found}) == len(found) > 400
    assert {(one.mesh, one.tables, one.dims) for one in (mutant.schedule for mutant in found)} == {
        (original.mesh, original.tables, original.dims)
    }
    for mutant in found[::40]:
        assert len(placed(original, mutant.schedule)) == 1, mutant.site


def test_every_field_that_holds_something_is_mutated() -> None:
    """A new field of the language needs no line of the product, unless its type is prose or the name that it binds."""
    prose = {"title", "variable", "name", "dtype"}
    schedules = [OPERATORS[name]().schedule for name in ("ag_gemm", "gemm_rs", "flash_decode")]
    found = {operator.partition(":")[0] for schedule in schedules for operator in by_operator(schedule)}
    for site in (site for schedule in schedules for site in sites(schedule, object)):
        assert is_dataclass(site.node)
        if site.path[0] not in ("buffers", "signals", "launches") or isinstance(site.node, Index):
            continue  # the spec's, or a part of a number
        for field in fields(site.node):
            value = getattr(site.node, field.name)
            node = is_dataclass(value) and not isinstance(value, Index)  # whose own fields are mutated
            if not node and value not in ((), None) and field.name not in prose:
                assert f"{type(site.node).__name__}.{field.name}" in found, site.label


def test_what_mutants_do() -> None:
    found = by_operator(gemm_rs(2).schedule)

    def sites_of(operator: str) -> list[str]:
        return [mutant.site for mutant in found[operator]]

    first = "launches[0] Launch main, roles[0] Role gemm, phases[0] Phase, body[0] Wait done"
    assert f"{first}, until: call - 1 -> call - 1 + 1" in sites_of("Wait.until: one more")
    assert f"{first}, until: call - 1 -> call" in sites_of("Wait.until: an argument alone")
    assert f"{first}, until: call - 1 -> 1 - call" in sites_of("Wait.until: exchanged")
    assert f"{first}, signal: done -> arrived" in sites_of("Wait.signal: another name")
    assert "buffers[0] Buffer x, memory: input -> output" in sites_of("Buffer.memory: another member")
    assert any(site.endswith("pipelining: Plain -> Prefetch") for site in sites_of("Phase.pipelining: another kind"))
    assert any(site.endswith("to: call -> None") for site in sites_of("Notify.to: absent"))
    assert any("body: (Wait done) -> ()" in site for site in sites_of("Phase.body: dropped"))
    assert any("body: (Wait done) -> (Wait done, Wait done)" in site for site in sites_of("Phase.body: doubled"))
    assert any(site.endswith("covers: (parts) -> ()") for site in sites_of("Wait.covers: dropped"))
    assert not any("title" in operator or "dtype" in operator for operator in found)


def test_deterministic() -> None:
    assert list(mutants(queue().schedule)) == list(mutants(queue().schedule))


def test_a_site_puts_one_node() -> None:
    schedule = queue().schedule
    site = next(iter(sites(schedule, Wait)))
    assert site.label == "launches[0] Launch main, roles[0] Role produce, phases[0] Phase, body[0] Wait free"
    waits = [one.node for one in sites(schedule, Wait)]
    assert [one.node for one in sites(site.drop(), Wait)] == waits[1:]
    assert [one.node for one in sites(site.put_all(site.node, site.node), Wait)] == [waits[0], *waits]
    assert site.put(site.node) == schedule
    swapped = site.swap_with_next()
    assert at(swapped, site.path[:-1]) == (site.siblings[1], site.siblings[0], *site.siblings[2:])


# ---- the judge ---------------------------------------------------------------------------------------------------------


def judged(name: str, change: Callable[[Schedule], Schedule]) -> Verdict:
    operator = OPERATORS[name]()
    tables = {table: values.numpy() for table, values in operator.tables().items()}
    judge = JudgeSteps(operator.schedule, tables, OPS)
    return judge(StepMutant("planted", name, change(operator.schedule)))


def without(kind: type, number: int = 0) -> Callable[[Schedule], Schedule]:
    return lambda schedule: list(sites(schedule, kind))[number].drop()


def changed(kind: type, number: int = 0, **new: object) -> Callable[[Schedule], Schedule]:
    def change(schedule: Schedule) -> Schedule:
        site: Site[Schedule, Step] = list(sites(schedule, kind))[number]
        return site.put(replace(site.node, **new))  # type: ignore[arg-type]

    return change


def renamed(schedule: Schedule) -> Schedule:
    """The loop over parts counts in another variable."""

    def change(step: Step) -> tuple[Step, ...]:
        step = reindexed(step, lambda index: replaced(index, {"step": Index("turn")}))
        return (replace(step, variable="turn") if isinstance(step, For) and step.variable == "step" else step,)

    return with_bodies(schedule, lambda body: mapped(body, change))


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.quick(3)
def test_the_original_is_equivalent(name: str) -> None:
    assert judged(name, lambda schedule: schedule) == Verdict(False, SAME_MEANING, "")


@pytest.mark.parametrize(
    ("name", "change", "by"),
    [
        ("gemm_rs", without(Wait, 1), "proof"),
        ("gemm_rs", without(Notify), "proof"),
        ("queue", changed(Wait, 0, until=0), "proof"),
        ("queue", changed(Wait, 1, signal="free"), "proof"),
        ("ag_gemm", changed(Wait, 1, covers=()), "proof"),
        ("all_reduce_ll", without(Store), "proof"),
        ("gemm_rs", changed(Load, 0, result="b"), "interpreter"),
        (
            "moe",
            lambda schedule: changed(Load, 2, region=list(sites(schedule, Load))[3].node.region)(schedule),
            "interpreter",
        ),
        ("gemm_rs", renamed, SAME_MEANING),
        ("queue", lambda schedule: replace(schedule, signals=schedule.signals[::-1]), SAME_MEANING),
        ("gemm_rs", changed(Sms, 0, programs=3), SAME_MEANING),
    ],
)
def test_planted(name: str, change: Callable[[Schedule], Schedule], by: str) -> None:
    verdict = judged(name, change)
    assert (verdict.by, verdict.killed) == (by, by != SAME_MEANING), verdict


def test_a_function_that_nobody_knows_is_some_function() -> None:
    """The user's tile op has no meaning here: what it is given and where its result goes are checked all the same."""
    schedule = instantiated(elaborated(subject("user op")))
    judge = JudgeSteps(schedule)
    assert judge(StepMutant("none", "", schedule)).by == SAME_MEANING
    loads = list(sites(schedule, Load))
    moved = replace(loads[1].node, region=replace(loads[1].node.region, start=(0, 0)))
    assert judge(StepMutant("planted", "", loads[1].put(moved))).killed


def test_a_size_of_nothing_is_judged() -> None:
    """The proof once divided by the extent."""
    schedule = all_reduce_ll().schedule
    none = by_operator(schedule)["Buffer.shape: nothing"]
    assert all(JudgeSteps(schedule)(mutant).killed for mutant in none)


@pytest.mark.parametrize("label", SUBJECTS)
@pytest.mark.quick(2)
def test_planned_schedules_lose_their_waits(label: str) -> None:
    """Of a wait that is dropped, or awaits less, none is called equivalent unless another one covers it."""
    schedule = instantiated(elaborated(subject(label)))
    judge = JudgeSteps(schedule)
    assert not judge(StepMutant("none", "", schedule)).killed
    waits = list(sites(schedule, Wait))
    if waits:
        dropped = [judge(StepMutant("drop", site.label, site.drop())).killed for site in waits]
        assert sum(dropped) >= 0.5 * len(dropped), [site.label for site in waits]
    outputs = {one.name for one in schedule.buffers if one.memory is Memory.OUTPUT or one.for_caller}
    stores = [site for site in sites(schedule, Store) if site.node.region.buffer in outputs]
    assert all(judge(StepMutant("drop", site.label, site.drop())).killed for site in stores)
