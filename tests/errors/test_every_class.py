"""No error class is without a raise and a test, and every one has facts, a fix and a way across processes."""

from __future__ import annotations

import inspect
import pickle
import re
import string
from functools import cache
from pathlib import Path

import pytest

from tests.errors.wrong_inputs import COMMANDS, SNIPPETS
from tilelink import errors
from tilelink.errors import TileLinkError, did_you_mean

ROOT = Path(__file__).resolve().parents[2]
CLASSES = [
    kind
    for kind in vars(errors).values()
    if inspect.isclass(kind) and issubclass(kind, TileLinkError) and kind is not TileLinkError
]


@cache
def _raised() -> frozenset[str]:
    files = [*(ROOT / "tilelink").rglob("*.py"), *(ROOT / "lowering").rglob("*.py")]
    # by lines: to parse every file takes a second
    statement = re.compile(r"^ +(?:raise|return) (\w+)\(", re.MULTILINE)  # a helper may make what its caller raises
    return frozenset(name for file in files for name in statement.findall(file.read_text(encoding="utf-8")))


@cache
def _tested() -> frozenset[str]:
    """Names in `pytest.raises(Name)` of all tests, and in the table of wrong inputs."""
    call = re.compile(r"^ +with [^#\n]*pytest\.raises\((\w+)", re.MULTILINE)
    files = (ROOT / "tests").rglob("test_*.py")
    named = {name for file in files for name in call.findall(file.read_text(encoding="utf-8"))}
    return frozenset(named | {case.error for case in COMMANDS} | {case.error for case in SNIPPETS})


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_it_is_raised_and_tested(kind: type[TileLinkError]) -> None:
    assert kind.__name__ in _raised()
    assert kind.__name__ in _tested()


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_facts_are_kept_and_cross_processes(kind: type[TileLinkError]) -> None:
    names = {name for _, name, _, _ in string.Formatter().parse(kind.template) if name}
    assert names
    error = kind("spec.py:7", **{name: f"<{name}>" for name in names})
    assert str(error).startswith("spec.py:7: ")
    assert all(f"<{name}>" in str(error) for name in names)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (str(copy), copy.facts, copy.location) == (str(error), error.facts, "spec.py:7")
    assert str(kind(**dict.fromkeys(names, "x"))).count("spec.py") == 0


def test_hints() -> None:
    assert did_you_mean("matmull", ["matmul", "mul"]) == " Did you mean 'matmul'?"
    assert did_you_mean("zzz", ["matmul"]) == ""
    assert did_you_mean(3, ["matmul"]) == ""
