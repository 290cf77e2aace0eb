"""What a diagnosis is, and the runs that tell a cause by one thing that they change."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilelink.adversary.subject import Subject
from tilelink.adversary.trials import Scenario, Trial, run_trial
from tilelink.emulator.place import NOWHERE, Place
from tilelink.proof.bug_class import BugClass

NO_CLASS = "no class: what happened is certain, its cause is not"
BROKEN = "the file does not run"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`bug` is None where no cause is confirmed; then `title` says what is known. `rank` and `place` are where it shows."""

    bug: BugClass | None
    rank: int
    place: Place
    why: str  # one sentence without a full stop
    also: tuple[BugClass, ...] = ()  # other classes, without which it would go wrong as well
    title: str = NO_CLASS

    @property
    def headings(self) -> tuple[str, ...]:
        """The classes, or the title."""
        return (str(self.bug), *map(str, self.also)) if self.bug is not None else (self.title,)


def at(bug: BugClass | None, error: Exception, why: str, title: str = NO_CLASS) -> Diagnosis:
    """Where the facts of `error` say, or where the first of its tasks is."""
    facts: dict[str, object] = getattr(error, "facts", {})
    rank, place = facts.get("rank", 0), facts.get("place", NOWHERE)
    tasks = facts.get("tasks", ())
    if isinstance(tasks, tuple) and tasks and place is NOWHERE:
        rank, place = tasks[0].rank, tasks[0].place
    place = place if isinstance(place, Place) else NOWHERE
    return Diagnosis(bug, rank if isinstance(rank, int) else 0, place, why, title=title)


def by_scenario(subject: Subject, trial: Trial) -> tuple[BugClass, str] | None:
    """The class of what goes wrong only when calls are replayed, or alternate, and why."""
    if trial.scenario in (Scenario.CALLS, Scenario.WAITED):
        return None
    if run_trial(subject, replace(trial, scenario=Scenario.CALLS)).error is not None:
        return None
    why = f"it goes wrong with {trial.scenario.value}, and not otherwise"
    if trial.scenario is Scenario.REPLAYS:
        return BugClass.BAKED_CONSTANT, f"{why}; GRAPHS = False in the class says that calls are not to be captured"
    return BugClass.SHARED_SIGNALS, why


def first_call_passes(subject: Subject, trial: Trial) -> bool:
    """Whether more than one call was made, and one alone is right."""
    return trial.calls > 1 and run_trial(subject, replace(trial, calls=1)).error is None
