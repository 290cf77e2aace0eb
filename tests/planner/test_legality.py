"""What the search takes for legal is what the proof takes for legal, and plain specs have the plain schedules."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import pytest

import lowering
import topologies
from tests.pipeline.random_specs import random_spec
from tests.planner.grid import SPECS, chain, columns, gemm_ar, logits
from tests.planner.operators import gemm_rs
from tilelink.declaration import Overlap
from tilelink.errors import IllegalPin, NoLegalSchedule
from tilelink.ir.calls import LibraryCollective, LibraryOp, PacketCollective
from tilelink.ir.movers import CommSms, CopyEngine, Fused, Transfer
from tilelink.ir.nodes import Machine
from tilelink.ir.schedule import Schedule
from tilelink.planner.sample import sample_schedule
from tilelink.proof.bug_class import BugClass
from tilelink.proof.verify import verify
from tilelink.runtime.run import run_emulated

SIZES = {"M": 64, "K": 96, "N": 128, "H": 64}
NO_ATOMICS = ("l20-pcie", "l40s-pcie")


def small(operator: Overlap, machine: str, ranks: int, pins: dict[str, str]) -> Schedule:
    sizes = {name: SIZES[name] for name in operator.spec.symbols()}
    return operator.plan_for(topologies.load(machine, ranks), sizes, "bf16", pins)


@pytest.mark.parametrize("transfer", ["push", "pull"])
@pytest.mark.parametrize("operator", [chain, gemm_ar, columns], ids=lambda operator: operator.name)
def test_pins_over_links_without_atomics(operator: Overlap, transfer: str) -> None:
    """A schedule or a refusal; the proof finds nothing in what the search takes."""
    try:
        found = small(operator, "l20-pcie", 4, {"transfer": transfer})
    except (IllegalPin, NoLegalSchedule) as refused:
        assert transfer == "pull"
        assert "transfer" in str(refused)
        return
    assert {exchange.transfer.value for exchange in found.exchanges} == {transfer}
    assert verify(found).proved


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 60))])
def test_schedules_of_the_space_over_links_without_atomics(seed: int) -> None:
    rng = random.Random(seed)
    ranks = rng.choice((2, 4))
    schedule = sample_schedule(random_spec(rng, ranks), topologies.load(rng.choice(NO_ATOMICS), ranks), rng)
    proof = verify(schedule)
    assert proof.proved, f"{schedule}\n{chr(10).join(proof.lines())}"


@pytest.mark.parametrize(
    ("mover", "transfer"), list(product(("CopyEngine()", "CommSms(2)", "Fused()"), ("push", "pull"))), ids=str
)
def test_the_proof_asks_the_same_table(mover: str, transfer: str) -> None:
    """A schedule for links with atomics, on a machine without them, is refuted at its exchange where the table says so, and
    else at the end of the call, of which programs tell peers by atomics."""
    pins = {"algorithm": "direct", "compute": "triton", "mover": mover, "transfer": transfer}
    schedule = small(gemm_rs, "laptop-switch", 4, pins)
    machine: Machine = replace(schedule.machine, peer_atomics=False)
    (exchange,) = schedule.exchanges
    found = [one for one in verify(replace(schedule, machine=machine)).findings if one.bug is BugClass.LINK_ATOMICS]
    assert found
    assert all("carry no atomics" in one.fact for one in found)
    reason = exchange.mover.why_not_without_atomics(exchange.transfer, by_tiles=True)
    assert any(one.signal != "done" for one in found) is bool(reason)


def test_what_copy_engines_do_needs_no_atomics() -> None:
    for transfer, by_tiles in product(Transfer, (False, True)):
        legal = transfer is Transfer.PUSH or not by_tiles
        assert bool(CopyEngine().why_not_without_atomics(transfer, by_tiles=by_tiles)) is not legal
        assert CommSms(2).why_not_without_atomics(transfer, by_tiles=by_tiles)
        assert Fused().why_not_without_atomics(transfer, by_tiles=by_tiles)


@pytest.mark.parametrize("operator", SPECS, ids=lambda operator: operator.name)
@pytest.mark.quick(6)
def test_everything_by_the_library(operator: Overlap) -> None:
    """cuBLAS and NCCL are what everybody compares with. Only parts along columns that a scatter sends are no matrices."""
    matmuls = any(name.startswith("matmul") or name == "out" for name in operator.spec.outputs)
    pins = {"algorithm": "library"} | ({"compute": "library"} if matmuls and operator.name != "gather" else {})
    if operator is columns:
        with pytest.raises(NoLegalSchedule, match="along columns"):
            small(operator, "laptop-switch", 4, pins)
        return
    found = small(operator, "laptop-switch", 4, pins)
    assert any(isinstance(launch, LibraryCollective) for launch in found.launches)
    assert not found.exchanges
    assert run_emulated(found, lowering.emit(found), calls=2).equal


@pytest.mark.parametrize("algorithm", ["library", "lamport", "ll"])
def test_the_library_multiplies_before_a_gather_along_columns(algorithm: str) -> None:
    found = small(logits, "laptop-switch", 4, {"algorithm": algorithm, "compute": "library"})
    (matmul,) = (launch for launch in found.launches if isinstance(launch, LibraryOp))
    (gather,) = (launch for launch in found.launches if isinstance(launch, LibraryCollective | PacketCollective))
    assert matmul.out.buffer == gather.operand
    assert run_emulated(found, lowering.emit(found), calls=2).equal
