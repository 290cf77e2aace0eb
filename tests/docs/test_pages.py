"""README and pages of docs/: short, in plain sentences, linked, and true of this commit; generated ones are up to date."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

import pytest

from tests.docs.api_page import page as api_page
from tests.docs.picture import picture
from tests.docs.prose import prose, sentences
from tests.docs.test_readme import USERS
from tilelink.ir.collective import Landing
from tilelink.ir.enums import Protocol
from tilelink.ir.movers import Transfer
from tilelink.ir.order import Nest
from tilelink.planner import fields

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
NAMES = ("index", *USERS, "check_a_kernel", "performance", "api", "glossary")
PAGES = ("README.md", *(f"docs/{name}.md" for name in NAMES))
TUTORIALS = tuple(sorted(f"docs/tutorials/{path.name}" for path in (DOCS / "tutorials").glob("*.md")))
CONTRIBUTORS = ("docs/design.md", "docs/mechanisms.md")
TREES = ("tilelink", "lowering", "topologies", "tests", "examples", "benchmarks", "docs")
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
COMMIT = re.compile(r"\bcommit [0-9a-f]{7,40}\b|`[0-9a-f]{7,40}`")
MOST_WORDS, MEAN, LONGEST = 1300, 20, 45
# a user should meet about 10,000; 1,000 are about attention, 300 about folds, 350 about nodes
MOST_IN_ALL = 13_050


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def test_the_readme_is_short() -> None:
    assert len(prose(read("README.md")).split()) <= MOST_WORDS


def test_all_pages_together_are_short() -> None:
    assert sum(len(re.findall(r"[^\s|`]+", FENCED.sub("", read(page)))) for page in PAGES) <= MOST_IN_ALL


@pytest.mark.parametrize("page", (*PAGES, *TUTORIALS))
def test_sentences_are_short(page: str) -> None:
    found = sentences(read(page))
    assert [" ".join(words) for words in found if len(words) > LONGEST] == []
    assert not found or sum(map(len, found)) / len(found) <= MEAN


@pytest.mark.parametrize("page", (*PAGES, *TUTORIALS))
def test_no_other_commit_is_mentioned(page: str) -> None:
    assert COMMIT.findall(FENCED.sub("", read(page))) == []


def heads(page: Path) -> set[str]:
    """Anchors of a page, as GitHub makes them of headings."""
    found = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in found}


@pytest.mark.parametrize("page", ["README.md", *sorted(f"docs/{path.name}" for path in DOCS.glob("*.md")), *TUTORIALS])
def test_links_resolve(page: str) -> None:
    for link in LINK.findall(CODE.sub("", read(page))):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        assert target.exists(), f"{page}: {link}"
        assert not anchor or anchor in heads(target), f"{page}: {link}"


def test_every_page_is_linked_from_the_index() -> None:
    linked = set(LINK.findall(read("docs/index.md")))
    assert {path.name for path in DOCS.glob("*.md")} - {"index.md"} <= linked


def test_pins_are_those_of_the_planner() -> None:
    text = read("docs/pins.md")
    rows = re.findall(r"^\| (?:`(\w+)`)? *\| [^|]+ \| (.*) \|$", text, re.MULTILINE)
    assert {name for name, _ in rows if name} == fields.BY_NAME.keys()
    values = {value for _, row in rows for value in re.findall(r"`([^`]+)`", row)}
    assert {str(member.value) for kind in (Protocol, Landing, Transfer, Nest) for member in kind} <= values


def generated(path: Path, text: str, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, f"{path.name} is out of date: pytest --update-golden"


def test_the_api_page_is_generated(request: pytest.FixtureRequest) -> None:
    generated(DOCS / "api.md", api_page(), request)


@pytest.mark.slow
def test_the_picture_is_generated(request: pytest.FixtureRequest) -> None:
    generated(DOCS / "overlap.svg", picture(), request)


def named_in_code(page: str, pattern: str) -> set[str]:
    """Matches of the pattern in the inline code of a page."""
    spans = re.findall(r"`([^`\n]+)`", FENCED.sub("", read(page)))
    return {found for span in spans for found in re.findall(pattern, span)}


@pytest.mark.parametrize("page", CONTRIBUTORS)
def test_files_that_are_named_exist(page: str) -> None:
    """By the end of their path; `NAME` stands for any name."""
    paths = (*ROOT.glob("*"), *(path for tree in TREES for path in (ROOT / tree).rglob("*")))
    files = [f"/{path.relative_to(ROOT)}" for path in paths]
    named = named_in_code(page, r"(?<![\w./*])[\w/*-]+(?:\.(?:py|toml|sh)|/)(?!\w)")
    assert len(named) > 20
    patterns = {one: "*/" + one.rstrip("/").replace("NAME", "*") for one in named}
    assert [one for one, pattern in sorted(patterns.items()) if not fnmatch.filter(files, pattern)] == []


@pytest.mark.parametrize("page", CONTRIBUTORS)
def test_classes_that_are_named_exist(page: str) -> None:
    texts = [path.read_text(encoding="utf-8") for tree in TREES for path in (ROOT / tree).rglob("*.py")]
    defined = {name for text in texts for name in re.findall(r"^(?:class )?([A-Z]\w+)(?:[:(]| = )", text, re.MULTILINE)}
    named = named_in_code(page, r"(?<!\w)[A-Z][a-z]+[A-Z]?\w+")
    assert len(named) > 5 and sorted(named - defined) == []
