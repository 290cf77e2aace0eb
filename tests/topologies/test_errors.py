"""The base class, and that no error class is without a raise or a test."""

from __future__ import annotations

import pickle
import string
from pathlib import Path

import pytest

import topologies
from topologies import UserError, errors

CLASSES = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, UserError) and kind is not UserError
]


class TooFew(UserError):
    template = "{found} is too few.\nLegal: {legal}."


def test_facts_are_attributes_and_text() -> None:
    error = TooFew(found=1, legal="{2}")
    assert error.facts == {"found": 1, "legal": "{2}"}
    assert str(error) == "1 is too few.\nLegal: {2}."


def test_errors_cross_processes() -> None:
    error = TooFew(found=1, legal="2")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is TooFew
    assert (str(copy), copy.facts) == (str(error), error.facts)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_each_class_is_raised_exported_tested_and_documented(kind: type[UserError]) -> None:
    package, tests = Path(str(topologies.__file__)).parent, Path(__file__).parent
    source = "".join(path.read_text(encoding="utf-8") for path in package.glob("*.py"))
    assert f"{kind.__name__}(\n" in source or source.count(f"{kind.__name__}(") > 1
    assert getattr(topologies, kind.__name__) is kind
    assert any(f"pytest.raises({kind.__name__}" in path.read_text("utf-8") for path in tests.glob("*.py"))
    facts = [name for _, name, _, _ in string.Formatter().parse(kind.template) if name]
    assert facts
    assert all(fact in str(kind.__doc__) for fact in facts)
