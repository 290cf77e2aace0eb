"""What a traced function becomes: names, shapes, placements and lines of the user's file."""

from __future__ import annotations

import linecache
import textwrap
from typing import Annotated

import pytest

import tilelink
from tilelink import Overlap, Partial, Replicate, Shard, Tensor, dims
from tilelink.ir.spec import AllGather, Elementwise, Matmul, ReduceScatter

M, N, K = dims("M N K")


@tilelink.overlap
def layer(
    x: Annotated[Tensor, (M, K), Shard(0)],
    w: Annotated[Tensor, (K, N), Shard(1)],
    v: Annotated[Tensor, (N, K), Shard(0), "bf16"],
    bias: Annotated[Tensor, (K,)],
) -> Tensor:
    """One matmul; v and bias are not used."""
    gathered = tilelink.all_gather(x, dim=0)
    h = tilelink.relu(gathered @ w)
    y = h  # another name of the same value: the first one stays
    return y + tilelink.mul(y, y)


def test_names_are_the_users_variables() -> None:
    names = [node.output.name for node in layer.spec.nodes]
    assert names == ["gathered", "matmul_out", "h", "mul_out", "out"]
    assert [node.inputs for node in layer.spec.nodes] == [
        ("x",),
        ("gathered", "w"),
        ("matmul_out",),
        ("h", "h"),
        ("h", "mul_out"),
    ]
    assert layer.spec.outputs == ("out",)
    assert layer.spec.name == layer.name == "layer"
    assert layer.__doc__ == "One matmul; v and bias are not used."


def test_operations_shapes_and_placements() -> None:
    operations = [node.operation for node in layer.spec.nodes]
    assert operations[:3] == [AllGather(0), Matmul(), Elementwise("relu")]
    assert [node.output.placement for node in layer.spec.nodes] == [Replicate()] + 4 * [Shard(1)]
    assert layer.spec.nodes[1].output.shape == (M, N)
    assert [value.placement for value in layer.spec.inputs] == [Shard(0), Shard(1), Shard(0), Replicate()]
    assert [value.dtype for value in layer.spec.inputs] == ["", "", "bf16", ""]


def test_lines_of_the_file() -> None:
    def line(location: object) -> str:
        file, _, number = str(location).rpartition(":")
        assert file == __file__
        return linecache.getline(file, int(number)).strip()

    spec = layer.spec
    assert line(spec.location) == "@tilelink.overlap"
    assert line(spec.inputs[2].location).startswith("v: Annotated")
    assert line(spec.nodes[0].output.location) == "gathered = tilelink.all_gather(x, dim=0)"
    assert line(spec.nodes[1].output.location) == "h = tilelink.relu(gathered @ w)"
    assert spec.source[0] == "@tilelink.overlap"
    assert "    gathered = tilelink.all_gather(x, dim=0)" in spec.source


def test_symbols_in_order_of_appearance() -> None:
    assert layer.spec.symbols() == ("M", "K", "N")
    assert repr(layer) == "<tilelink.overlap layer, sizes M, K, N>"


def test_the_declaration_syntax_gives_the_same_spec() -> None:
    @tilelink.overlap
    def f(
        x: Tensor(M, K, placement=Shard(1)),  # type: ignore[valid-type]
        w: Tensor(K, N, placement=Shard(0), dtype="fp16"),  # type: ignore[valid-type]
    ) -> Tensor:
        return tilelink.relu(x)

    @tilelink.overlap
    def g(x: Annotated[Tensor, (M, K), Shard(1)], w: Annotated[Tensor, (K, N), Shard(0), "fp16"]) -> Tensor:
        return tilelink.relu(x)

    assert [(v.name, v.shape, v.placement, v.dtype) for v in f.spec.inputs] == [
        (v.name, v.shape, v.placement, v.dtype) for v in g.spec.inputs
    ]


def _define(source: str, **names: object) -> Overlap:
    """The function `f` of a module that consists of `source`; without a file, as in a notebook cell."""
    space: dict[str, object] = {
        **{"tilelink": tilelink, "Annotated": Annotated, "Tensor": Tensor, "Shard": Shard, "M": M, "N": N, "K": K},
        **names,
    }
    exec(compile(textwrap.dedent(source), "<cell 3>", "exec", dont_inherit=True), space)
    found = space["f"]
    assert isinstance(found, Overlap)
    return found


FUTURE = "from __future__ import annotations\n"


@pytest.mark.parametrize(
    ("future", "annotation"),
    [
        ("", "Tensor(M, K, placement=Shard(0))"),
        ("", "Annotated[Tensor, (M, K), Shard(0)]"),
        ("", "'Tensor(M, K, placement=Shard(0))'"),
        (FUTURE, "Tensor(M, K, placement=Shard(0))"),
        (FUTURE, "Annotated[Tensor, (M, K), Shard(0)]"),
    ],
)
def test_cells_of_a_notebook(future: str, annotation: str) -> None:
    overlap = _define(
        f"{future}@tilelink.overlap\ndef f(x: {annotation}):\n"
        "    full = tilelink.all_gather(x, dim=0)\n    return full\n"
    )
    assert overlap.spec.inputs[0].placement == Shard(0)
    assert [node.output.name for node in overlap.spec.nodes] == ["full"]
    assert overlap.spec.location.file == "<cell 3>"
    assert overlap.spec.nodes[0].output.location.line == 3 + bool(future)
    assert overlap.plan("laptop-switch", 2, M=16, K=16).name == "f"


@pytest.mark.parametrize("future", ["", FUTURE], ids=["evaluated", "text"])
def test_closures_and_locals(future: str) -> None:
    overlap = _define(
        f"""{future}
def make(rows):
    width = 2 * K
    scale = tilelink.relu

    @tilelink.overlap
    def inner(x: Annotated[Tensor, (rows, width), Shard(0)]):
        y = scale(x)
        return y

    return inner

f = make(M)
"""
    )
    assert overlap.spec.inputs[0].shape == (M, 2 * K)
    assert overlap.spec.outputs == ("y",)


def test_names_that_are_taken_get_a_number() -> None:
    @tilelink.overlap
    def f(x: Annotated[Tensor, (M, K)]) -> tuple[Tensor, Tensor]:
        x = tilelink.relu(x)
        x = tilelink.silu(x)
        return x, tilelink.gelu(x)

    names = [node.output.name for node in f.spec.nodes]
    assert len(set(names)) == 3
    assert "x" not in names  # the parameter
    assert f.spec.outputs == (names[1], names[2])
    assert [node.inputs for node in f.spec.nodes] == [("x",), (names[0],), (names[1],)]


def test_parameters_that_are_keywords() -> None:
    @tilelink.overlap
    def f(x: Annotated[Tensor, (M, K)], /, y: Annotated[Tensor, (M, K)], *, z: Annotated[Tensor, (M, K)]) -> Tensor:
        return x + y * z

    assert [value.name for value in f.spec.inputs] == ["x", "y", "z"]
    assert [node.inputs for node in f.spec.nodes] == [("y", "z"), ("x", "mul_out")]


def test_outputs_without_a_variable() -> None:
    @tilelink.overlap
    def two(x: Annotated[Tensor, (M, K)]) -> tuple[Tensor, Tensor]:
        return tilelink.relu(x), tilelink.silu(x)

    @tilelink.overlap
    def same(x: Annotated[Tensor, (M, K)]) -> tuple[Tensor, Tensor]:
        y = tilelink.relu(x)
        return y, y

    assert two.spec.outputs == ("out_0", "out_1")
    assert same.spec.outputs == ("y",)


def test_the_profiler_of_the_caller_survives() -> None:
    import sys

    seen: list[str] = []
    sys.setprofile(lambda frame, event, _: seen.append(event))
    try:

        @tilelink.overlap
        def f(x: Annotated[Tensor, (M, K)]) -> Tensor:
            return tilelink.relu(x)

        kept = sys.getprofile()
    finally:
        sys.setprofile(None)
    assert kept is not None
    assert f.spec.outputs == ("out",)


def test_partial_parameters_and_collectives() -> None:
    @tilelink.overlap
    def f(x: Annotated[Tensor, (M, K), Partial()]) -> Tensor:
        own = tilelink.reduce_scatter(x, dim=1)
        return own

    (node,) = f.spec.nodes
    assert node.operation == ReduceScatter(1)
    assert (node.output.name, node.output.placement) == ("own", Shard(1))


def test_a_profiled_program_may_declare_specs() -> None:
    import cProfile
    import pstats

    profiler = cProfile.Profile()
    profiler.enable()
    try:

        @tilelink.overlap
        def g(x: Annotated[Tensor, (M, K)]) -> Tensor:
            return tilelink.relu(x)

        def behind() -> None: ...

        spec = g.spec
        behind()
    finally:
        profiler.disable()
    assert spec.outputs == ("out",)
    assert "behind" in {name for _, _, name in pstats.Stats(profiler).stats}  # type: ignore[attr-defined]
