"""Check a Python file against the API of Triton-distributed: text in, findings out. Nothing is imported or run."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from pathlib import Path

from tilelink.dialect_api.errors import SourceMissing
from tilelink.dialect_api.rule import Finding, Severity
from tilelink.dialect_api.rules import barriers, equality, residency, single, tokens, types, values
from tilelink.dialect_api.source import SourceFile, parse
from tilelink.dialect_api.walk import context
from tilelink.stubs.model import Vendor
from tilelink.stubs.typecheck import Ask, Message, TypesNotChecked, ask_mypy

_RULES = (types, values, single, tokens, barriers, equality, residency)
_ATOMIC = "triton.language.atomic_"
_UNUSED = (
    "imports nothing of Triton-distributed and has no kernel with atomics.\n"
    "An operator is run and checked without --api; a spec is verified as FILE.py:FUNCTION."
)


@dataclass(frozen=True, slots=True)
class Report:
    """What the checker says of one file. `findings` are in the order of the file."""

    path: str
    vendor: Vendor
    findings: tuple[Finding, ...]
    empty: bool = False  # the file has nothing that the rules are about
    unchecked: str = ""  # what was not checked, and why

    @property
    def verdict(self) -> str:
        if self.refuted:
            return "refuted"
        return "nothing to check" if self.empty else "not checked" if self.unchecked else "valid"

    @property
    def exit_code(self) -> int:
        """0: valid, 1: refuted, 2: something was not checked, or nothing."""
        return {"valid": 0, "refuted": 1}.get(self.verdict, 2)

    @property
    def refuted(self) -> bool:
        """Whether there are mistakes; warnings alone refute nothing."""
        return any(found.severity is Severity.MISTAKE for found in self.findings)

    def lines(self) -> list[str]:
        """One line a finding, `FILE:LINE:COL: ...`, then the sum."""
        if self.verdict == "nothing to check":
            return [f"nothing to check: {self.path} {_UNUSED}"]
        counts = [(sum(found.severity is one for found in self.findings), one.value) for one in Severity]
        kinds = [f"{count} {name}{'' if count == 1 else 's'}" for count, name in counts]
        last = f"{self.verdict}: {self.path} against the API of Triton-distributed on {self.vendor.value}: {', '.join(kinds)}"
        left_out = [f"not checked: {self.unchecked}"] if self.unchecked else []
        return [*(found.text(self.path) for found in self.findings), *left_out, last]

    def to_json(self) -> str:
        """`verdict`, `file`, `vendor`, `unchecked`; `findings` with `rule`, `severity`, `line`, `column`, `message`, `legal`."""
        shown = {"verdict": self.verdict, "file": self.path, "vendor": self.vendor.value, "unchecked": self.unchecked}
        return json.dumps({**shown, "findings": [found.facts() for found in self.findings]}, indent=1)


def check_source(text: str, path: str = "<source>", vendor: Vendor | None = None, ask: Ask = ask_mypy) -> Report:
    """Check `text`; `vendor` overrules what its imports say, `ask` is the type checker. Raises SourceNotPython."""
    file = parse(text, path, vendor)
    uses_api = any(imported.split(".")[0] in ("triton_dist", "pyrocshmem") for imported in file.imported_modules())
    messages, unchecked = tuple[Message, ...](), ""
    if uses_api:
        try:
            messages = ask(text, file.vendor)
        except TypesNotChecked as error:
            unchecked = str(error)
    everything = context(file, messages)
    # one missing barrier is found on every path, and on each in other words
    found = {(one.rule, one.line, one.column): one for rules in reversed(_RULES) for one in rules.check(everything)}
    findings = tuple(sorted(found.values(), key=lambda one: one.order))
    return Report(path, file.vendor, findings, not (findings or uses_api or _has_atomics(file)), unchecked)


def _has_atomics(file: SourceFile) -> bool:
    """Whether a kernel of stock Triton has an atomic, for which the rules of order hold too."""
    calls = (node.func for kernel in file.kernels() for node in ast.walk(kernel.node) if isinstance(node, ast.Call))
    return any(file.full_path(function).startswith(_ATOMIC) for function in calls)


def check_file(path: Path, vendor: Vendor | None = None) -> Report:
    """Check a file. Raises SourceMissing and SourceNotPython."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SourceMissing(path=str(path), reason=reason) from error
    return check_source(text, str(path), vendor)
