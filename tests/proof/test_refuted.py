"""Schedules with one planted mistake: the proof names the class of the bug, the place and the signal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import TypeVar

import pytest

import topologies
from lowering import emit
from tests.planner.operators import ag_gemm, gemm_ar, gemm_rs, mlp
from tests.proof.changed_steps import OnSteps, proof_of, waits, words
from tests.proof.contents.test_mutants import right
from tilelink.declaration import Overlap
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.calls import LibraryCollective
from tilelink.ir.nodes import (
    AwaitPeers,
    Axis,
    Begin,
    Buffer,
    ComputeRole,
    CopyProgram,
    Exchange,
    Finish,
    Kernel,
    Machine,
    Memory,
    Publish,
)
from tilelink.ir.order import RankOrder, TileOrder
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import (
    Access,
    Apply,
    IfOwn,
    MatmulBody,
    Notify,
    Operand,
    Place,
    Store,
    SumParts,
    Wait,
)
from tilelink.mutation.sites import sites
from tilelink.proof.bug_class import BugClass
from tilelink.proof.verify import verify
from tilelink.schedule.instance import instantiated

N = TypeVar("N")
Change = Callable[[Schedule], Schedule]
TILE = "16x16x16/4w1s"


@cache
def planned(operator: str, mover: str, transfer: str, topology: str = "laptop-switch", **pins: str) -> Schedule:
    found: dict[str, tuple[Overlap, dict[str, int], dict[str, str]]] = {
        "ag": (ag_gemm, {"M": 3 * 64, "K": 32, "N": 96}, {"algorithm": "direct", "compute": "triton"}),
        "rs": (
            gemm_rs,
            {"M": 3 * 72, "K": 96, "N": 32},
            {"algorithm": "direct", "compute": "triton", "y.tile": TILE, "sum": "epilogue"},
        ),
        "ar": (gemm_ar, {"M": 3 * 64, "K": 96, "N": 32}, {"algorithm": "two-shot", "y.tile": TILE}),
        "ar joined": (
            gemm_ar,
            {"M": 3 * 64, "K": 96, "N": 32},
            {"algorithm": "two-shot", "y.tile": TILE, "sum": "epilogue", "out.tile": "16x16x0/4w1s"},
        ),
        "ar joined, other tiles": (
            gemm_ar,
            {"M": 3 * 64, "K": 96, "N": 32},
            {"algorithm": "two-shot", "y.tile": TILE, "sum": "epilogue", "out.tile": "32x16x0/4w1s"},
        ),
        "ar in place": (
            gemm_ar,
            {"M": 3 * 64, "K": 96, "N": 32},
            {"algorithm": "in-place", "y.tile": TILE, "sum": "epilogue", "y_parts.chunks": "2"},
        ),
        "mlp shared": (mlp, {"M": 3 * 32, "H": 32, "F": 96}, {"algorithm": "direct", "up.loop": "shared"}),
        "ar library": (gemm_ar, {"M": 3 * 64, "K": 96, "N": 32}, {"algorithm": "one-shot", "compute": "library"}),
    }
    overlap, sizes, base = found[operator]
    if operator == "ag":
        base = base | {"tile": TILE}
    chunks = {} if operator == "ar in place" else {"chunks": "2"}
    wanted = base | {"mover": mover, "transfer": transfer} | chunks | pins
    return overlap.plan_for(topologies.load(topology, 3), sizes, "bf16", wanted)


def each(kind: type[N], number: int, **fields: object) -> Change:
    """Fields of the `number`-th node of a kind replaced."""

    def change(schedule: Schedule) -> Schedule:
        found = list(sites(schedule, kind))
        return found[number].put(replace(found[number].node, **fields))  # type: ignore[type-var]

    return change


def matmuls(schedule: Schedule) -> list[MatmulBody]:
    return [site.node for site in sites(schedule, MatmulBody)]


def buffer(name: str, **fields: object) -> Change:
    def change(schedule: Schedule) -> Schedule:
        site = next(site for site in sites(schedule, Buffer) if site.node.name == name)
        return site.put(replace(site.node, **fields))  # type: ignore[arg-type]

    return change


def without(kind: type) -> Change:
    """All launches of a kind dropped."""
    return lambda schedule: replace(schedule, launches=tuple(x for x in schedule.launches if not isinstance(x, kind)))


def body(change: Callable[[tuple[object, ...]], tuple[object, ...]]) -> Change:
    """The steps of the first role changed."""

    def changed(schedule: Schedule) -> Schedule:
        found = next(iter(sites(schedule, ComputeRole)))
        return found.put(replace(found.node, body=change(found.node.body)))  # type: ignore[arg-type]

    return changed


AG_CE = ("ag", "CopyEngine()", "push")
AG_SM = ("ag", "CommSms(2)", "pull")
AG_PULL = ("ag", "CopyEngine()", "pull")
AG_PCIE = ("ag", "CopyEngine()", "push", "l20-pcie")
RS_CE = ("rs", "CopyEngine()", "push")
MLP_SHARED = ("mlp shared", "CopyEngine()", "push")
RS_FUSED = ("rs", "Fused()", "push")
AR_FUSED = ("ar", "Fused()", "push")
AR_LIBRARY = ("ar library", "Fused()", "pull")
AR_JOINED = ("ar joined", "Fused()", "push")
AR_JOINED_OTHERS = ("ar joined, other tiles", "Fused()", "push")
AR_PLACED = ("ar in place", "Fused()", "push")
AR_COPIED = ("ar in place", "CopyEngine()", "push")


CASES: dict[str, tuple[tuple[str, ...], Change, BugClass]] = {
    "peers that never meet": (AR_PLACED, each(Finish, 0, meets=False), BugClass.ORDERING),
    "peers that meet by epochs": (AR_PLACED, each(Finish, 0, turns=False), BugClass.ORDERING),
    "peers that are met before the last copies": (
        AR_COPIED,
        lambda schedule: each(CopyProgram, 1, tells_end=False)(schedule),
        BugClass.ORDERING,
    ),
    "a reader of what nobody says has arrived": (AG_CE, each(Exchange, 0, met=True), BugClass.CIRCLE),
    "an own part stored where all parts begin": (AR_COPIED, each(Store, 0, place=Place.HERE), BugClass.WRONG_PLACE),
    "a result that stays here": (AR_PLACED, each(Store, 0, place=Place.OWN), BugClass.WRONG_PLACE),
    "a result stored through a descriptor": (
        AR_PLACED,
        lambda schedule: next(
            site.put(replace(site.node, operand=replace(site.node.operand, access=Access.DESCRIPTOR)))
            for site in sites(schedule, Store)
            if site.node.operand.buffer == "out"
        ),
        BugClass.ASYNC_STORE,
    ),
    "a result put where a peer's caller still reads": (AR_PLACED, each(SumParts, 0, wait=None), BugClass.ORDERING),
    "a buffer too small": (RS_CE, buffer("y_parts", shape=(2, 72, 32)), BugClass.SLOTS),
    "no wait before a read": (AG_CE, body(lambda steps: steps[1:]), BugClass.ORDERING),
    "a kernel before the library call it reads from": (
        ("ag", "CopyEngine()", "push"),
        lambda schedule: replace(planned_library(), launches=tuple(reversed(planned_library().launches))),
        BugClass.ORDERING,
    ),
    "a signalled tile stored through a descriptor": (
        RS_CE,
        lambda schedule: next(
            site.put(replace(site.node, operand=replace(site.node.operand, access=Access.DESCRIPTOR)))
            for site in sites(with_whole_tiles(), Store)
            if site.node.operand.buffer == "y_staged"
        ),
        BugClass.ASYNC_STORE,
    ),
    "no next epoch": (AG_PCIE, without(Begin), BugClass.REUSE),
    "no next epoch at the end": (AG_CE, each(Finish, 0, turns=False), BugClass.CIRCLE),
    "the next epoch twice": (AG_PCIE, each(Finish, 0, turns=True), BugClass.LINK_ATOMICS),
    "copies that do not wait for the last call": (AG_CE, each(CopyProgram, 0, awaits_done=False), BugClass.REUSE),
    "programs that do not wait for the last call": (RS_FUSED, without(AwaitPeers), BugClass.REUSE),
    "a copy that peers may still pull": (AG_SM, without(AwaitPeers), BugClass.REUSE),
    "a library matmul over what peers may still pull": (AR_LIBRARY, each(Finish, 0, meets=False), BugClass.REUSE),
    "an end that is told behind what waits for it": (
        RS_CE,
        each(CopyProgram, 0, after_source=True),
        BugClass.CIRCLE,
    ),
    "no program to go on": (AR_JOINED, each(Kernel, 0, joined=True), BugClass.WRONG_PLACE),
    "an own part that other programs of the launch make": (
        AR_JOINED_OTHERS,
        each(Wait, 1, own=False),
        BugClass.ORDERING,
    ),
    "an own part that is never told of": (RS_FUSED, each(Wait, 0, own=True), BugClass.CIRCLE),
    "no program to carry it out": (AG_SM, each(AwaitPeers, 0, within=True), BugClass.REUSE),
    "more programs than SMs": (AG_CE, each(Machine, 0, num_sms=3), BugClass.RESIDENCY),
    "a tile that signals over a link without atomics": (
        RS_FUSED,
        each(Machine, 0, peer_atomics=False),
        BugClass.LINK_ATOMICS,
    ),
    "own tiles first where others wait for them": (
        RS_CE,
        each(TileOrder, 0, ranks=RankOrder(3, 3, 0)),
        BugClass.CIRCLE,
    ),
    "nobody moves the chunks": (AG_CE, without(CopyProgram), BugClass.CIRCLE),
    "nobody publishes what is pulled": (AG_PULL, without(Publish), BugClass.CIRCLE),
    "peers are never told": (AG_PCIE, without(Finish), BugClass.CIRCLE),
    "a launch behind the end of the call": (
        AG_CE,
        lambda schedule: replace(schedule, launches=(*schedule.launches[:-2], *schedule.launches[:-3:-1])),
        BugClass.CIRCLE,
    ),
    "chunks moved twice": (
        AG_CE,
        lambda schedule: replace(schedule, launches=(*schedule.launches[:1], *schedule.launches)),
        BugClass.REUSE,
    ),
    "rows of another axis waited for": (AG_CE, each(Wait, 0, rows="n"), BugClass.WAIT_TOO_LITTLE),
    "counted before stored": (
        RS_CE,
        lambda schedule: next(
            site.put(replace(site.node, others=tuple(reversed(site.node.others)))) for site in sites(schedule, IfOwn)
        ),
        BugClass.WAIT_TOO_LITTLE,
    ),
    "chunks counted along another axis": (RS_CE, each(Notify, 0, rows="n"), BugClass.CIRCLE),
    "stored to every peer": (
        RS_FUSED,
        lambda schedule: next(
            site.put(replace(site.node, place=Place.EVERY_PEER))
            for site in sites(schedule, Store)
            if site.node.place is Place.PEER
        ),
        BugClass.WRONG_PLACE,
    ),
    "raised at the wrong ranks": (RS_FUSED, each(Notify, 0, place=Place.EVERY_PEER), BugClass.SIGNAL_TOO_EARLY),
    "an order over fewer ranks": (AG_CE, each(RankOrder, 0, num_ranks=2), BugClass.WRONG_PLACE),
    "a part of another axis": (
        AG_CE,
        lambda schedule: next(
            site.put(replace(site.node, slot="n")) for site in sites(schedule, Operand) if site.node.slot == "m"
        ),
        BugClass.WRONG_PLACE,
    ),
    "local memory that peers write": (RS_FUSED, buffer("y_parts", memory=Memory.LOCAL), BugClass.WRONG_PLACE),
    "the wrong exchange": (AG_CE, each(Exchange, 0, rows=60), BugClass.WRONG_PLACE),
    "another function": (AR_FUSED, each(Apply, 0, function="relu"), BugClass.WRONG_PLACE),
    "another contracted axis": (AG_CE, each(MatmulBody, 0, axis="n"), BugClass.WRONG_PLACE),
    "the own part is not where it is looked for": (RS_CE, each(SumParts, 0, onto=""), BugClass.WRONG_PLACE),
    "a matmul in a loop that runs elsewhere": (MLP_SHARED, each(MatmulBody, 1, beside="y"), BugClass.WRONG_PLACE),
    "tiles that leave rows out": (AG_CE, each(Axis, 0, extent=48), BugClass.WRONG_PLACE),
}

# what planned nodes say and steps do not: no mistake, since files are printed from steps
SAME: dict[str, tuple[tuple[str, ...], Change]] = {
    "an own part that stays away": (AR_PLACED, each(Exchange, 1, own_copied=False)),
    "programs of another launch to go on": (AR_JOINED, each(Kernel, 1, warps=8)),
    "a matmul in a loop that loads another left operand": (
        MLP_SHARED,
        lambda schedule: each(MatmulBody, 1, left=replace(matmuls(schedule)[1].left, own=""))(schedule),
    ),
    "a matmul that counts on a wait that is not in the loop": (
        MLP_SHARED,
        lambda schedule: each(MatmulBody, 1, waits=(next(site.node for site in sites(schedule, Wait)),))(schedule),
    ),
    "a step between matmuls of one loop": (
        MLP_SHARED,
        lambda schedule: next(
            site.put(
                replace(site.node, body=tuple(sorted(site.node.body, key=lambda step: step in matmuls(schedule)[1:2])))
            )
            for site in sites(schedule, ComputeRole)
        ),
    ),
}

# other steps that are right too
RIGHT: dict[str, tuple[tuple[str, ...], Change]] = {
    "peers awaited that have been met": (
        AR_PLACED,
        lambda schedule: replace(schedule, launches=(AwaitPeers(within=True), *schedule.launches)),
    ),
    "copies that await peers that have been met": (AR_COPIED, each(CopyProgram, 0, awaits_done=True)),
    "an output where peers write that never comes together": (RS_FUSED, buffer("out", memory=Memory.SYMMETRIC)),
    "peers awaited by epochs, as over links without atomics": (AG_SM, each(Finish, 0, turns=False, within=False)),
    "copies whose end no program awaits": (
        AG_CE,
        lambda schedule: each(CopyProgram, 0, tells_end=False)(schedule),
    ),
}


def planned_library() -> Schedule:
    sizes = {"M": 192, "K": 32, "N": 96}
    return ag_gemm.plan_for(topologies.load("laptop-switch", 3), sizes, "bf16", {"algorithm": "library"})


def with_whole_tiles() -> Schedule:
    sizes = {"M": 3 * 64, "K": 96, "N": 32}
    pins = {"algorithm": "direct", "compute": "triton", "y.tile": TILE, "mover": "CopyEngine()", "transfer": "push"}
    return gemm_rs.plan_for(topologies.load("laptop-switch", 3), sizes, "bf16", pins)


@pytest.mark.parametrize("case", CASES)
def test_class_of_a_planted_mistake(case: str) -> None:
    base, change, bug = CASES[case]
    schedule = planned(*base)
    assert verify(schedule).proved
    proof = verify(change(schedule))
    found = [finding.bug for finding in proof.findings]
    assert bug in found, f"{schedule}\n{chr(10).join(proof.lines())}"
    assert all(finding.where and finding.fact for finding in proof.findings)


@pytest.mark.parametrize("case", SAME)
def test_what_steps_do_not_say_makes_no_other_file(case: str) -> None:
    base, change = SAME[case]
    schedule = planned(*base)
    changed = change(schedule)
    assert changed.hash != schedule.hash
    assert elaborated(changed) == elaborated(schedule)
    assert emit(changed).replace(changed.hash, schedule.hash) == emit(schedule)
    assert verify(changed).proved


@pytest.mark.parametrize("case", RIGHT)
def test_another_right_schedule_is_proved(case: str) -> None:
    base, change = RIGHT[case]
    schedule = planned(*base)
    changed = change(schedule)
    assert elaborated(changed) != elaborated(schedule)
    assert verify(changed).proved
    assert right(instantiated(elaborated(changed)), schedule.spec)


@pytest.mark.parametrize(
    ("change", "bug"),
    [
        (words("x_full_arrived", 2, 2), BugClass.SLOTS),
        (waits("x_full_arrived", 1), BugClass.CIRCLE),
        (waits("x_full_arrived", -1), BugClass.WAIT_TOO_LITTLE),
        (words("done", 0), BugClass.SLOTS),
    ],
    ids=["too few words", "more arrivals than come", "fewer arrivals than come", "no word at all"],
)
def test_a_wait_or_word_that_is_wrong(change: OnSteps, bug: BugClass) -> None:
    proof = proof_of(change, planned(*AG_SM))
    assert bug in [finding.bug for finding in proof.findings], proof.lines()


def test_a_finding_names_step_and_signal() -> None:
    schedule = planned(*AG_SM)
    (finding,) = proof_of(waits("x_full_arrived", -1), schedule).findings
    assert finding.signal == "x_full_arrived"
    assert (
        "x_full" in finding.where and "of out_tiles." in finding.where and "its write need not be over" in finding.fact
    )


def test_a_name_that_stands_for_nothing_is_refuted() -> None:
    schedule = planned(*AG_CE)
    none = OnSteps(lambda steps: replace(steps, signals=steps.signals[:1]))
    proof = proof_of(none, schedule)
    assert any("no signal x_full_arrived" in finding.fact for finding in proof.findings)


def test_a_library_call_of_another_kind() -> None:
    schedule = planned_library()
    changed = tuple(
        replace(x, function="reduce_scatter") if isinstance(x, LibraryCollective) else x for x in schedule.launches
    )
    assert not verify(replace(schedule, launches=changed)).proved


def test_a_kernel_without_waits_may_be_larger_than_the_machine() -> None:
    """Programs that wait for nobody end, and leave their SMs to the next ones."""
    schedule = planned_library()
    kernels = [launch for launch in schedule.launches if isinstance(launch, Kernel)]
    assert kernels and verify(replace(schedule, machine=replace(schedule.machine, num_sms=1))).proved
