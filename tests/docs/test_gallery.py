"""The gallery: pages that need nothing else, with a measured call each, and a table that says what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.report.pages import Reader

GALLERY = Path(__file__).resolve().parents[2] / "docs" / "gallery"
PAGES = sorted(GALLERY.glob("*.html"))
ROW = re.compile(r"^\| \[[^]]+\]\((\w+\.html)\) \| ([^|]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+|–) \|$", re.MULTILINE)


def test_there_are_six() -> None:
    assert len(PAGES) == 6
    rows = ROW.findall((GALLERY / "README.md").read_text(encoding="utf-8"))
    assert sorted(name for name, *_ in rows) == [path.name for path in PAGES]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_says_what_the_table_says(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    page = Reader.of(text)
    measured = page.data["measured"]
    rows = {name: found for name, *found in ROW.findall((GALLERY / "README.md").read_text(encoding="utf-8"))}
    sizes, predicted, call, alone = rows[path.name]
    assert sizes in page.text_of("spec") or all(size in text for size in sizes.split())
    assert (predicted, call) == (f"{page.data['predicted_us']:.1f}", f"{measured['call_us']:.1f}")
    assert alone == ("–" if measured["alone_us"] is None else f"{measured['alone_us']:.1f}")
    assert page.data["proof"]["proved"]
    assert "Measured: what a call takes beyond computing alone" in page.text_of("time")
    assert len(text) < 1.0e6
    assert not re.findall(r"""(?:src|href)=["']?(?!#|data:)[^"'\s>]+""", text)
