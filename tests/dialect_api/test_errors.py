"""What cannot be checked at all: an error class each, with facts that cross processes."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tilelink.dialect_api import check_file, check_source
from tilelink.dialect_api.errors import SourceMissing, SourceNotPython


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(SourceMissing) as caught:
        check_file(tmp_path / "nowhere.py")
    assert caught.value.facts["path"] == str(tmp_path / "nowhere.py")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_folder_and_a_picture(tmp_path: Path) -> None:
    with pytest.raises(SourceMissing):
        check_file(tmp_path)
    (tmp_path / "picture.py").write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(SourceMissing, match="not UTF-8"):
        check_file(tmp_path / "picture.py")


@pytest.mark.parametrize(("text", "line"), [("def f(:\n", 1), ("x = 1\n  y = 2\n", 2), ("x = '\0'", 1)])
def test_text_that_is_not_python(text: str, line: int) -> None:
    with pytest.raises(SourceNotPython) as caught:
        check_source(text, "file.py")
    assert (caught.value.facts["path"], caught.value.facts["line"]) == ("file.py", line)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


VECTOR_ADD = """import triton
import triton.language as tl

@triton.jit
def add(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at) + tl.load(y + at))
"""


@pytest.mark.parametrize("text", ["", "import torch\nprint(torch.ones(3))\n", VECTOR_ADD])
def test_a_file_without_anything_of_the_api_is_not_valid(text: str) -> None:
    report = check_source(text)
    assert (report.findings, report.verdict, report.exit_code) == ((), "nothing to check", 2)


@pytest.mark.parametrize(
    "text",
    [
        "import triton_dist.language\n",
        "from triton_dist.language import wait\n",
        f"{VECTOR_ADD}    tl.atomic_add(out, 1)\n",
    ],
)
def test_a_file_with_something_of_it_is(text: str) -> None:
    assert (check_source(text).verdict, check_source(text).exit_code) == ("valid", 0)
