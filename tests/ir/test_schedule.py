"""A schedule survives JSON and paste, and its hash depends on what it says alone."""

from __future__ import annotations

import json
import pickle
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import lowering
import topologies
from tests.planner.operators import ag_gemm, gemm_ar, gemm_rs, mlp
from tilelink import Overlap, Plan, Schedule
from tilelink.elaborate.review import design_review
from tilelink.errors import NotASchedule
from tilelink.ir import choices, collective, enums, movers, nodes, order, placement, schedule, spec, steps, user_op
from tilelink.ir.spec import bind
from tilelink.planner.sample import sample_schedule

if TYPE_CHECKING:
    from tilelink.ir.spec import BoundSpec

_SCOPE = {
    name: value
    for module in (choices, collective, movers, enums, nodes, order, placement, spec, steps, user_op, schedule)
    for name, value in vars(module).items()
}
_SIZES = {"M": 256, "K": 64, "N": 128, "H": 64, "F": 128}


def _bound(operator: Overlap) -> BoundSpec:
    return bind(operator.spec, {name: _SIZES[name] for name in operator.spec.symbols()}, 4, "fp16")


@pytest.mark.parametrize("operator", [ag_gemm, gemm_rs, gemm_ar, mlp], ids=lambda operator: operator.name)
@pytest.mark.parametrize("topology", ["laptop-switch", "laptop-mesh"])
@pytest.mark.quick(5)
def test_round_trips(operator: Overlap, topology: str) -> None:
    machine, rng = topologies.load(topology, 4), random.Random(operator.name + topology)
    for _ in range(4):
        found = sample_schedule(_bound(operator), machine, rng)
        text = found.to_json()
        again = Schedule.from_json(text)
        assert again == found
        assert again.to_json() == text
        assert json.loads(text)["type"] == "Schedule"
        assert hash(again) == hash(found)
        assert again.hash == found.hash
        assert eval(repr(found), dict(_SCOPE)) == found
        assert str(again) == str(found)


def test_the_hash_sees_what_ranks_must_agree_on() -> None:
    pin = {"algorithm": "direct", "mover": "CopyEngine()"}
    found = ag_gemm.plan("laptop-switch", 4, M=256, K=64, N=128, pin=pin)
    assert len(found.hash) == 16
    assert int(found.hash, 16) >= 0
    assert found.hash == ag_gemm.plan("laptop-switch", 4, M=256, K=64, N=128, pin=pin).hash
    others = [
        replace(found, machine=replace(found.machine, num_sms=7)),
        replace(found, exchanges=()),
        replace(found, choices=()),
        ag_gemm.plan("laptop-switch", 2, M=256, K=64, N=128, pin=pin),
        ag_gemm.plan("laptop-switch", 4, M=512, K=64, N=128, pin=pin),
        ag_gemm.plan("laptop-switch", 4, M=256, K=64, N=128, dtype="fp16", pin=pin),
    ]
    assert len({found.hash, *(other.hash for other in others)}) == 1 + len(others)
    commented = replace(found, predicted_us=found.predicted_us + 1, spec=replace(found.spec, source=("# new comment",)))
    assert commented.hash == found.hash


def test_no_folder_of_this_machine_is_in_it() -> None:
    assert __file__.rpartition("/")[0] not in ag_gemm.plan("laptop-switch", 4, M=256, K=64, N=128).to_json()


def test_lookups() -> None:
    found = gemm_rs.plan("laptop-switch", 4, M=256, K=64, N=128, pin={"mover": "CopyEngine()"})
    assert found.exchange("y_parts") in found.exchanges
    assert found.buffer("x").shape == (256, 16)


def test_a_plan_is_the_schedule_that_it_was_made_of() -> None:
    found = gemm_rs.plan("laptop-switch", 4, M=256, K=64, N=128, pin={"mover": "CopyEngine()"})
    bare = Schedule.from_json(found.to_json())
    assert type(bare) is Schedule and type(found) is Plan
    assert bare == found and found == bare and hash(bare) == hash(found)
    assert found != replace(bare, predicted_us=bare.predicted_us + 1)
    assert bare.to_json() == found.to_json() and bare.hash == found.hash
    again = Plan.from_json(found.to_json())
    assert type(again) is type(replace(found, exchanges=())) is type(pickle.loads(pickle.dumps(found))) is Plan
    assert str(again) == str(found) == design_review(bare)
    assert again.emit("triton-distributed") == lowering.emit(bare, "triton-distributed")
    assert eval(repr(found), {**_SCOPE, "Plan": Plan}) == found


def test_the_program_is_what_it_does_whatever_choices_led_to_it() -> None:
    found = sample_schedule(_bound(gemm_rs), topologies.load("laptop-switch", 4), random.Random(3))
    other = replace(found, choices=(("y.tile", "another"),), decided=choices.NONE, predicted_us=1.0)
    assert other != found and other.program == found.program
    assert replace(found, launches=found.launches[:-1]).program != found.program


def test_a_schedule_without_its_choices_is_none() -> None:
    """What the library computes would be unknown."""
    data = json.loads(sample_schedule(_bound(gemm_rs), topologies.load("laptop-switch", 4), random.Random(3)).to_json())
    del data["decided"]
    with pytest.raises(NotASchedule):
        Schedule.from_json(json.dumps(data))
