"""The page as HTML: whole, self-contained, readable without sight and without a mouse, and true of the plan."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.machine_speed import limit
from tests.report.pages import WORKLOADS, Reader, facts_for, of_overlap
from tilelink.explanation import explanation_json
from tilelink.report.facts import Facts
from tilelink.report.page import SECTIONS, page
from tilelink.spec_file import load_overlap

every_workload = pytest.mark.parametrize("name", WORKLOADS)


@every_workload
@pytest.mark.quick(1)
def test_it_is_whole_and_alone(name: str, shown: Callable[[str], Reader]) -> None:
    found = shown(name)
    ids = [attrs["id"] for _, attrs in found.elements if "id" in attrs]
    assert len(set(ids)) == len(ids)
    anchors = {value for _, attrs in found.elements for key, value in attrs.items() if key in ("href", "xlink:href")}
    assert {one[1:] for one in anchors if one} <= set(ids) and all(one and one.startswith("#") for one in anchors)
    assert {section for section, _ in SECTIONS} <= set(ids)
    assert not [tag for tag, _ in found.elements if tag in ("link", "img", "iframe", "object", "base")]
    assert not [attrs for _, attrs in found.elements if "src" in attrs]
    styles = "".join(found.texts.get(number, "") for number, _ in found.all("style"))
    assert "@import" not in styles and "url(" not in styles
    outside = re.sub(r'xmlns="http://www\.w3\.org/2000/svg"', "", found.raw)
    assert not re.search(r"https?://", outside.partition('id="source"')[0])


@every_workload
@pytest.mark.quick(0)
def test_it_can_be_read_without_sight_and_used_without_a_mouse(name: str, shown: Callable[[str], Reader]) -> None:
    found = shown(name)
    tags = [tag for tag, _ in found.elements]
    assert tags.count("h1") == tags.count("main") == tags.count("title") - len(found.all("rect")) - _arrows(found) == 1
    assert found.elements[0][1]["lang"] == "en"
    assert all(attrs.get("scope") in ("row", "col") for _, attrs in found.all("th"))
    assert tags.count("caption") == tags.count("table")
    for number, attrs in found.all("svg"):
        assert attrs.get("aria-label"), f"picture {number} has no name"
    lanes = [attrs for _, attrs in found.all("g") if attrs.get("class") == "lane"]
    assert lanes and all(attrs["tabindex"] == "0" and attrs["aria-label"] for attrs in lanes)
    assert found.elements[[tag for tag, _ in found.elements].index("body") + 1][1] == {"href": "#main"}


def _arrows(found: Reader) -> int:
    """Titles of the arrows of the graph; its boxes have none."""
    arrows = [number for number, _ in found.all("path") if "marker" not in found.within[number]]
    boxes = [
        number for number, _ in found.all("rect") if "g" not in found.within[number] and "svg" in found.within[number]
    ]
    untitled = [number for number in boxes if found.elements[number + 1][0] != "title"]
    return len(arrows) - len(untitled)


@every_workload
@pytest.mark.quick(1)
def test_the_data_are_those_of_the_plan(
    name: str, shown: Callable[[str], Reader], facts: Callable[[str], Facts]
) -> None:
    data, of = shown(name).data, facts(name)
    assert data["schedule"] == json.loads(of.schedule.to_json()) and data["hash"] == of.schedule.hash
    assert data["why"] == json.loads(explanation_json(of.explanation))
    assert data["predicted_us"] == pytest.approx(of.schedule.predicted_us, abs=1e-3)
    assert sum(term["us"] for term in data["why"]["critical"]) == pytest.approx(data["predicted_us"])
    assert data["proof"]["proved"] and data["measured"] is None
    assert [one["name"] for one in data["signals"]] == [signal.name for signal in of.steps.signals]
    assert {one["name"] for one in data["memory"]["buffers"]} == {buffer.name for buffer in of.steps.buffers}
    for kernel, tiles in data["timeline"]["tiles"].items():
        times = of.course.tiles[kernel].times
        assert tiles["ends_us"] == pytest.approx(times.ends_us.tolist(), abs=1e-6)
        assert all(begin < end for begin, end in zip(tiles["begins_us"], tiles["ends_us"], strict=True))


def test_what_users_wrote_is_text(tmp_path: Path) -> None:
    path = tmp_path / "angry.py"
    path.write_text(
        "import tilelink\nfrom tilelink import Shard, Tensor, dims\nM, N = dims('M N')\n\n@tilelink.overlap\n"
        "def gather(x: Tensor(M, N, placement=Shard(0))):\n"
        '    # </script><script>alert(1)</script> & <b>"quoted"</b> ]]> <!--\n'
        "    return tilelink.all_gather(x, dim=0)\n"
    )
    found = Reader.of(page(of_overlap(load_overlap(f"{path}:gather"), "M=256 N=128", 2)))
    assert len(found.all("script")) == 2 and not found.all("b")
    assert '<script>alert(1)</script> & <b>"quoted"</b>' in found.text_of("spec")
    assert "alert(1)" in json.dumps(found.data)


def test_where_the_time_beyond_the_matmul_goes(shown: Callable[[str], Reader], facts: Callable[[str], Facts]) -> None:
    """Of GEMM + ReduceScatter on two ranks, from the text of the page alone."""
    found, of = shown("gemm_rs"), facts("gemm_rs")
    terms = {term.what: term.us for term in of.account.critical}
    beyond = of.account.total_us - terms["matmul of y"]
    text = found.text_of("time")
    assert f"{of.account.total_us:.1f} us predicted" in text and f"{beyond:.1f} us go beyond that" in text
    exposed = found.text_of("exposed")
    for what, us in terms.items():
        if what != "matmul of y" and us >= 0.05:
            assert f"{us:.1f} us" in exposed and what in exposed
    assert "2,048 tiles on 132 programs are 15.52 rounds" in exposed
    limits = of.limits
    least = max(limits.alone_us, limits.links_us)
    assert f"{of.account.total_us - least:.1f} us" in found.text_of("exposed-predicted")


@pytest.mark.slow
def test_a_page_says_what_it_leaves_out(shown: Callable[[str], Reader]) -> None:
    found = shown("library")
    assert "the library computes everything" in found.text_of("order")
    assert "reduce_scatter of out by the library" in found.text_of("exposed")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "sizes"),
    [("05_mlp.py:mlp", "M=8192 H=4096 F=14336"), ("02_ag_gemm.py:ag_gemm", "M=8192 K=4096 N=14336")],
)
def test_it_is_small_and_soon_there(spec: str, sizes: str) -> None:
    """8,192 rows on 8 ranks: at most 1.5 MB, and at most 3 s behind planning."""
    of = facts_for(spec, sizes, 8, None, ())
    begin = time.process_time()
    text = page(of)
    assert time.process_time() - begin <= limit(3.0)
    assert len(text.encode()) <= 1_500_000
    assert text.count("<rect") <= 10_000
