"""Each rule of `tilelink.proof.rules` is broken once, by steps or by the machine: the proof names its class and the reason."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

import topologies
from tests.pipeline import test_copy_warps as copy_warps
from tests.pipeline import test_turns as turns
from tests.pipeline.attention_specs import How
from tests.pipeline.expert_specs import SPECS
from tests.pipeline.operators import AG_GEMM
from tests.proof.test_refuted import AG_CE, AG_SM, MLP_SHARED, RS_CE, RS_FUSED, planned
from tests.schedule.edits import Change, edit, fields, loads, stores
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.enums import Protocol
from tilelink.ir.schedule import Schedule as Planned
from tilelink.proof.bug_class import BugClass
from tilelink.proof.rules import RULES, broken_rules
from tilelink.schedule.index import Index, rank
from tilelink.schedule.instance import instantiated
from tilelink.schedule.memory import Access, Buffer, Memory
from tilelink.schedule.network import TRANSPORTS
from tilelink.schedule.roles import CopyEngine, Launch, MeshAxis, Network, Phase, PingPong, Plain, Role, Schedule, Sms
from tilelink.schedule.steps import For


@cache
def base(name: str) -> Planned:
    if name == "experts":
        sizes = {"T": 64, "H": 64, "F": 64, "E": 4, "K": 2}
        return SPECS["ag_moe"].plan_for(topologies.load("laptop-switch", 2), sizes, "bf16", {})
    if name == "packets":
        sizes = {"T": 64, "F": 64, "H": 64, "E": 4, "K": 2}
        return SPECS["moe_ar"].plan_for(topologies.load("laptop-switch", 2), sizes, "bf16", {"out.protocol": "lamport"})
    if name == "multicast":
        pins = {"algorithm": "lamport", "multicast": "yes", "compute": "triton"}
        return AG_GEMM.plan_for(topologies.load("laptop-switch", 4), {"M": 32, "K": 64, "N": 64}, "bf16", pins)
    if name == "warps":
        return copy_warps.planned(2, How())
    bases = {"ag": AG_CE, "ag by SMs": AG_SM, "rs": RS_CE, "rs fused": RS_FUSED, "mlp": MLP_SHARED}
    return planned(*bases[name]) if name in bases else turns.planned(name)


def same(schedule: Schedule) -> Schedule:
    return schedule


def in_groups(phase: Phase) -> bool:
    return isinstance(phase.pipelining, PingPong)


def wide(loop: For) -> For:
    """All of k at once."""
    return replace(loop, count=1)


def twice(phase: Phase) -> Phase:
    return replace(phase, body=(*phase.body, *(one for one in phase.body if isinstance(one, For))))


def with_one_before(role: Role) -> Role:
    return replace(role, phases=(Phase(1, ()), *role.phases))


GROUPS = "sums by stores"
CASES: dict[str, tuple[str, Change, dict[str, object], BugClass, str]] = {
    "programs that wait": ("ag", same, {"num_sms": 7}, BugClass.RESIDENCY, "8 programs do not fit on 7 SMs"),
    "streams that hold SMs": (
        "ag",
        same,
        {"num_sms": 8, "stream_waits": False},
        BugClass.RESIDENCY,
        "8 programs and 1 that hold up streams",
    ),
    "more programs than an SM takes": (
        "rs fused",
        fields(Sms, programs=17, per_sm=2),
        {},
        BugClass.RESIDENCY,
        "17 programs do not fit on 8 SMs",
    ),
    "an atomic over a link": (
        "rs fused",
        same,
        {"peer_atomics": False},
        BugClass.LINK_ATOMICS,
        "raises a word of peers",
    ),
    "a store over a link": ("rs fused", same, {"peer_atomics": False}, BugClass.LINK_ATOMICS, "stores at peers"),
    "a copy that waits for a count": (
        "ag",
        same,
        {"stream_waits": False},
        BugClass.REUSE,
        "wait done[0] >= (call - 1) * 2 on a stream",
    ),
    "a put of a stream that waits for a count": (
        "ag",
        edit(
            Role,
            lambda one: replace(one, engine=Network(enqueued=True)),
            lambda one: isinstance(one.engine, CopyEngine),
        ),
        {"stream_waits": False},
        BugClass.REUSE,
        "wait done[0] >= (call - 1) * 2 on a stream",
    ),
    "lines over other links": (
        "multicast",
        fields(Buffer, lambda one: one.name == "x_full_packets", protocol=Protocol.LL128),
        {"peer_atomics": False},
        BugClass.LINK_ATOMICS,
        "links of this machine need not bring a line whole",
    ),
    "a store by multicast over other links": (
        "multicast",
        same,
        {"multicast": False},
        BugClass.LINK_ATOMICS,
        "store own -> x_full_packets[call % 2, rank, 0 : +8, 0 : +64]@peer by multicast",
    ),
    "a store by multicast over nodes": (
        "multicast",
        edit(MeshAxis, lambda one: replace(one, transport=TRANSPORTS["NVSHMEM put_signal"])),
        {},
        BugClass.WRONG_PLACE,
        "its rounds are not all ranks of a node, each once",
    ),
    "data by multicast": (
        "multicast",
        fields(Buffer, lambda one: one.name == "x_full_packets", protocol=Protocol.SIMPLE),
        {},
        BugClass.ORDERING,
        "by multicast, of no packets",
    ),
    "lines by multicast": (
        "multicast",
        fields(Buffer, lambda one: one.name == "x_full_packets", protocol=Protocol.LL128),
        {},
        BugClass.ORDERING,
        "by multicast, of lines, which come in pieces",
    ),
    "each rank at another place": (
        "multicast",
        stores("x_full_packets", start=(None, Index("peer"), None, None)),
        {},
        BugClass.WRONG_PLACE,
        "it goes to another place of each rank",
    ),
    "peers by multicast": (
        "multicast",
        fields(For, lambda one: one.multicast, count=3),
        {},
        BugClass.WRONG_PLACE,
        "its rounds are not all ranks of a node, each once",
    ),
    "one peer by multicast": (
        "multicast",
        fields(For, lambda one: one.multicast, let=(("peer", rank),)),
        {},
        BugClass.WRONG_PLACE,
        "its rounds are not all ranks of a node, each once",
    ),
    "two stores by multicast": (
        "multicast",
        edit(For, lambda one: replace(one, body=one.body * 2), lambda one: one.multicast),
        {},
        BugClass.WRONG_PLACE,
        "it is more than one store",
    ),
    "what peers do not reach": (
        "multicast",
        fields(Buffer, lambda one: one.name == "x_full_packets", memory=Memory.LOCAL),
        {},
        BugClass.WRONG_PLACE,
        "does not lie at one place of all ranks",
    ),
    "a store of a network role": (
        "multicast",
        fields(Role, lambda one: one.name == "x_full", engine=Network()),
        {},
        BugClass.WRONG_PLACE,
        "no program stores it",
    ),
    "no descriptors": ("ag", same, {"tensor_descriptors": False}, BugClass.WRONG_PLACE, "no tensor descriptors"),
    "rows of an odd number of bytes": (
        "ag",
        edit(Buffer, lambda one: replace(one, shape=(32, 33)), lambda one: one.name == "w"),
        {},
        BugClass.WRONG_PLACE,
        "rows of 66 bytes cannot be described",
    ),
    "a column through a descriptor": (
        "ag",
        loads("w", extent=(None, 1)),
        {},
        BugClass.WRONG_PLACE,
        "cannot be described",
    ),
    "a load of a few rows at a time": (
        "ag",
        loads("w", access=Access.PACED),
        {},
        BugClass.WRONG_PLACE,
        "only stores leave",
    ),
    "peers are told of a store through a descriptor": (
        "rs fused",
        stores("y_parts", access=Access.DESCRIPTOR),
        {},
        BugClass.ASYNC_STORE,
        "peers are told of what a descriptor stores",
    ),
    "copies are told of a store through a descriptor": (
        "rs",
        stores("y_staged", access=Access.DESCRIPTOR),
        {},
        BugClass.ASYNC_STORE,
        "others are told of what a descriptor stores",
    ),
    "a prefetch behind a wait, of one step": (
        "ag",
        edit(For, wide, lambda loop: loop.variable == "k_tile"),
        {},
        BugClass.COMPILED_ORDER,
        "k is a single step",
    ),
    "groups elsewhere": (GROUPS, same, {"arch": "sm_80"}, BugClass.WRONG_PLACE, "those of sm_90, not of sm_80"),
    "groups of other warps": (GROUPS, fields(Sms, warps=8), {}, BugClass.WRONG_PLACE, "a group has 4 warps"),
    "groups beside each other": (GROUPS, fields(Sms, per_sm=2), {}, BugClass.WRONG_PLACE, "takes an SM for itself"),
    "groups that begin with something else": (
        GROUPS,
        edit(Role, with_one_before),
        {},
        BugClass.WRONG_PLACE,
        "before or behind their tiles",
    ),
    "groups beside programs that communicate": (
        GROUPS,
        edit(Launch, lambda one: replace(one, roles=one.roles * 2)),
        {},
        BugClass.WRONG_PLACE,
        "before or behind their tiles",
    ),
    "groups with two loops": (GROUPS, edit(Phase, twice, in_groups), {}, BugClass.WRONG_PLACE, "or several"),
    "groups that load by pointers": (
        GROUPS,
        loads("x", access=Access.POINTER),
        {},
        BugClass.WRONG_PLACE,
        "x is not loaded through descriptors",
    ),
    "groups that multiply fp32": (
        GROUPS,
        fields(Buffer, lambda one: one.name == "w", dtype="fp32"),
        {},
        BugClass.WRONG_PLACE,
        "w is fp32",
    ),
    "pieces of rows that are none": (
        GROUPS,
        stores("y_parts", extent=(None, 60, None)),
        {},
        BugClass.WRONG_PLACE,
        "tiles of 60 x 128 are no whole pieces of 16 rows",
    ),
    "pieces of narrow rows": (
        GROUPS,
        stores("y_parts", extent=(None, None, 96)),
        {},
        BugClass.WRONG_PLACE,
        "rows of 96 elements of bf16 are no multiple of 128 bytes",
    ),
    "rows that nobody has sorted": (
        "experts",
        lambda steps: replace(steps, launches=steps.launches[1:]),
        {},
        BugClass.WAIT_TOO_LITTLE,
        "has not been made on its stream before",
    ),
    "packets that several warps hold": (
        "packets",
        fields(Sms, warps=32),
        {},
        BugClass.STALE_SIGNAL,
        "packets for the 1024 threads of 32 warps",
    ),
    "warps of other programs": (
        "warps",
        fields(Sms, lambda one: one.inside, programs=2),
        {},
        BugClass.WRONG_PLACE,
        "which has others, or no groups",
    ),
    "pieces of one group": (
        GROUPS,
        fields(Phase, in_groups, pipelining=Plain()),
        {},
        BugClass.WRONG_PLACE,
        "and there is one group",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_rule_that_is_broken(case: str) -> None:
    name, change, machine, bug, fact = CASES[case]
    schedule = base(name)
    steps = instantiated(elaborated(schedule))
    assert not list(broken_rules(steps, schedule.machine))
    found = list(broken_rules(change(steps), replace(schedule.machine, **machine)))  # type: ignore[arg-type]
    assert any(one.bug is bug and fact in one.fact for one in found), found
    assert all(one.where for one in found)


def test_each_rule_is_broken_by_a_case() -> None:
    reasons: set[str] = set()
    for name, change, machine, _, _ in CASES.values():
        steps = change(instantiated(elaborated(base(name))))
        reasons |= {one.fact.rsplit("; ", 1)[1] for one in broken_rules(steps, replace(base(name).machine, **machine))}  # type: ignore[arg-type]
    assert reasons == {rule.reason for rule in RULES}
