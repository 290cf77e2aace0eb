"""Mutants and judges for tests of the runner; workers import them from here."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from tilelink.mutation.mutant import Verdict


@dataclass(frozen=True, slots=True)
class Labelled:
    operator: str
    site: str


def by_site(mutant: Labelled) -> Verdict:
    """Does what the site says."""
    match mutant.site.split()[0]:
        case "killed":
            return Verdict(True, "result", "wrong")
        case "slow":
            time.sleep(60)
        case "stubborn":
            _ignore_everything()
        case "crash":
            os._exit(3)
        case "raise":
            raise ValueError("no idea")
    return Verdict(False, "same" if "same" in mutant.site else "", "")


def _ignore_everything() -> None:
    try:
        time.sleep(60)
    except BaseException:
        return
