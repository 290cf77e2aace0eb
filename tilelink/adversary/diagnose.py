"""Why a run failed: the class of the bug, from the failure and from runs that differ in one thing.

Equal trials are equal runs, so that "the same run without the rule of CTA barriers", "with one call" or "with ten times as
many SMs" isolates a cause. Where nothing confirms one, what is known is said without a class.
"""

from __future__ import annotations

from tilelink.adversary.diagnosis import BROKEN, Diagnosis, at, by_scenario, first_call_passes
from tilelink.adversary.hang_causes import hang_cause
from tilelink.adversary.host_code import HostCodeFailed
from tilelink.adversary.race_causes import narrow_scope, race_cause
from tilelink.adversary.subject import Subject
from tilelink.adversary.trials import NotRefused, Outcome, WrongResult
from tilelink.emulator import errors as emulation
from tilelink.emulator.place import NOWHERE
from tilelink.errors import ScheduleMismatch
from tilelink.proof.bug_class import BugClass


def diagnose(subject: Subject, outcome: Outcome) -> Diagnosis:
    """The cause of `outcome.error`, which is not None. Runs the trial again, changed, up to twenty times."""
    error = outcome.error
    assert error is not None
    difference = outcome.difference
    match error:
        case emulation.NarrowScope():
            return narrow_scope(error)
        case emulation.Race():
            return race_cause(subject, outcome, error)
        case emulation.NoPeerAtomics() | emulation.NoMulticast():
            return at(BugClass.LINK_ATOMICS, error, "the link does not have it")
        case emulation.LateSetup():
            return at(BugClass.LATE_SETUP, error, "ranks meet in an allocation while operations are under way")
        case emulation.OutOfBounds():
            signals = "int32" in str(error.facts["nearest"]) or str(error.facts["access"]).startswith("atomic")
            bug = BugClass.SLOTS if signals else BugClass.WRONG_PLACE
            return at(bug, error, f"{error.facts['access']} outside of all buffers: {error.facts['nearest']}")
        case emulation.IllegalCapture():
            return at(BugClass.BAKED_CONSTANT, error, str(error.facts["reason"]))
        case NotRefused():
            fewer = "SMs" in str(error.facts["what"])
            bug = BugClass.RESIDENCY if fewer else BugClass.PER_RANK_CHOICE
            return Diagnosis(bug, 0, NOWHERE, f"nothing refuses it although {error.facts['what']}")
        case emulation.CollectiveMismatch() | emulation.SymmetricMismatch() | ScheduleMismatch():
            return at(BugClass.PER_RANK_CHOICE, error, str(difference or "ranks enqueue different collectives"))
        case HostCodeFailed() | emulation.KernelError():
            return at(None, error, "code of the file fails", BROKEN)
    if difference is not None:
        sides = [one.place for one in (difference.other, difference.own) if one is not None and one.place is not None]
        place = sides[0] if sides else NOWHERE
        return Diagnosis(BugClass.PER_RANK_CHOICE, difference.other_rank, place, str(difference))
    match error:
        case emulation.Deadlock():
            return hang_cause(subject, outcome, error)
        case WrongResult():
            return _wrong(subject, outcome, error)
    return at(None, error, "the emulation refuses what the file does", BROKEN)


def _wrong(subject: Subject, outcome: Outcome, wrong: WrongResult) -> Diagnosis:
    trial = outcome.trial
    rank = wrong.facts["rank"]
    assert isinstance(rank, int)
    scenario = by_scenario(subject, trial)
    if scenario is not None:
        return Diagnosis(scenario[0], rank, NOWHERE, scenario[1])
    if first_call_passes(subject, trial):
        return Diagnosis(BugClass.STALE_SIGNAL, rank, NOWHERE, "the first call is right, a later one is not")
    why = "no race and no hang: a wrong rank, offset, region or operation"
    return Diagnosis(BugClass.WRONG_PLACE, rank, NOWHERE, why)
