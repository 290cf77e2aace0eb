"""The text that names a trial: what a counterexample prints and `tilelink verify --replay` takes."""

from __future__ import annotations

from dataclasses import replace

from tilelink.adversary.trials import Scenario, Trial
from tilelink.emulator.errors import UnknownPolicy
from tilelink.emulator.policies import policy_by_name
from tilelink.errors import UnknownReplay


def parse_trial(text: str) -> Trial:
    """The inverse of `Trial.text`. Raises UnknownReplay."""
    scenario, *fields = text.split(",")
    names = {one.name.lower(): one for one in Scenario}
    if scenario not in names or not fields:
        raise UnknownReplay(text=text, scenarios=", ".join(names))
    try:
        policy_by_name(fields[0])
    except UnknownPolicy as unknown:
        raise UnknownReplay(text=text, scenarios=", ".join(names)) from unknown
    trial = Trial(names[scenario], fields[0])
    for field in fields[1:]:
        name, _, value = field.partition("=")
        if field == "any-residency":
            trial = replace(trial, any_residency=True)
        elif name in ("seed", "calls") and value.isdigit() and (name == "seed" or int(value) > 0):
            trial = replace(trial, seed=int(value)) if name == "seed" else replace(trial, calls=int(value))
        else:
            raise UnknownReplay(text=text, scenarios=", ".join(names))
    return trial
