"""The page in a real browser: no error, no request, zoom and focus by keyboard, and a picture of each section to look at.

Pictures go to the folder that `TILELINK_SHOTS` names, else to one of pytest's. Skipped where there is no Chromium, or no
playwright (the extra `browser`): CI needs neither.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.report.pages import page_of_workload
from tilelink.report.page import SECTIONS

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium on this machine, such as the package chromium of Debian has"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install -e '.[browser]'")
    with api.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


def opened(browser: Any, path: Path, scheme: str, wide: int = 1366) -> tuple[Any, list[str]]:
    """A tab with the page, and what the browser has to say of it so far and later."""
    tab, said = browser.new_page(viewport={"width": wide, "height": 850}, color_scheme=scheme), list[str]()
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda request: said.append(request.url) if not request.url.startswith("file:") else None)
    tab.goto(path.as_uri())
    return tab, said


@pytest.fixture
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    found = tmp_path / f"{request.param}.html"
    found.write_text(page_of_workload(request.param), encoding="utf-8")
    return found


@pytest.mark.parametrize("path", ["ag_gemm", "gemm_rs", "mlp"], indirect=True)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_section_shows(browser: Any, path: Path, scheme: str, tmp_path: Path) -> None:
    shots = Path(os.environ.get("TILELINK_SHOTS", tmp_path))
    shots.mkdir(parents=True, exist_ok=True)
    tab, said = opened(browser, path, scheme)
    for name, _ in SECTIONS:
        section = tab.query_selector(f"#{name}")
        assert section.bounding_box()["height"] > 40
        section.screenshot(path=shots / f"{path.stem}-{scheme}-{name}.png")
    background = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")
    assert said == []
    tab.close()


@pytest.mark.parametrize("path", ["ag_gemm"], indirect=True)
def test_the_time_line_by_keyboard(browser: Any, path: Path) -> None:
    tab, said = opened(browser, path, "light")
    tab.focus("#timeline .lane")
    assert tab.text_content(".readout").startswith("compute stream: ")
    tab.keyboard.press("ArrowRight")
    assert tab.text_content(".readout").startswith("out_kernel, 132 programs")
    tab.keyboard.press("Tab")
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowRight")
    assert "wait for the first chunk of x_full" in tab.text_content(".readout")
    wide = tab.query_selector("#timeline .plot").bounding_box()["width"]
    tab.keyboard.press("+")
    assert tab.query_selector("#timeline .plot").bounding_box()["width"] == pytest.approx(1.5 * wide, rel=0.01)
    tab.keyboard.press("0")
    assert tab.query_selector("#timeline .plot").bounding_box()["width"] == pytest.approx(wide, rel=0.01)
    tab.hover("#timeline .lane rect >> nth=3")
    assert " us to " in tab.text_content(".readout")
    assert said == []
    tab.close()


@pytest.mark.parametrize("path", ["gemm_rs"], indirect=True)
def test_a_link_into_the_emitted_file_opens_it(browser: Any, path: Path) -> None:
    tab, said = opened(browser, path, "light")
    assert not tab.evaluate("document.querySelector('#source details').open")
    tab.click("#schedule .to-source a")
    assert tab.evaluate("document.querySelector('#source details').open")
    assert tab.evaluate("location.hash").startswith("#L") and said == []
    tab.close()


@pytest.mark.parametrize("path", ["mlp"], indirect=True)
def test_it_fits_a_narrow_window_and_paper(browser: Any, path: Path) -> None:
    tab, said = opened(browser, path, "light", wide=420)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 420
    tab.emulate_media(media="print", color_scheme="dark")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert len(tab.pdf()) > 10_000 and said == []
    tab.close()


def test_it_is_whole_without_script(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page_of_workload("ag_gemm"), encoding="utf-8")
    context = browser.new_context(java_script_enabled=False, viewport={"width": 1366, "height": 850})
    tab = context.new_page()
    tab.goto(path.as_uri())
    assert tab.query_selector("#timeline svg rect title") is not None
    assert tab.query_selector(".zoom").bounding_box() is None
    context.close()
