"""The API of Triton-distributed as data, and a checker of files against it."""

from __future__ import annotations

from tilelink.dialect_api.checker import Report, check_file, check_source
from tilelink.dialect_api.rule import Finding, Rule, Severity
from tilelink.stubs.functions import CONSTANTS, FUNCTIONS, find, of_vendor
from tilelink.stubs.model import Constant, Function, Vendor

__all__ = [
    "CONSTANTS",
    "FUNCTIONS",
    "Constant",
    "Finding",
    "Function",
    "Report",
    "Rule",
    "Severity",
    "Vendor",
    "check_file",
    "check_source",
    "find",
    "of_vendor",
]
