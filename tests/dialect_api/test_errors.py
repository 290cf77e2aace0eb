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


def test_an_empty_file_is_valid() -> None:
    assert check_source("").findings == ()
