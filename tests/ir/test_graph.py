"""Edges of the TileGraph against a model that paints elements: which chunks a tile needs, which tiles a chunk needs."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Annotated

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

import tilelink
from tilelink import Overlap, Partial, Shard, Tensor, dims
from tilelink.ir.collective import Collective
from tilelink.ir.expand import expand
from tilelink.ir.graph import GraphAxis, Map, Relation, TileGraph, TileOp
from tilelink.ir.nodes import Kind
from tilelink.ir.spec import AllReduce, bind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tilelink.ir.graph import Box

M, N, K = dims("M N K")


@tilelink.overlap
def gather_rows(x: Annotated[Tensor, (M, K), Shard(0)], w: Annotated[Tensor, (K, N)]) -> Tensor:
    full = tilelink.all_gather(x, dim=0)
    return tilelink.matmul(full, w)


@tilelink.overlap
def gather_inner(x: Annotated[Tensor, (M, K), Shard(1)], w: Annotated[Tensor, (K, N)]) -> Tensor:
    full = tilelink.all_gather(x, dim=1)
    return tilelink.matmul(full, w)


@tilelink.overlap
def gather_weights(x: Annotated[Tensor, (M, K)], w: Annotated[Tensor, (K, N), Shard(1)]) -> Tensor:
    full = tilelink.all_gather(w, dim=1)
    return tilelink.matmul(x, full)


@tilelink.overlap
def gather_row(x: Annotated[Tensor, (M, K)], b: Annotated[Tensor, (K,), Shard(0)]) -> Tensor:
    full = tilelink.all_gather(b, dim=0)
    return x + full


@tilelink.overlap
def scatter_rows(x: Annotated[Tensor, (M, K), Shard(1)], w: Annotated[Tensor, (K, N), Shard(0)]) -> Tensor:
    y = tilelink.matmul(x, w)
    return tilelink.reduce_scatter(y, dim=0)


@tilelink.overlap
def scatter_columns(x: Annotated[Tensor, (M, K), Shard(1)], w: Annotated[Tensor, (K, N), Shard(0)]) -> Tensor:
    y = tilelink.matmul(x, w)
    return tilelink.reduce_scatter(y, dim=1)


@tilelink.overlap
def reduce_all(x: Annotated[Tensor, (M, K), Partial()]) -> Tensor:
    return tilelink.all_reduce(x)


OPERATORS = (gather_rows, gather_inner, gather_weights, gather_row, scatter_rows, scatter_columns, reduce_all)


def _graph(operator: Overlap, num_ranks: int, sizes: Mapping[str, int], last: bool = False) -> TileGraph:
    """The graph with each collective by exchanges, in as many shots as there are or in one."""
    bound = bind(operator.spec, sizes, num_ranks, "bf16")
    two = {node.output.name for node in bound.nodes if isinstance(node.operation, AllReduce)} if last else set[str]()
    return expand(bound, {name: Collective(shots=2) for name in two})


def _legal_chunks(rows: int) -> list[int]:
    return [n for n in range(1, rows + 1) if (n - 1) * -(-rows // n) < rows]


@st.composite
def problems(draw: st.DrawFn) -> tuple[TileGraph, dict[str, int], int]:
    """A graph, tile extents, and a seed for the number of chunks; parts and tiles do not divide each other."""
    num_ranks = draw(st.integers(2, 4))
    names = ("M", "K", "N")
    operator = draw(st.sampled_from(OPERATORS))
    known = operator.spec.symbols()
    sizes = {name: num_ranks * draw(st.integers(1, 5)) for name in names if name in known}
    tiles = {axis: draw(st.integers(1, 7)) for axis in "mnk"}
    return _graph(operator, num_ranks, sizes, draw(st.booleans())), tiles, draw(st.integers(0, 100))


def _pick_chunks(relation: Relation, seed: int) -> int:
    legal = _legal_chunks(relation.part[0])
    return legal[seed % len(legal)]


def _painted_part(relation: Relation, chunks: int) -> NDArray[np.int64]:
    """One part, every element painted with its chunk: consecutive rows, the last chunk may be shorter."""
    rows = relation.part[0]
    per_chunk = -(-rows // chunks)
    paint = np.arange(rows) // per_chunk
    assert paint.max() == chunks - 1
    return np.broadcast_to(paint.reshape(-1, *[1] * (len(relation.part) - 1)), relation.part)


def _painted(relation: Relation, chunks: int) -> NDArray[np.int64]:
    """The target, every element painted with `part * chunks + chunk`."""
    parts = [_painted_part(relation, chunks) + part * chunks for part in range(relation.num_ranks)]
    return np.stack(parts) if relation.stacked else np.concatenate(parts, axis=relation.dim)


def _elements(access: Map, box: Box) -> tuple[NDArray[np.int64], ...]:
    """Open mesh of the elements that a tile touches, each dimension evaluated index by index."""
    index = []
    for expression in access.index:
        axes = sorted(expression.free_symbols, key=str)
        index.append(_image(expression, tuple(axes), tuple(box[str(axis)] for axis in axes)))
    return np.ix_(*index)


@cache
def _image(expression: sympy.Expr, axes: tuple[sympy.Symbol, ...], spans: tuple[tuple[int, int], ...]) -> list[int]:
    points = product(*(range(*span) for span in spans))
    return sorted({int(expression.subs(dict(zip(axes, point, strict=True)))) for point in points})


def _boxes(graph: TileGraph, op: TileOp, tiles: Mapping[str, int]) -> list[dict[str, tuple[int, int]]]:
    return list(op.boxes({axis.name: tiles.get(axis.name, 1) for axis in op.axes}, {}))


@given(problems())
def test_chunks_that_a_tile_needs(problem: tuple[TileGraph, dict[str, int], int]) -> None:
    graph, tiles, seed = problem
    for relation in graph.relations():
        chunks = _pick_chunks(relation, seed)
        target = _painted(relation, chunks)
        assert target.shape == graph.values[relation.name].shape
        for op in graph.consumers(relation.name):
            for box in _boxes(graph, op, tiles):
                painted: set[int] = set()
                for read in op.reads:
                    if read.value == relation.name:
                        painted |= set(np.unique(target[_elements(read, box)]).tolist())
                needed = graph.chunks_needed(op, box, relation, chunks)
                assert len(set(needed)) == len(needed)
                assert {part * chunks + chunk for part, chunk in needed} == painted


@given(problems())
def test_tiles_that_complete_a_chunk(problem: tuple[TileGraph, dict[str, int], int]) -> None:
    graph, tiles, seed = problem
    for relation in graph.relations():
        op = graph.op(relation.source)
        if op is None:
            continue
        chunks = _pick_chunks(relation, seed)
        scatter = relation.kind is Kind.SCATTER
        parts = [
            _painted_part(relation, chunks) + part * chunks for part in range(relation.num_ranks if scatter else 1)
        ]
        source = np.concatenate(parts, axis=relation.dim)
        assert source.shape == graph.values[relation.source].shape
        boxes = _boxes(graph, op, tiles)
        for part, chunk in product(range(len(parts)), range(chunks)):
            wanted = [box for box in boxes if (source[_elements(op.write, box)] == part * chunks + chunk).any()]
            assert list(graph.tiles_completing(op, relation, part, chunk, chunks, iter(boxes))) == wanted


@given(problems(), st.integers(1, 3))
def test_every_element_is_in_one_tile(problem: tuple[TileGraph, dict[str, int], int], pieces: int) -> None:
    graph, tiles, _ = problem
    for op in graph.ops():
        segments = {axis.name: pieces for axis in op.axes if axis.extent % pieces == 0}
        written = np.zeros(graph.values[op.name].shape, int)
        for box in op.boxes({axis.name: tiles.get(axis.name, 1) for axis in op.axes}, segments):
            written[_elements(op.write, box)] += 1
            for axis in op.axes:
                length = axis.extent // segments.get(axis.name, 1)
                first, end = box[axis.name]
                assert axis.reduction or first // length == (end - 1) // length  # no tile crosses segments
        assert (written == 1).all()


@given(
    st.sampled_from(["m", "m + n", "2*m + 3", "floor(m/3)", "3*m + floor(n/2)", "0"]),
    st.tuples(st.integers(0, 9), st.integers(1, 6)),
    st.tuples(st.integers(0, 9), st.integers(1, 6)),
)
def test_regions_hold_every_element(text: str, m: tuple[int, int], n: tuple[int, int]) -> None:
    box = {"m": (m[0], sum(m)), "n": (n[0], sum(n))}
    access = Map("x", (sympy.sympify(text),))
    (touched,) = _elements(access, box)
    ((first, end),) = access.region(box)
    assert (first, end) == (touched.min(), touched.max() + 1)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
@pytest.mark.parametrize("last", [False, True])
def test_dot_mentions_every_value(operator: Overlap, last: bool) -> None:
    graph = _graph(operator, 2, dict.fromkeys(operator.spec.symbols(), 8), last)
    text = graph.to_dot()
    assert text.startswith("digraph {")
    assert text.endswith("}\n")
    for name in graph.values:
        assert f'  "{name}" [shape=' in text
    for source, target in graph.edges.edges:
        assert f'  "{source}" -> "{target}" [label=' in text


def test_dependences_and_lookup() -> None:
    graph = _graph(scatter_rows, 2, {"M": 8, "K": 8, "N": 8})
    assert [node.name for node in graph.nodes] == ["y", "y_parts", "out"]
    assert graph.depends("out", "x")
    assert graph.depends("y", "y")
    assert not graph.depends("x", "out")
    assert graph.relation("y") is None
    assert graph.op("y_parts") is None
    op = graph.op("y")
    assert op is not None
    assert op.axis("k") == GraphAxis("k", 4, True)
    assert [consumer.name for consumer in graph.consumers("y_parts")] == ["out"]
