"""Independent fields of a collective: what no rule forbids is planned, proved and right; the rest has a reason."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

import lowering
import topologies
from tests.pipeline.operators import AG_GEMM, GEMM_AR, GEMM_RS
from tests.planner.operators import mlp
from tilelink.declaration import Overlap
from tilelink.errors import IllegalPin, NoLegalSchedule
from tilelink.ir.collective import Adder, Collective, Landing
from tilelink.ir.enums import Protocol
from tilelink.ir.movers import Fused, Library, OwnKernel
from tilelink.ir.spec import AllGather, AllReduce, BoundSpec, ReduceScatter, ReduceTokens, SendRecv, bind
from tilelink.planner import fields
from tilelink.planner.aliases import ALIASES, without_aliases
from tilelink.planner.choices import texts
from tilelink.planner.collectives import FIELD_RULES, collective_pins, legal_collectives, why_none_fits
from tilelink.runtime.run import run_emulated

SIZES = {"M": 64, "K": 64, "N": 128}
MACHINE = topologies.load("laptop-switch", 4)


def bound(operator: Overlap, **sizes: int) -> BoundSpec:
    return bind(operator.spec, SIZES | sizes, 4, "bf16")


EVERY = [
    pytest.param(operator, name, how, id=f"{operator.name} {texts(collective_pins(bound(operator), [(name, how)]))}")
    for operator in (AG_GEMM, GEMM_RS, GEMM_AR)
    for name, ways in legal_collectives(bound(operator), MACHINE)
    for how in ways
]


def test_the_fields_are_a_product() -> None:
    """Of an all_reduce, but for what a rule of fields forbids."""
    ((_, ways),) = legal_collectives(bound(GEMM_AR), MACHINE)
    movers: tuple[OwnKernel | Fused, ...] = (OwnKernel(), Fused())
    packets = itertools.product(movers, (Protocol.LL, Protocol.LAMPORT), (1, 2))
    exchanged = {Collective(shots=2, landing=landing) for landing in Landing}
    of_packets = {Collective(*way) for way in packets}
    at_once = {replace(one, multicast=True) for one in of_packets if isinstance(one.mover, OwnKernel)}
    lines = {Collective(OwnKernel(), Protocol.LL128, shots) for shots in (1, 2)}
    assert set(ways) == of_packets | at_once | lines | exchanged | {Collective(), Collective(Library())}


@pytest.mark.parametrize(("operator", "name", "how"), EVERY)
@pytest.mark.quick(8)
def test_every_combination_is_planned_and_right(operator: Overlap, name: str, how: Collective) -> None:
    """Planned with its texts as pins, proved, and equal to the reference on emulated ranks."""
    pins = texts(collective_pins(bound(operator), [(name, how)]))
    schedule = operator.plan_for(MACHINE, SIZES, "bf16", pins | {"compute": "triton"})
    assert dict(schedule.decided.collectives)[name] == how
    assert pins.items() <= dict(schedule.choices).items()
    result = run_emulated(schedule, lowering.emit(schedule), calls=3)
    assert result.equal, f"{result.lines()}\n{schedule}"


def test_every_rule_of_fields_forbids_alone() -> None:
    """Some combination breaks it and no other one."""
    movers = (None, OwnKernel(), Fused(), Library())
    every = [
        (operation, Collective(*way, multicast=multicast))
        for operation in (AllGather, ReduceScatter, ReduceTokens, AllReduce, SendRecv)
        for multicast in (False, True)
        for way in itertools.product(movers, Protocol, (1, 2), Landing, Adder)
    ]
    broken = [[reason for rule, reason in FIELD_RULES if rule(operation, how)] for operation, how in every]
    assert {reasons[0] for reasons in broken if len(reasons) == 1} == {reason for _, reason in FIELD_RULES}


@pytest.mark.parametrize(
    ("operator", "sizes", "machine", "pins", "reason"),
    [
        (GEMM_AR, {"M": 18}, MACHINE, {"shots": "2", "protocol": "simple"}, "4 ranks do not divide the 18 rows of out"),
        (AG_GEMM, {}, MACHINE, {"protocol": "ll", "mover": "CopyEngine()"}, "packets are moved by"),
        (GEMM_AR, {"N": 33, "M": 1}, MACHINE, {"protocol": "ll"}, "no whole packets of 4 bytes"),
        (GEMM_AR, {"M": 1 << 20}, MACHINE, {"protocol": "lamport", "shots": "1"}, "more than 524,288 packets"),
        (GEMM_RS, {"N": 33, "M": 8}, MACHINE, {"protocol": "ll", "mover": "Fused()"}, "rows of 66 bytes"),
        (GEMM_AR, {}, topologies.load("l20-pcie", 4), {"protocol": "ll"}, "the links of l20-pcie carry none"),
        (AG_GEMM, {}, topologies.load("a100-nvswitch", 4), {"multicast": "yes"}, "those of a100-nvswitch do not"),
        (AG_GEMM, {}, MACHINE, {"multicast": "yes", "mover": "Fused()"}, "only packets of a kernel of its own"),
        (AG_GEMM, {}, MACHINE, {"multicast": "yes", "protocol": "simple"}, "only packets of a kernel of its own"),
    ],
    ids=str,
)
def test_the_reason_is_that_of_the_rule(
    operator: Overlap, sizes: dict[str, int], machine: topologies.Topology, pins: dict[str, str], reason: str
) -> None:
    values = {("", fields.BY_NAME[name]): fields.BY_NAME[name].parsed(text) for name, text in pins.items()}
    assert reason in why_none_fits(bound(operator, **sizes), machine, values)
    with pytest.raises((IllegalPin, NoLegalSchedule)) as caught:
        operator.plan_for(machine, {name: (SIZES | sizes)[name] for name in operator.spec.symbols()}, "bf16", pins)
    assert reason in str(caught.value)


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_stands_for_its_fields(alias: str) -> None:
    spec = bound(GEMM_AR)
    held = texts(collective_pins(spec, [("out", ALIASES[alias])]))
    assert without_aliases(spec, MACHINE, {"algorithm": alias}) == held
    beside = {"y.compute": "triton"}
    assert without_aliases(spec, MACHINE, {"out.algorithm": alias, **beside}) == held | beside


def test_aliases_of_several_collectives() -> None:
    """One without a name is about all of them; one with a name counts more."""
    spec = bind(mlp.spec, {"M": 16, "H": 64, "F": 64}, 4, "bf16")
    (gather, _), (scatter, _) = legal_collectives(spec, MACHINE)
    found = without_aliases(spec, MACHINE, {"algorithm": "direct", f"{scatter}.algorithm": "lamport-tiles"})
    assert found == {
        f"{gather}.protocol": "simple",
        f"{scatter}.protocol": "lamport",
        f"{scatter}.mover": "Fused()",
    }


@pytest.mark.parametrize(
    ("pins", "said"),
    [
        ({"algorithm": "direct"}, "Legal algorithm: ll, pooled, lamport"),
        ({"algorithm": "Pooled"}, "Did you mean 'pooled'?"),
        (
            {"algorithm": "two-shot", "out.landing": "pooled"},
            "it stands for landing=copied of out, which is pinned to pooled",
        ),
    ],
)
def test_an_alias_of_nothing_legal(pins: dict[str, str], said: str) -> None:
    with pytest.raises(IllegalPin) as caught:
        GEMM_AR.plan_for(MACHINE, SIZES, "bf16", pins)
    assert said in str(caught.value)
