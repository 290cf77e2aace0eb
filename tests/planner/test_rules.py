"""The tables of rules: each rule excludes something, and what none excludes alone is excluded for what else was chosen."""

from __future__ import annotations

import math

import topologies
from tests.planner.grid import SPECS
from tests.planner.operators import gemm_ar
from tilelink.ir.movers import CommSms, CopyEngine, Fused, Transfer
from tilelink.ir.spec import bind
from tilelink.planner.choices import REUSED
from tilelink.planner.decisions import choices_of, legal_alone, slots_of, why_not_together
from tilelink.planner.layout import Illegal, Problem
from tilelink.planner.pins import checked_pins
from tilelink.planner.predicted import time_us
from tilelink.planner.rules import RULES, carried, why_illegal
from tilelink.planner.search import descent_of
from tilelink.planner.space import structures


def test_options_that_a_rule_excludes_are_never_built() -> None:
    """Whatever goes with them."""
    machine = topologies.load("h200-nvswitch", 4)
    spec = bind(gemm_ar.spec, {"M": 512, "K": 256, "N": 256}, 4, "bf16")
    seen = 0
    for structure in structures(spec, machine, {}):
        slots = slots_of(structure, {})
        legal, why = legal_alone(structure, slots)
        search, _ = descent_of(structure, {})
        start = search.first_legal()[0] if search is not None else None
        if why or start is None:
            continue
        for slot, options in slots.items():
            for option in [one for one in options if one not in legal[slot]][:20]:
                try:
                    time_us(Problem(structure, choices_of(structure, {**start.chosen, slot: option})), math.inf)
                except Illegal as illegal:
                    assert str(illegal)
                    seen += 1
                else:
                    raise AssertionError(f"{slot}, {option} is legal")
    assert seen > 100


def test_rules_give_the_reason() -> None:
    """The first one in the order of the table."""
    found = set()
    for name, ranks in (("h200-nvswitch", 4), ("l20-pcie", 2)):
        machine = topologies.load(name, ranks)
        for operator in SPECS:
            sizes = dict.fromkeys(operator.spec.symbols(), 64)
            for structure in structures(bind(operator.spec, sizes, ranks, "bf16"), machine, REUSED):
                for relation in structure.relations:
                    for option in slots_of(structure, {})["exchange", relation.name]:
                        facts = carried(structure, relation, option)  # type: ignore[arg-type]
                        broken = [reason(facts) for rule, reason in RULES if rule(facts)]
                        assert why_illegal(structure, relation, option) == (broken[0] if broken else "")  # type: ignore[arg-type]
                        found |= {rule for rule, _ in RULES if rule(facts)}
    assert len(found) >= 5


def test_what_does_not_go_together() -> None:
    """Programs that copy beside warpgroups in turns: known before anything is built, with the reason that building gives."""
    machine = topologies.load("h200-nvswitch", 4)
    spec = bind(gemm_ar.spec, {"M": 4096, "K": 4096, "N": 4096}, 4, "bf16")
    given = {"shots": 2, "protocol": "simple", "landing": "copied", "compute": "triton", "tile": "128x128x64/4w5s2g"}
    pins = checked_pins(spec, machine, given)
    (structure,) = structures(spec, machine, pins)
    slots, why = legal_alone(structure, slots_of(structure, pins))
    assert not why
    chosen = {slot: options[0] for slot, options in slots.items()}
    for slot, options in slots.items():
        for option in options:
            if isinstance(getattr(option, "mover", None), CommSms | Fused | CopyEngine):
                trial = {**chosen, slot: option}
                reason = why_not_together(structure, trial)
                if reason:
                    try:
                        time_us(Problem(structure, choices_of(structure, trial)), math.inf)
                    except Illegal:
                        continue
                    raise AssertionError(f"{reason}, and it is built")
    moved = next(
        o
        for o in slots["exchange", "matmul_out_parts" if ("exchange", "matmul_out_parts") in slots else "y_parts"]
        if isinstance(getattr(o, "mover", None), CommSms) and getattr(o, "transfer", None) is Transfer.PUSH
    )
    name = next(slot for slot, options in slots.items() if moved in options)
    assert "warpgroups" in why_not_together(structure, {**chosen, name: moved})
