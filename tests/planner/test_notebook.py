"""What a notebook shows of a declaration, its graph and a plan; and what the rest is called in one line."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

import topologies
from tests.pipeline.workloads import load
from tilelink.declaration import Overlap

SPECS: dict[str, tuple[str, dict[str, int]]] = {
    "ag_gemm": ("02_ag_gemm.py:ag_gemm", {"M": 256, "K": 64, "N": 128}),
    "mlp": ("05_mlp.py:mlp", {"M": 256, "H": 64, "F": 128}),
    "experts": ("09_ep_layer.py:ep_layer", {"T": 64, "H": 64, "F": 32, "E": 8, "K": 2}),
    "merged": ("12_flash_decode.py:flash_decode", {"B": 4, "S": 512, "Q": 8, "G": 2, "D": 64}),
}
_SVG = "{http://www.w3.org/2000/svg}"


def spec_of(case: str) -> tuple[Overlap, dict[str, int]]:
    path, sizes = SPECS[case]
    overlap = load(path)
    return overlap, {name: size for name, size in sizes.items() if name in overlap.spec.symbols()}


@pytest.mark.parametrize("case", SPECS)
def test_the_picture_of_a_graph(case: str) -> None:
    overlap, sizes = spec_of(case)
    graph = overlap.graph(4, "bf16", **sizes)
    root = ElementTree.fromstring(graph._repr_html_())
    texts = [one.text for one in root.iter(f"{_SVG}text")]
    titles = [one.text or "" for one in root.iter(f"{_SVG}title")]
    dot = graph.to_dot()
    assert len(titles) == dot.count(" -> ") > 0
    assert len(list(root.iter(f"{_SVG}rect"))) == dot.count("shape=box") + dot.count("shape=ellipse")
    assert all(any((text or "").startswith(name) for text in texts) for name in graph.inputs)
    boxes = [
        tuple(float(one.get(key, "")) for key in ("x", "y", "width", "height")) for one in root.iter(f"{_SVG}rect")
    ]
    for number, (x, y, width, height) in enumerate(boxes):  # no box hides another one
        for left, top, wide, high in boxes[:number]:
            assert x + width <= left or left + wide <= x or y + height <= top or top + high <= y
    _, _, right, below = map(float, (root.get("viewBox") or "").split())
    assert all(x + width <= right and y + height <= below for x, y, width, height in boxes)
    assert len(repr(graph)) < 160 and repr(graph).startswith("<tile graph ")


def test_a_plan_and_its_declaration() -> None:
    overlap, sizes = spec_of("ag_gemm")
    plan = overlap.plan_for(topologies.load("h200-nvswitch", 4), sizes, "bf16")
    root = ElementTree.fromstring(f"<div>{plan._repr_html_()}</div>")
    cells = [tuple(cell.text for cell in row) for row in root.iter("tr")]
    assert cells == [("choice", "value"), *plan.choices]
    assert root.findtext(".//pre") == str(plan)
    shown = ElementTree.fromstring(f"<div>{overlap._repr_html_()}</div>")
    assert "def ag_gemm(" in (shown.findtext(".//pre") or "")
