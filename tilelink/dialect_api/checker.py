"""Check a Python file against the API of Triton-distributed: text in, findings out. Nothing is imported or run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tilelink.dialect_api.context import context
from tilelink.dialect_api.errors import SourceMissing
from tilelink.dialect_api.finding import Finding
from tilelink.dialect_api.model import Vendor
from tilelink.dialect_api.rule import Severity
from tilelink.dialect_api.rules import CHECKS
from tilelink.dialect_api.source import parse


@dataclass(frozen=True, slots=True)
class Report:
    """What the checker says of one file. `findings` are in the order of the file."""

    path: str
    vendor: Vendor
    findings: tuple[Finding, ...]

    @property
    def refuted(self) -> bool:
        """Whether there are mistakes; warnings alone refute nothing."""
        return any(found.severity is Severity.MISTAKE for found in self.findings)

    def lines(self) -> list[str]:
        """One line a finding, `FILE:LINE:COL: ...`, then the sum."""
        counts = [sum(found.severity is severity for found in self.findings) for severity in Severity]
        kinds = [
            f"{count} {severity.value}{'' if count == 1 else 's'}"
            for count, severity in zip(counts, Severity, strict=True)
        ]
        verdict = "refuted" if self.refuted else "valid"
        last = (
            f"{verdict}: {self.path} against the API of Triton-distributed on {self.vendor.value}: {', '.join(kinds)}"
        )
        return [*(found.text(self.path) for found in self.findings), last]

    def to_json(self) -> str:
        """`verdict`, `file`, `vendor` and `findings` with `rule`, `severity`, `line`, `column`, `message`, `legal`."""
        findings = [
            {
                "rule": found.rule.id,
                "severity": found.severity.value,
                "line": found.line,
                "column": found.column,
                "message": found.message,
                "legal": list(found.legal),
            }
            for found in self.findings
        ]
        verdict = "refuted" if self.refuted else "valid"
        shown = {"verdict": verdict, "file": self.path, "vendor": self.vendor.value, "findings": findings}
        return json.dumps(shown, indent=1)


def check_source(text: str, path: str = "<source>", vendor: Vendor | None = None) -> Report:
    """Check `text`; `vendor` overrules what its imports say. Raises SourceNotPython."""
    file = parse(text, path, vendor)
    everything = context(file)
    # one missing barrier is found on every path, and on each in other words
    found = {
        (one.rule, one.line, one.column, one.about): one for check in reversed(CHECKS) for one in check(everything)
    }
    return Report(path, file.vendor, tuple(sorted(found.values(), key=lambda one: one.order)))


def check_file(path: Path, vendor: Vendor | None = None) -> Report:
    """Check a file. Raises SourceMissing and SourceNotPython."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SourceMissing(path=str(path), reason=reason) from error
    return check_source(text, str(path), vendor)
