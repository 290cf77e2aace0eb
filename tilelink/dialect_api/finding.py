"""One mistake that the checker found, and where."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from tilelink.dialect_api.rule import Rule, Severity

Node = ast.expr | ast.stmt | ast.arg | ast.keyword | ast.alias


@dataclass(frozen=True, slots=True)
class Finding:
    """`line` counts from 1 and `column` too; `legal` are the alternatives, as one would write them.

    `about`: which of several things of one place, such as a parameter, it is about; empty where a place can break a rule once.
    """

    rule: Rule
    line: int
    column: int
    message: str
    legal: tuple[str, ...] = ()
    about: str = ""

    @property
    def severity(self) -> Severity:
        return self.rule.severity

    @property
    def order(self) -> tuple[int, int, str, str]:
        """Findings are listed by place, then rule."""
        return self.line, self.column, self.rule.id, self.message

    def text(self, path: str) -> str:
        """`FILE:LINE:COL: mistake unknown-name: what is wrong. Legal: a, b.`"""
        legal = f" Legal: {', '.join(self.legal)}." if self.legal else ""
        return f"{path}:{self.line}:{self.column}: {self.severity.value} {self.rule.id}: {self.message}.{legal}"


def finding(rule: Rule, node: Node, message: str, *legal: str, about: str = "") -> Finding:
    """A finding at the first character of a node."""
    return Finding(rule, node.lineno, node.col_offset + 1, message, legal, about)
