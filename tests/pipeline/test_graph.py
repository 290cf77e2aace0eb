"""The graph of an operator answers what a tile needs and what completes a chunk."""

from __future__ import annotations

from tests.pipeline.workloads import load


def test_mlp() -> None:
    graph = load("05_mlp.py:mlp").graph(4, M=256, H=64, F=128)
    assert [relation.name for relation in graph.relations()] == ["x_full", "y_parts"]
    gate, y = graph.op("gate"), graph.op("y")
    gathered, scattered = graph.relations()
    assert gate is not None
    assert y is not None

    # rows 48..80 straddle the parts of ranks 0 and 1, and in each the last and the first of two chunks
    tile = {"m": (48, 80), "n": (0, 16), "k": (0, 64)}
    assert graph.chunks_needed(gate, tile, gathered, chunks=2) == ((0, 1), (1, 0))

    boxes = y.boxes({"m": 32, "n": 32}, {"m": 4})
    completing = graph.tiles_completing(y, scattered, part=2, chunk=1, chunks=2, boxes=boxes)
    assert [(box["m"], box["n"]) for box in completing] == [((160, 192), (0, 32)), ((160, 192), (32, 64))]

    dot = graph.to_dot()
    assert dot.startswith("digraph {")
    assert '"x" -> "x_full"' in dot
    assert '"x_full" -> "gate" [label="[m, k]"]' in dot
