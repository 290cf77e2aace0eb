"""The rules as a table for the manual."""

from __future__ import annotations

from tilelink.dialect_api.rule import Rule, Severity


def rules_table() -> str:
    """Markdown, one row a rule, in the order of the code; warnings say that they are."""
    rows = ["| rule | what holds in a valid file |", "| --- | --- |"]
    for rule in Rule:
        warning = " (warning)" if rule.severity is Severity.WARNING else ""
        rows.append(f"| `{rule.id}`{warning} | {rule.sentence} |")
    return "\n".join(rows) + "\n"
