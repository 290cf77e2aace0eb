"""docs/triton_distributed.md: its table of rules is the one of the code, and what it shows is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.dialect_api.seeds import QUEUE, sample
from tilelink.dialect_api import Rule, Severity, check_source

PAGE = Path(__file__).resolve().parents[2] / "docs" / "triton_distributed.md"
TABLE = re.compile(r"(<!-- rules: [^\n]*-->\n).*?(<!-- end of rules -->)", re.DOTALL)


def rules_table() -> str:
    """Markdown for the manual, one row a rule, in the order of the code; warnings say that they are."""
    rows = ["| rule | what holds in a valid file |", "| --- | --- |"]
    for rule in Rule:
        warning = " (warning)" if rule.severity is Severity.WARNING else ""
        rows.append(f"| `{rule.id}`{warning} | {rule.value} |")
    return "\n".join(rows) + "\n"


def test_the_table_is_that_of_the_code(request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text(encoding="utf-8")
    wanted, count = TABLE.subn(lambda match: match[1] + rules_table() + match[2], text)
    assert count == 1
    if request.config.getoption("--update-golden"):
        PAGE.write_text(wanted, encoding="utf-8")
        return
    assert text == wanted, "the table is out of date: pytest --update-golden, then read the diff"


def test_the_finding_that_is_shown() -> None:
    line = "value)\n    __syncthreads()\n"
    found = check_source(sample(QUEUE).replace(line, "value)\n    pass\n")).findings
    assert f"```text\n{found[0].text('queue.py')}\n```" in PAGE.read_text(encoding="utf-8")
