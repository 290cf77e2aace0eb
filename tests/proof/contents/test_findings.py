"""Mistakes of steps, one for each thing that `tilelink.proof.contents` says. Numbers agree: what it refutes is wrong.

`tests/proof/contents/test_mutants.py` asks the other way round, of mutants that nobody chose.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import topologies
from tests.mutation.subjects import subject
from tests.pipeline import test_pool as pools
from tests.pipeline.operators import GEMM_RS
from tests.proof.contents.test_mutants import Shapes, right
from tests.proof.test_refuted import AG_CE, AR_LIBRARY, MLP_SHARED, RS_CE, RS_FUSED, planned, planned_library
from tests.schedule.edits import Change, computes, edit, fields, loads, region, stores
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.schedule import Schedule as Planned
from tilelink.ir.spec import BoundSpec
from tilelink.proof.bug_class import BugClass
from tilelink.proof.contents.check import contents
from tilelink.proof.findings import Finding
from tilelink.schedule.index import Index, rank
from tilelink.schedule.instance import instantiated
from tilelink.schedule.interpreter import NotInterpreted
from tilelink.schedule.memory import Access, Buffer, Memory
from tilelink.schedule.roles import Phase, Schedule
from tilelink.schedule.steps import Call, Compute, For, Load, Move, Step, Store
from tilelink.schedule.walk import mapped, with_bodies

LOW = {"M": 16, "K": 64, "N": 64}  # no tile of 16 rows can be shifted into a part of 8
LOW_PARTS = {"tile": "16x16x16/4w2s", "mover": "CopyEngine()", "transfer": "push"}

BASES: dict[str, Callable[[], Planned]] = {
    "ag": lambda: planned(*AG_CE),
    "rs": lambda: planned(*RS_CE),
    "low parts": lambda: GEMM_RS.plan_for(topologies.load("laptop-switch", 2), LOW, "bf16", LOW_PARTS),
    "rs fused": lambda: planned(*RS_FUSED),
    "ar": lambda: planned(*AR_LIBRARY),
    "mlp": lambda: planned(*MLP_SHARED),
    "gather": planned_library,
    "reduce": lambda: subject("all-reduce, library"),
    "scatter": lambda: subject("scatter, library matmul"),
    "parts": lambda: subject("gather, library matmul"),
    "pool": lambda: pools.planned(2, pools.SCHEDULES["one kernel"]),
    "user": lambda: subject("user op"),
}
k, m, n = Index("k"), Index("m"), Index("n")


@cache
def base(name: str) -> tuple[Schedule, BoundSpec]:
    schedule = BASES[name]()
    return instantiated(elaborated(schedule)), schedule.spec


def buffer(of: str, **values: object) -> Change:
    return fields(Buffer, lambda one: one.name == of, **values)


def without(chosen: Callable[[Step], bool]) -> Change:
    def change(schedule: Schedule) -> Schedule:
        found = with_bodies(schedule, lambda body: mapped(body, lambda one: () if chosen(one) else (one,)))
        assert found != schedule
        return found

    return change


def rounds(count: int) -> Change:
    """Of the loop over k."""
    return fields(For, lambda one: one.variable == "k_tile", count=count)


def doubled(op: str) -> Change:
    """Each of these steps once more."""

    def change(one: Step) -> tuple[Step, ...]:
        return (one, one) if isinstance(one, Compute) and one.op == op else (one,)

    return lambda schedule: with_bodies(schedule, lambda body: mapped(body, change))


def behind_loads(buffer: str, op: str) -> Change:
    """The tile that is loaded turned, for instance."""

    def change(one: Step) -> tuple[Step, ...]:
        loaded = isinstance(one, Load) and one.region.buffer == buffer
        return (one, Compute((one.result,), op, (one.result,))) if loaded else (one,)  # type: ignore[union-attr]

    return lambda schedule: with_bodies(schedule, lambda body: mapped(body, change))


def operand(number: int, **values: object) -> Change:
    def change(one: Call) -> Call:
        return replace(
            one, operands=tuple(region(r, **values) if at == number else r for at, r in enumerate(one.operands))
        )

    return edit(Call, change)


def result(**values: object) -> Change:
    return edit(Call, lambda one: replace(one, results=tuple(region(r, **values) for r in one.results)))


def moved(**values: object) -> Change:
    """Targets of moves with other fields."""
    return edit(Move, lambda one: replace(one, target=tuple(region(r, **values) for r in one.target)))


def before(what: Callable[[Step], bool], *steps: Step) -> Change:
    """`steps` in front of each step of which `what` is true."""

    def change(schedule: Schedule) -> Schedule:
        found = with_bodies(schedule, lambda body: mapped(body, lambda one: (*steps, one) if what(one) else (one,)))
        assert found != schedule
        return found

    return change


def stored(of: str) -> Callable[[Step], bool]:
    return lambda one: isinstance(one, Store) and one.region.buffer == of


def computed(op: str) -> Callable[[Step], bool]:
    return lambda one: isinstance(one, Compute) and one.op == op


CASES: dict[str, tuple[str, Change, str]] = {
    # buffers
    "no buffer of the output": ("ag", buffer("out", name="result"), "there is no buffer of that name"),
    "an output in local memory": ("ag", buffer("out", memory=Memory.LOCAL), "it lies in local memory"),
    "an output of another shape": ("ag", buffer("out", shape=(192, 48)), "it is [192, 48] bf16, and out is [192, 32]"),
    "a tile that is left out": (
        "ag",
        fields(Phase, lambda one: one.count == 24, count=23),
        "nothing makes a part of it",
    ),
    "elements of another place": ("ag", stores("out", start=(None, 16 - n)), "other elements lie there"),
    "a summand as the sum": ("rs fused", without(computed("add")), "it is y, not the sum of y over the ranks"),
    "a tile of another value": ("rs", fields(Store, stored("out"), value="left"), "it is x, not the sum of y"),
    "a part that nobody has sent": (
        "ag",
        loads("x_full", start=(rank, None, None)),
        "nothing that is known lies in x_full",
    ),
    "two parts for one": ("rs", loads("y_parts", extent=(2, None, None)), "y_parts holds different things there"),
    "parts to the wrong slot": (
        "ag",
        moved(start=((rank + 1) % 3, None, None)),
        "nothing that is known lies in x_full there",
    ),
    "more than the tile holds": ("ag", loads("w", extent=(None, 8)), "it stores more than the tile holds of out"),
    "a tile for two parts": (
        "rs",
        stores("y_staged", extent=(2, None, None)),
        "y has fewer dimensions than what it is stored to",
    ),
    "all tiles to one part": (
        "rs",
        stores("y_staged", start=(0, None, None)),
        "it stores y where something else is stored in the same call",
    ),
    # loops
    "rounds that begin late": (
        "ag",
        loads("w", start=(k + 16, None)),
        "out: other columns of the left operand than rows of the right one",
    ),
    "a round too few": ("ag", rounds(1), "out: not all products are added up, or some twice"),
    "products that are added twice": ("ag", doubled("dot"), "not all products are added up, or some twice"),
    "rounds that leave columns out": ("ag", loads("x", start=(None, k * 2)), "do not go through it piece by piece"),
    "rounds in other pieces": (
        "ag",
        loads("w", start=(k // 2, None), extent=(8 + k, None)),
        "rounds go through x_full and w in other pieces",
    ),
    # what is computed
    "another right operand": ("ag", computes("dot", operands=("left", "left", "out")), "it is x, not w"),
    "a turned operand": (
        "ag",
        behind_loads("w", "trans"),
        "rows and columns of w are not where the product needs them",
    ),
    "nothing is multiplied": ("ag", without(computed("dot")), "what is stored is no value of the spec"),
    "a function of what is not there yet": ("mlp", without(computed("dot")), "it has no value yet"),
    "an operand of another rank": ("rs", loads("x", at=(rank + 1) % 3), "it is x of another rank"),
    "a summand twice": ("rs fused", doubled("add"), "y is added 2 times"),
    "a summand of one rank alone": ("ar", loads("y_staged", at=rank), "the summand of rank 0 of y is added 3 times"),
    "the sum once more": (
        "rs",
        before(stored("out"), Compute(("out",), "add", ("out", "out"))),
        "the sum of y over the ranks is no summand of one rank",
    ),
    "a summand of another value": (
        "rs",
        before(stored("out"), Compute(("out",), "add", ("out", "left"))),
        "the spec has no add",
    ),
    "other elements of a summand": ("ar", loads("y_staged", start=(None, 16 - n)), "other elements lie there"),
    "elements of different places": (
        "rs",
        loads("y_parts", start=(None, None, 16 - n)),
        "other elements of y are added",
    ),
    "another function": ("mlp", computes("silu", op="relu"), "the spec has no relu"),
    "one operand twice": ("mlp", computes("mul", operands=("silu_out", "silu_out")), "it is silu_out, not up"),
    "an operand too few": ("mlp", computes("mul", operands=("silu_out",)), "hidden has 2 operands, not 1"),
    "an operand that no step makes": (
        "mlp",
        without(lambda one: isinstance(one, Compute) and one.results == ("up",)),
        "no step makes a tile of up",
    ),
    "operands of different places": (
        "mlp",
        loads("w_up", start=(None, n + 8), extent=(None, 24)),
        "it takes other elements of up than of the operand before",
    ),
    "a product on top of an operand": (
        "rs",
        computes("dot", operands=("left", "right", "left")),
        "products are added to something else",
    ),
    "a name of nothing": ("rs", computes("copy", operands=("nothing",)), "nothing is no tile"),
    "half of a tile": (
        "rs",
        fields(Compute, computed("copy"), op="halves", results=("out", "other")),
        "it stores more than the tile holds of the sum of y",
    ),
    "half of an operand": (
        "rs",
        before(computed("dot"), Compute(("left", "other"), "halves", ("left",))),
        "other columns of the left operand than rows of the right one",
    ),
    # functions of users
    "a function that counts from elsewhere": (
        "user",
        edit(Load, lambda one: replace(one, origin=(1, *one.origin[1:])), lambda one: one.region.buffer == "x"),
        "x is not where it counts from along m",
    ),
    "a function of a part of an axis": ("user", loads("x", extent=(None, 32)), "it is given a part of x"),
    "a function of fewer rows": (
        "user",
        loads("x", extent=(8, None)),
        "it stores more than the tile holds of out",
    ),
    "a function of a part of an axis, by its number": (
        "user",
        edit(
            Compute,
            lambda one: replace(one, operands=(*one.operands[:6], Index("rank") * 0 + 32, *one.operands[7:])),
            lambda one: len(one.operands) > 6,
        ),
        "it runs over another number of elements along k than there are",
    ),
    "a function that begins within an axis": (
        "user",
        edit(Load, lambda one: replace(one, origin=(one.origin[0], 8)), lambda one: one.region.buffer == "x"),
        "the address does not begin where x does along k",
    ),
    "a function without an address": (
        "user",
        edit(Load, lambda one: replace(one, origin=()), lambda one: one.region.buffer == "w"),
        "w is no address",
    ),
    # libraries
    "a call of an unknown function": (
        "gather",
        fields(Call, function="broadcast"),
        "nobody knows what broadcast makes",
    ),
    "a gather into no whole parts": (
        "gather",
        result(extent=(191, None)),
        "it does not lie in as many parts as there are ranks",
    ),
    "a gather of a part": ("gather", operand(0, extent=(32, None)), "it stores more than the tile holds of x"),
    "a matmul with a part": ("scatter", operand(1, extent=(None, 16)), "it multiplies with a part of"),
    "a matmul of fewer rows": ("scatter", operand(0, extent=(16, None)), "is larger there than what is made"),
    "another matmul": ("scatter", fields(Call, function="matmul_transposed"), "the spec has no such matmul"),
    "a gather for a sum": ("reduce", fields(Call, function="all_gather"), "it is y, not the sum of y"),
}

# what numbers do not show: dtypes, what hardware masks, and which place of a pool
UNSEEN: dict[str, tuple[str, Change, str]] = {
    "an output of another dtype": (
        "ag",
        buffer("out", dtype="fp32"),
        "it is [192, 32] fp32, and out is [192, 32] bf16",
    ),
    "parts of another dtype": ("rs", buffer("y_parts", dtype="fp32"), "y_parts is fp32, y bf16"),
    "rows over the end of a part": (
        "low parts",
        stores("y_staged", extent=(None, 16, None), access=Access.DESCRIPTOR),
        "its rows run over the end of a part",
    ),
    "rows that a descriptor cannot leave out": (
        "rs",
        stores("y_staged", access=Access.DESCRIPTOR),
        "a descriptor cannot leave out rows of it",
    ),
    "a place that has not been looked up": (
        "pool",
        without(lambda one: isinstance(one, Load) and one.region.buffer == "out_places"),
        "the place of out on that rank has not been looked up",
    ),
    "the place of another rank": (
        "pool",
        loads("out_places", start=((Index("peer") + 1) % 2,)),
        "the place of out on that rank has not been looked up",
    ),
    "a place that nobody has told": ("pool", without(stored("out_places")), "nobody has told the place"),
}


def facts(steps: Schedule, spec: BoundSpec) -> list[str]:
    found: list[Finding] = []
    with suppress(KeyError):  # of a buffer that is not there, which has been said by then
        found.extend(contents(steps, spec))
    assert all(one.bug is BugClass.WRONG_PLACE and one.where for one in found)
    return [one.fact for one in found]


def right_numbers(steps: Schedule, spec: BoundSpec) -> bool:
    try:
        with np.errstate(all="ignore"):
            return right(steps, spec)
    except (Shapes, KeyError, NotInterpreted, TypeError, ValueError):  # of shapes, names and operands that mean nothing
        return False


@pytest.mark.parametrize("name", BASES)
def test_nothing_is_said_of_right_steps(name: str) -> None:
    steps, spec = base(name)
    assert not facts(steps, spec)


@pytest.mark.parametrize("case", CASES)
def test_a_planted_mistake_is_named(case: str) -> None:
    name, change, fact = CASES[case]
    steps, spec = base(name)
    found = facts(change(steps), spec)
    assert any(fact in one for one in found), found
    assert not right_numbers(change(steps), spec)


@pytest.mark.parametrize("case", UNSEEN)
def test_what_numbers_do_not_show_is_named(case: str) -> None:
    name, change, fact = UNSEEN[case]
    steps, spec = base(name)
    found = facts(change(steps), spec)
    assert any(fact in one for one in found), found
    assert right_numbers(change(steps), spec)
