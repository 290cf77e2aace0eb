"""Pages of workloads, most of them small, made once; and a page as what tests read of it."""

from __future__ import annotations

import json
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import topologies
from tilelink.declaration import Overlap
from tilelink.ir.spec import bind
from tilelink.planner.explain import explain
from tilelink.proof.verify import verify
from tilelink.report.facts import Facts, facts_of
from tilelink.report.measured import Measured
from tilelink.report.page import page
from tilelink.spec_file import load_overlap, parse_pins, parse_sizes

EXAMPLES = Path(__file__).parents[2] / "examples"
# name: what `tilelink show` takes, ranks, and nodes
WORKLOADS = {
    "ag_gemm": ("02_ag_gemm.py:ag_gemm", "M=8192 K=4096 N=14336", 8, None, ()),
    "gemm_rs": ("03_gemm_rs.py:gemm_rs", "M=8192 K=14336 N=4096", 2, None, ()),
    "mlp": ("05_mlp.py:mlp", "M=2048 H=512 F=1024", 4, None, ()),
    "library": ("03_gemm_rs.py:gemm_rs", "M=1024 K=512 N=512", 2, None, ("mover=Library()", "y.compute=library")),
    "gather": ("11_reduce_scatter.py:all_gather", "M=2048 N=1024", 4, None, ()),
    "attention": ("13_prefill.py:prefill", "B=1 S=1024 Q=8 G=2 D=64", 2, None, ()),
    "experts": ("09_ep_layer.py:ep_layer", "T=64 H=256 F=128 E=8 K=2", 2, None, ()),
    "nodes": ("02_ag_gemm.py:ag_gemm", "M=8192 K=4096 N=14336", 16, 2, ()),
}


def facts_for(
    spec: str, sizes: str, ranks: int, nodes: int | None, pins: tuple[str, ...], measured: Measured | None = None
) -> Facts:
    return of_overlap(load_overlap(str(EXAMPLES / spec)), sizes, ranks, nodes, pins, measured)


def of_overlap(
    overlap: Overlap,
    sizes: str,
    ranks: int,
    nodes: int | None = None,
    pins: tuple[str, ...] = (),
    measured: Measured | None = None,
) -> Facts:
    machine = topologies.load("h200-nvswitch", ranks, nodes)
    wanted = parse_sizes(sizes.split())
    found = explain(
        lambda values: bind(overlap.spec, values, machine.num_ranks, "bf16"),
        wanted,
        machine,
        parse_pins(pins),
        10,
        lambda: False,
    )
    proof = verify(found.schedule)
    return facts_of(found.schedule, machine, found, proof, overlap.spec.location, measured)


@cache
def facts_of_workload(name: str) -> Facts:
    return facts_for(*WORKLOADS[name])


@cache
def page_of_workload(name: str) -> str:
    return page(facts_of_workload(name))


class Reader(HTMLParser):
    """Elements of a page. Fails where one ends that was not the last to begin."""

    VOID = ("meta", "br", "rect", "line", "path", "use")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.within: list[tuple[str, ...]] = []  # of each element, those that it stands in
        self.texts: dict[int, str] = {}  # of each element, by its number
        self._numbers: list[int] = []
        self.raw = ""

    @classmethod
    def of(cls, text: str) -> Reader:
        found = cls()
        found.raw = text
        found.feed(text)
        found.close()
        assert not found.open, found.open
        return found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._begin(tag, attrs)
        if tag in self.VOID[:2]:
            self._end()

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._begin(tag, attrs)
        self._end()

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> in {self.open[-3:]}"
        self._end()

    def handle_data(self, data: str) -> None:
        for number in self._numbers:
            self.texts[number] = self.texts.get(number, "") + data

    def _begin(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute twice: {attrs}"
        self.within.append(tuple(self.open))
        self._numbers.append(len(self.elements))
        self.elements.append((tag, dict(attrs)))
        self.open.append(tag)

    def _end(self) -> None:
        if self.open.pop() in ("td", "th", "li", "p", "h2", "h3", "h4", "title", "summary", "caption"):
            self.handle_data(" ")
        self._numbers.pop()

    def all(self, tag: str) -> list[tuple[int, dict[str, str | None]]]:
        """Number and attributes of each element of a kind."""
        return [(number, attrs) for number, (name, attrs) in enumerate(self.elements) if name == tag]

    def text_of(self, name: str) -> str:
        """Of the element with that id."""
        number = next(number for number, (_, attrs) in enumerate(self.elements) if attrs.get("id") == name)
        return " ".join(self.texts.get(number, "").split())

    @property
    def data(self) -> dict[str, Any]:
        """The island."""
        number = next(number for number, (_, attrs) in enumerate(self.elements) if attrs.get("id") == "data")
        found: dict[str, Any] = json.loads(self.texts[number])
        return found
