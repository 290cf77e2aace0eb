"""Mutants of planned schedules as steps, judged twice: by proof and interpreter, and by their printed text on emulated ranks
under the race detector. The two agree, but for kinds that cannot, each of which is listed with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pytest
import torch

import topologies
from lowering.steps.file import lower
from lowering.steps.renaming import with_own_names
from tests.pipeline.workloads import load
from tests.schedule.test_lowering_planned import results
from tilelink.elaborate.schedule import elaborated
from tilelink.emulator import Deadlock, Race, StepLimit
from tilelink.emulator.errors import OutOfBounds
from tilelink.mutation.judges import JudgeSteps
from tilelink.mutation.mutant import StepMutant, Verdict
from tilelink.mutation.nodes import mutants
from tilelink.mutation.runner import drawn
from tilelink.proof.happens_before.check import checked
from tilelink.proof.happens_before.refuted import Wrong
from tilelink.runtime.load import load_source
from tilelink.schedule.instance import instantiated
from tilelink.schedule.roles import Schedule

SEEDS = (0, 1, 3, 5, 7)  # random orders, starved ranks, the newest or the oldest first
RANKS = 2
TILES = {"algorithm": "direct", "compute": "triton", "tile": "16x16x16/4w1s"}
SIZES = {"M": 64, "K": 32, "N": 32}
GATHER, SCATTER, SUM = (f"{name}.py:{name[3:]}" for name in ("02_ag_gemm", "03_gemm_rs", "04_gemm_ar"))
SUBJECTS: dict[str, tuple[str, dict[str, str]]] = {
    "scatter by tiles": (SCATTER, {**TILES, "mover": "Fused()", "transfer": "push", "sum": "epilogue"}),
    "gather by copies": (GATHER, {**TILES, "mover": "CopyEngine()", "transfer": "push", "chunks": "2"}),
    "gather by SMs": (GATHER, {**TILES, "mover": "CommSms(2)", "transfer": "pull"}),
    "scatter by copies": (SCATTER, {**TILES, "mover": "CopyEngine()", "sum": "epilogue", "chunks": "2"}),
    "sum in place": (
        SUM,
        {"algorithm": "in-place", "compute": "triton", "y.tile": TILES["tile"], "mover": "Fused()", "sum": "epilogue"},
    ),
    "sum by packets": (SUM, {"algorithm": "lamport", "compute": "triton", "tile": TILES["tile"]}),
}


@dataclass(frozen=True)
class Reason:
    """Why a kind of mutant cannot be judged alike. `killed`: proof or interpreter refuse what runs right."""

    killed: bool
    why: str
    field: str = ""  # with which the operator of the mutant begins; any
    wrong: tuple[Wrong | None, ...] = ()  # as the proof has it, None: the interpreter; any
    step: str = ""  # in which it is; any

    def fits(self, mutant: StepMutant, verdict: Verdict, wrong: Wrong | None) -> bool:
        right_kind = not self.wrong or wrong in self.wrong
        there = mutant.operator.startswith(self.field) and self.step in str(mutant.site)
        return verdict.killed is self.killed and there and right_kind


LATE = (Wrong.CIRCLE, Wrong.NEVER_RAISED, Wrong.UNEVEN, Wrong.UNLIKE, Wrong.ANY_COUNT)
COUNTED = "peers wait for each copy by itself, and words only grow; text sets them back behind this wait"
DESCRIBED = "two descriptor stores of one program to one place have no order of their own"
REASONS = (
    Reason(True, "emulated ranks move no load in front of its wait", "Wait.covers", (Wrong.NOT_AWAITED,)),
    Reason(True, "text finds words by one number, which two indices may have", "", (Wrong.NO_WORD,)),
    Reason(True, "a stream, and the host, is always there once", "", (Wrong.NO_PROGRAM,)),
    Reason(True, "a stream goes through its phases in their order", "Phase.who"),
    Reason(True, "a word set again to what it is", "", (Wrong.SET_BACK, Wrong.SET_IN_NO_ORDER)),
    Reason(True, "text pads tiles of odd sizes to powers of two", "Compute.shape", (None,)),
    Reason(True, "what is divided by zero is 0 on emulated ranks", "", (Wrong.MALFORMED,)),
    Reason(True, "rank -1 is the last one on emulated ranks", "", (Wrong.NO_RANK,)),
    Reason(True, "it shows in later calls, or in an order of programs that few runs have", "", LATE),
    Reason(
        True, "text masks packets outside of their buffer, and adds nothing for them", "For.count", (Wrong.OUTSIDE,)
    ),
    Reason(True, "text moves as much as the source has", "Region.extent", (Wrong.MALFORMED,)),
    Reason(True, "memory of any kind is emulated in one way", "Buffer.memory", (Wrong.NOT_SYMMETRIC, None)),
    Reason(False, COUNTED, "Wait.until: one less", step="Wait copied"),
    Reason(False, COUNTED, "Notify.to: one more", step="Notify copied"),
    Reason(False, DESCRIBED, "Role.phases: doubled"),
    Reason(False, DESCRIBED, "Phase.body: doubled"),
    Reason(False, DESCRIBED, "Phase.count: one more", step="out_tiles"),  # a program has its first tile again
)


@cache
def steps(name: str) -> Schedule:
    workload, pins = SUBJECTS[name]
    planned = load(workload).plan_for(topologies.load("laptop-switch", RANKS), SIZES, "bf16", dict(pins))
    return instantiated(elaborated(planned))


def ran(schedule: Schedule, right: dict[int, list[torch.Tensor]]) -> str:
    """How the printed text does; empty if there is none, or none that runs: a tile of 33, a stream that adds."""
    try:
        module = load_source(lower(with_own_names(schedule)), schedule.name)
        for seed in SEEDS:
            found = results(module, RANKS, seed)
            wanted = right.setdefault(seed, found)
            if len(found) != len(wanted) or not all(map(torch.equal, found, wanted)):
                return "wrong"
    except (Race, Deadlock, StepLimit, OutOfBounds) as error:
        return type(error).__name__
    except Exception:
        return ""
    return "right"


def disagreements(name: str, count: int) -> tuple[list[str], int]:
    """Of so many mutants: those without a reason, and how many were judged twice."""
    original, right = steps(name), dict[int, list[torch.Tensor]]()
    assert ran(original, right) == "right"
    judge, found, both = JudgeSteps(original), list[str](), 0
    for mutant in drawn(tuple(mutants(original)), count, seed=11):
        verdict, outcome = judge(mutant), ran(mutant.schedule, right)
        both += bool(outcome)
        if not outcome or verdict.killed is (outcome != "right"):
            continue
        refutation = checked(mutant.schedule).refutation
        wrong = refutation.wrong if refutation is not None else None
        if not any(reason.fits(mutant, verdict, wrong) for reason in REASONS):
            found.append(f"{mutant.operator} {mutant.site}: {verdict}, and the text is {outcome}")
    return found, both


@pytest.mark.slow
def test_a_few() -> None:
    found, both = disagreements("scatter by tiles", 4)
    assert found == [] and both >= 2


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_steps_and_printed_text_agree(name: str) -> None:
    found, both = disagreements(name, 40)
    assert found == []
    assert both >= 20
