"""The `reference` of a file: two forms, told apart by parameters and not by their names, and one error for all that fails."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from tests.adversary.bugs import edited, line_of
from tests.adversary.files import DOUBLE, REFERENCE, verified
from tilelink.adversary.verdict import VerdictKind
from tilelink.errors import FileReferenceFailed, NotAnOperatorFile

if TYPE_CHECKING:
    from pathlib import Path

TWO_INPUTS = (
    ('INPUTS = {"x": ((N,), torch.float32)}', 'INPUTS = {"x": ((N,), torch.float32), "w": ((N,), torch.float32)}'),
    ("def __call__(self, x):", "def __call__(self, x, w):"),
)
RIGHT = {
    "rank_inputs": "def reference(rank_inputs):\n    return [(2 * one['x'],) for one in rank_inputs]\n",
    "another name": "def reference(everything):\n    return [2 * one['x'] for one in everything]\n",
    "with a default": "def reference(ranks, scale=2):\n    return [scale * one['x'] for one in ranks]\n",
    "a generator": "def reference(ranks):\n    return (2 * one['x'] for one in ranks)\n",
    "of one rank": "def reference(x):\n    return 2 * x\n",
    "of one rank, with a default": "def reference(x, scale=2):\n    return [scale * x]\n",
    "any number": "def reference(*inputs):\n    return (2 * inputs[0],)\n",
    "an object": "class Twice:\n    def __call__(self, x):\n        return 2 * x\n\n\nreference = Twice()\n",
}
WRONG = {  # text, what is said, and a part of the line that is named
    "raises": ("def reference(ranks):\n    return [one['y'] for one in ranks]\n", "KeyError: 'y'", "one['y']"),
    "raises on one rank": ("def reference(x):\n    return x @ x.view(4, 4)\n", "RuntimeError", "x @ x"),
    "raises in a helper": (
        "def twice(one):\n    return 2 * one.x\n\n\ndef reference(ranks):\n    return list(map(twice, ranks))\n",
        "AttributeError",
        "one.x",
    ),
    "too many parameters": ("def reference(x, y):\n    return x\n", "it takes (x, y)", "def reference"),
    "no parameter": ("def reference():\n    return 1\n", "it takes ()", "def reference"),
    "a single tensor": (
        "def reference(ranks):\n    return 2 * ranks[0]['x']\n",
        "it returns a Tensor",
        "def reference",
    ),
    "nothing": ("def reference(ranks):\n    pass\n", "it returns a NoneType", "def reference"),
    "one rank of two": ("def reference(ranks):\n    return [2 * ranks[0]['x']]\n", "1 items for 2 ranks", "def ref"),
    "numbers": ("def reference(ranks):\n    return [1.0 for _ in ranks]\n", "is a float, not a tensor", "def ref"),
    "more outputs": ("def reference(x):\n    return 2 * x, x\n", "2 outputs of rank 0, and the operator 1", "def ref"),
    "another shape": ("def reference(x):\n    return 2 * x[None]\n", "has the shape [1, 16], and that", "def ref"),
    "no function": ("reference = 3\n", "it is a int, not a function", "operator.py"),
}


@pytest.mark.parametrize("form", RIGHT)
def test_forms(form: str, tmp_path: Path) -> None:
    found = verified(tmp_path, edited(DOUBLE, (REFERENCE, RIGHT[form])))
    assert found.kind is VerdictKind.NOT_REFUTED and found.compared, found.lines()


@pytest.mark.parametrize(
    "text",
    [
        "def reference(w, x):\n    return 2 * x\n",
        "def reference(first, second):\n    return 2 * first\n",
        "def reference(all_ranks):\n    return [2 * one['x'] for one in all_ranks]\n",
    ],
)
def test_inputs_by_name_or_in_their_order(text: str, tmp_path: Path) -> None:
    found = verified(tmp_path, edited(DOUBLE, *TWO_INPUTS, (REFERENCE, text)))
    assert found.kind is VerdictKind.NOT_REFUTED and found.compared, found.lines()


@pytest.mark.parametrize("mistake", WRONG)
def test_one_message_with_the_line_and_what_is_legal(mistake: str, tmp_path: Path) -> None:
    text, says, shown = WRONG[mistake]
    source = edited(DOUBLE, (REFERENCE, text))
    with pytest.raises(FileReferenceFailed) as caught:
        verified(tmp_path, source)
    message = str(caught.value)
    where = "operator.py" if shown == "operator.py" else f"operator.py:{line_of(source, shown)}"
    assert message.startswith(f"{where}: `reference`") and says in message
    assert "reference(x), which gets" in message and "reference(ranks)" in message
    assert str(pickle.loads(pickle.dumps(caught.value))) == message  # it comes from a worker process


def test_a_wrong_reference_is_still_refuted(tmp_path: Path) -> None:
    found = verified(tmp_path, edited(DOUBLE, ("2 * inputs", "3 * inputs")))
    assert found.kind is VerdictKind.REFUTED


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ('{"x": ((N,), torch.float32)}', '{"x": (N, torch.float32)}', "INPUTS of Double is"),
        ('{"x": ((N,), torch.float32)}', '{"x": ((N,), "fp32")}', "the dtype of input 'x' is 'fp32'"),
        ('{"x": ((N,), torch.float32)}', '["x"]', "INPUTS of Double is"),
        ("NUM_RANKS = 2", "NUM_RANKS = 'two'", "NUM_RANKS is 'two'"),
        ("NUM_SMS = 2", "NUM_SMS = 0", "NUM_SMS is 0"),
    ],
)
def test_a_class_that_declares_something_else(before: str, after: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(NotAnOperatorFile, match=says):
        verified(tmp_path, edited(DOUBLE, (before, after)))
