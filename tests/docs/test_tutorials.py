"""docs/tutorials/: each script runs from a fresh process and folder, its page is made from it, and both are short.

`pytest --update-golden tests/docs/test_tutorials.py` writes the pages anew.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs import tutorial_page
from tests.docs.prose import prose

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "tutorials"
SCRIPTS = sorted(FOLDER.glob(tutorial_page.NUMBERED))
MOST_WORDS = 900  # of prose


def ids(path: Path) -> str:
    return path.stem


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=ids)
def test_it_runs_and_its_page_is_up_to_date(script: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    for name in ("examples", "topologies"):  # which the scripts name, from the root of the repository
        (tmp_path / name).symlink_to(ROOT / name)
    maker = [sys.executable, tutorial_page.__file__, str(script)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error::SyntaxWarning"}
    done = subprocess.run(maker, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    page = script.with_suffix(".md")
    if request.config.getoption("--update-golden"):
        page.write_text(done.stdout, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == done.stdout, f"{page.name} is out of date: pytest --update-golden"


@pytest.mark.parametrize("script", SCRIPTS, ids=ids)
def test_prose_and_code_of_the_page_are_those_of_the_script(script: Path) -> None:
    """What the quick suite can see without running it: an edit of a script without its page, or of a page alone."""
    page = script.with_suffix(".md").read_text(encoding="utf-8")
    at = 0
    for cell in tutorial_page.cells(script.read_text(encoding="utf-8")):
        shown = cell.text.partition("\n")[2].strip() if at == 0 else cell.text  # a line stands below the heading
        if cell.is_prose or not tutorial_page.is_command(cell):
            assert shown in page[at:], f"{script.name}:{cell.line} is not in its page: pytest --update-golden"
            at = page.index(shown, at) + len(shown)


@pytest.mark.parametrize("script", SCRIPTS, ids=ids)
def test_it_is_short(script: Path) -> None:
    assert len(prose(tutorial_page.prose_of(script.read_text(encoding="utf-8"))).split()) <= MOST_WORDS


def test_each_has_its_row() -> None:
    """In order, under its title."""
    rows = [line for line in (FOLDER / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith("| [")]
    links = [f"| [{tutorial_page.title(script)}]({script.stem}.md) |" for script in SCRIPTS]
    assert len(SCRIPTS) == 8
    assert [row[: len(link)] for row, link in zip(rows, links, strict=True)] == links


def test_cells_are_prose_or_code() -> None:
    """A script is cut as notebooks cut it."""
    text = "# %% [markdown]\n# # Title\n# Words.\n#\n# More.\n\n# %%\nx = 1\n\n# %%\nsh('tilelink demo')\n"
    first, code, command = tutorial_page.cells(text)
    assert (first.is_prose, first.text, first.line) == (True, "# Title\nWords.\n\nMore.", 2)
    assert (code.is_prose, code.text, code.line) == (False, "x = 1", 8)
    assert not tutorial_page.is_command(code) and tutorial_page.is_command(command)
    with pytest.raises(AssertionError, match="line 2: prose stands in comments"):
        tutorial_page.cells("# %% [markdown]\nno comment\n")
