"""The rules of the checker, and what it says of one place: a finding."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    MISTAKE = "mistake"  # does not compile, hangs, or gives wrong results
    WARNING = "warning"  # slow, or not known to the API data


class Rule(Enum):
    """What holds in a valid file, a sentence each. The comments name the sections of our notes that they follow from."""

    UNKNOWN_MODULE = "Imported modules of triton_dist exist."  # 1-4
    UNKNOWN_NAME = "Names imported from and looked up in triton_dist exist."  # 1-4
    TOO_MANY_ARGUMENTS = "A call has no more arguments than the function has parameters."  # 1-4
    MISSING_ARGUMENT = "Every parameter without a default is given."  # 1-4
    DUPLICATE_ARGUMENT = "A parameter is given once, by position or by keyword."  # 1-4
    UNKNOWN_KEYWORD = "Keywords are names of parameters."  # 1-4
    WRONG_CONSTANT = "Scopes, semantics, sig_op and comm_scope are constants from the list of their parameter."  # 1, 3
    LITERAL_CONSTANT = "Comparisons, signal operations and teams have names: numbers differ between vendors."  # 2
    WRONG_WIDTH = "Signals have a width that the function takes: notify and SHMEM 64 bits, wait 32 or 64."  # 1, 2, 5.4
    BYTES_ARE_ELEMENTS = "Sizes of puts, gets and copies are bytes, not elements."  # 2, 4
    EQUALITY_CAN_PASS = "A wait compares by equality, so the word does not step over the value waited for."  # 5.1
    TOO_MANY_SIGNALS = "One dl.wait covers at most 32 words on NVIDIA."  # 5.1
    TOKEN_UNUSED = "The token of dl.wait is consumed; else the wait may be moved or removed."  # 1
    TOKEN_NOT_IN_LOAD = "What loads the data waited for has taken the token, or a barrier stands between."  # 5.2
    TOKEN_ORDER = "consume_token takes the value first, then the token."  # 1
    NO_BARRIER_BEFORE_RAISE = "On every path a barrier stands between the program's stores and a raised signal."  # 5.3
    WEAK_SIGNAL = "A signal between GPUs is raised with release and waited for with acquire, at system scope."  # 5.3
    IMPLICIT_COMM_SCOPE = "notify names its comm_scope; the default is the slow path."  # 5.6
    NOTIFY_ON_AMD = "AMD has no notify: use a releasing st at system scope, or a put with signal."  # 5.5
    NOT_ON_VENDOR = "Functions, constants and modules exist on the vendor of the file."  # 2, 3
    SYMM_AT_TENSOR = "symm_at and notify take one pointer, not a tensor of pointers."  # 1
    SYMM_AT_ARITHMETIC = "Arithmetic comes after symm_at: dl.symm_at(base, rank) + offset."  # 1
    MC_PTR_ORDER = "remote_mc_ptr takes the team first, then the pointer."  # 2
    NOT_RESIDENT = "A kernel that spins is launched as a cooperative grid, or with no more programs than SMs."  # 5.8
    NEEDS_DIST_JIT = "A kernel that asks for ranks, peers, notify or SHMEM is decorated with triton_dist.jit."  # 1
    RANK_CONSTEXPR = "rank is no constexpr: each rank would compile a kernel of its own."  # 5.10
    HOST_IN_KERNEL = "Host functions are not called in kernels."  # 4
    DEVICE_ON_HOST = "Device functions are not called on the host."  # 1-3
    FLATTENED_BARRIER = "A persistent loop over tiles and k in one has no barrier in it: it stalls the pipeline."  # 5.7

    @property
    def id(self) -> str:
        """`no-barrier-before-raise`, as findings name it."""
        return self.name.lower().replace("_", "-")

    @property
    def severity(self) -> Severity:
        slow = (Rule.SYMM_AT_ARITHMETIC, Rule.FLATTENED_BARRIER)
        return Severity.WARNING if self in slow else Severity.MISTAKE


Node = ast.expr | ast.stmt | ast.arg | ast.keyword | ast.alias


@dataclass(frozen=True, slots=True)
class Finding:
    """`line` counts from 1 and `column` too; `legal` are the alternatives, as one would write them."""

    rule: Rule
    line: int
    column: int
    message: str
    legal: tuple[str, ...] = ()

    @property
    def severity(self) -> Severity:
        return self.rule.severity

    @property
    def order(self) -> tuple[int, int, str, str]:
        """Findings are listed by place, then rule."""
        return self.line, self.column, self.rule.id, self.message

    def facts(self) -> dict[str, object]:
        """What a program that reads the report is told."""
        at = {"line": self.line, "column": self.column, "message": self.message, "legal": list(self.legal)}
        return {"rule": self.rule.id, "severity": self.severity.value, **at}

    def text(self, path: str) -> str:
        """`FILE:LINE:COL: mistake unknown-name: what is wrong. Legal: a, b.`"""
        legal = f" Legal: {', '.join(self.legal)}." if self.legal else ""
        return f"{path}:{self.line}:{self.column}: {self.severity.value} {self.rule.id}: {self.message.rstrip('?')}.{legal}"


def finding(rule: Rule, node: Node, message: str, *legal: str) -> Finding:
    """A finding at the first character of a node."""
    return Finding(rule, node.lineno, node.col_offset + 1, message, legal)
