"""Asks mypy about a file against the stubs of a vendor: text in, messages out. Nothing of the file is imported."""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tilelink.stubs.model import Vendor
from topologies.errors import UserError

_SILENCES = re.compile(r"#\s*(mypy|type)\s*:")  # comments that would keep mypy from saying what it sees
_RELATIVE = re.compile(r"\bfrom\s+\.+")  # imports that have no meaning in a text without a package


class TypesNotChecked(UserError):
    """Facts: reason. The rest of a file can be checked all the same."""

    template = "names, arguments and constants: {reason}"


class Span(NamedTuple):
    """Where something begins and ends, as `ast` counts lines and columns."""

    line: int
    column: int
    end_line: int
    end_column: int


class Message(NamedTuple):
    """An error that a type checker sees, in its words."""

    span: Span
    text: str


Ask = Callable[[str, Vendor], tuple[Message, ...]]


def folder(vendor: Vendor) -> Path:
    """Where the stubs of a vendor lie: what a type checker is given as its path of stubs."""
    return Path(__file__).parent / vendor.value


def span(node: ast.expr | ast.stmt) -> Span:
    return Span(node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)


def ask_mypy(text: str, vendor: Vendor) -> tuple[Message, ...]:
    """All errors that mypy sees in `text`, functions without annotations included. Raises TypesNotChecked.

    It knows Triton-distributed and the standard library; all else is of any type to it.
    """
    try:
        from mypy import api  # optional, and slow to import
    except ImportError:
        raise TypesNotChecked(reason="mypy is not installed; pip install 'tilelink-overlap[api]'") from None
    options = ("--config-file", str(folder(vendor) / "mypy.ini"), "--cache-dir", _cache(vendor), "--output", "json")
    limit = sys.getrecursionlimit()  # which mypy raises for the whole process
    shown, errors, status = api.run([*options, "--command", _plain(text)])
    sys.setrecursionlimit(limit)
    found = [json.loads(line) for line in shown.splitlines() if line.startswith("{")]
    if status not in (0, 1):  # it has stopped at something that is more than a wrong type
        why = [f"line {one['line']}: {one['message']}" for one in found] or errors.splitlines() or [shown]
        raise TypesNotChecked(reason=f"mypy stops: {why[0]}")
    found = [one for one in found if one["severity"] == "error"]
    return tuple(Message(Span(*(one[field] for field in Span._fields)), one["message"]) for one in found)


def _plain(text: str) -> str:
    """The text with every node where it was, without what stops or silences mypy, or makes it count other columns."""
    text = _SILENCES.sub(lambda match: match[0].upper(), text)
    text = _RELATIVE.sub(lambda match: match[0].replace(".", "_"), text)
    return bytes(byte if byte < 128 else ord("a") + byte % 26 for byte in text.encode()).decode()


def _cache(vendor: Vendor) -> str:
    """A folder of the user, not of the project; none where it cannot be written.

    One a vendor: mypy files what it knows under names of modules, and two runs at once may mix what they file.
    """
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tilelink" / "mypy" / vendor.value
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError:
        return os.devnull
    return str(root) if os.access(root, os.W_OK) else os.devnull
