"""docs/verification.md: every class of bug and every verdict has its row."""

from __future__ import annotations

import re
from pathlib import Path

from tilelink.adversary.verdict import VerdictKind
from tilelink.proof.bug_class import BugClass

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "verification.md").read_text(encoding="utf-8")


def test_every_class_is_listed() -> None:
    assert [int(number) for number in re.findall(r"^\| (\d+) \| ", TEXT, re.MULTILINE)] == [
        bug.number for bug in BugClass
    ]
    assert f"The {len(BugClass)} classes of bugs" in TEXT


def test_every_verdict_is_listed() -> None:
    rows = dict(re.findall(r"^\| ([a-z ]+) \| (\d) \| ", TEXT, re.MULTILINE))
    assert rows == {kind.value: str(kind.exit_code) for kind in VerdictKind}
