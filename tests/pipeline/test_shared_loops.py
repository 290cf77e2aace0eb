"""Matmuls that share the tiles of their left operand in one loop over k: found in the graph, emulated for both targets,
planned where they help, and pinned."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated

import pytest

import lowering
import topologies
from tests.pipeline.operators import MLP, along_k, gated, three
from tilelink import Replicate, Shard, Tensor, all_gather, dims, matmul, overlap, silu
from tilelink.declaration import Overlap
from tilelink.errors import IllegalPin, NoLegalSchedule
from tilelink.ir.expand import expand
from tilelink.ir.graph import TileGraph
from tilelink.ir.nodes import ComputeRole
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import bind
from tilelink.ir.steps import Apply, MatmulBody, Store
from tilelink.planner.group import group_ops, shareable
from tilelink.planner.tiles import Held, matmul_tiles, shared_bytes, why_not

M, K, N = dims("M K N")
X = Annotated[Tensor, (M, K), Shard(0)]
W = Annotated[Tensor, (K, N), Shard(1)]
SIZES = {"M": 64, "K": 32, "N": 64}


@overlap
def apart(x: X, a: W, b: W) -> tuple[Tensor, Tensor]:
    x_full = all_gather(x, dim=0)
    return silu(matmul(x_full, a)), silu(matmul(x_full, b))


@overlap
def kept(x: X, a: W, b: W) -> tuple[Tensor, Tensor]:
    x_full = all_gather(x, dim=0)
    one, two = matmul(x_full, a), matmul(x_full, b)
    return one, silu(one) * two


@overlap
def of_two(x: X, y: X, a: W, b: W) -> Tensor:
    one, two = matmul(all_gather(x, dim=0), a), matmul(all_gather(y, dim=0), b)
    return silu(one) * two


@overlap
def gathered_weights(x: X, a: Annotated[Tensor, (K, N), Replicate()], b: Annotated[Tensor, (K, N), Shard(0)]) -> Tensor:
    x_full = all_gather(x, dim=0)
    one, two = matmul(x_full, a), matmul(x_full, all_gather(b, dim=0))
    return silu(one) * two


def graph_of(operator: Overlap) -> TileGraph:
    bound = bind(operator.spec, SIZES, 4, "bf16")
    return expand(bound, {})


def planned(operator: Overlap, sizes: dict[str, int], topology: str = "laptop-switch", **pins: str) -> Schedule:
    return operator.plan_for(topologies.load(topology, 4), sizes, "bf16", pins)


def role_of(schedule: Schedule) -> ComputeRole:
    roles = [kernel.compute for kernel in schedule.kernels() if kernel.compute is not None]
    return next(role for role in roles if any(isinstance(step, MatmulBody) and step.beside for step in role.body))


def test_which_matmuls_can_share_a_loop() -> None:
    assert shareable(graph_of(gated), frozenset()) == {"two": "matmul_out"}
    assert shareable(graph_of(three), frozenset()) == {"two": "one", "third": "one"}
    assert shareable(graph_of(along_k), frozenset()) == {"two": "one"}


@pytest.mark.parametrize("operator", [apart, kept, of_two, gathered_weights], ids=lambda operator: operator.name)
def test_which_cannot(operator: Overlap) -> None:
    """Nothing needs both; one is wanted by the user; they have different left operands; a right operand comes late."""
    assert shareable(graph_of(operator), frozenset()) == {}


def test_the_library_computes_alone() -> None:
    assert shareable(graph_of(three), frozenset({"two"})) == {"third": "one"}
    assert shareable(graph_of(three), frozenset({"one"})) == {"third": "two"}


def test_matmuls_come_first_in_their_group() -> None:
    graph = graph_of(gated)
    (group,) = group_ops(graph, frozenset(), shareable(graph, frozenset()))
    assert group.matmuls == 2
    assert [type(op.operation).__name__ for op in group.ops] == ["Matmul", "Matmul", "Elementwise", "Elementwise"]
    assert len(group_ops(graph, frozenset())) == 2


@pytest.mark.slow
def test_what_is_made_of_them_needs_no_memory_in_between() -> None:
    sizes = {"M": 1024, "H": 4096, "F": 14336}
    pins = {"algorithm": "direct", "compute": "triton", "mover": "CopyEngine()", "transfer": "push", "chunks": "1"}
    own, shared = (planned(MLP, sizes, "h200-nvswitch", **pins, loop=loop) for loop in ("own", "shared"))
    assert {b.name for b in own.buffers} - {b.name for b in shared.buffers} == {"silu_out"}
    steps = role_of(shared).body
    assert [type(step) for step in steps[1:]] == [MatmulBody, MatmulBody, Apply, Apply, Store]
    assert "gate = dot(left, right, gate)\n" in str(shared) and "up = dot(left, right1, up)\n" in str(shared)
    assert shared.predicted_us < own.predicted_us
    text = lowering.emit(shared)
    kernel = text[text.index("def hidden_kernel(") :].partition("\n\n\n")[0]
    loop = kernel.partition("# the last tiles, in halves")[0]
    assert loop.count("left = left_from.load(") == 1 == loop.count("for k_tile in")
    assert "right = w_gate_desc.load([k, n])" in loop and "gate = tl.dot(left, right, gate)" in loop
    assert "right1 = w_up_desc.load([k, n])" in loop and "up = tl.dot(left, right1, up)" in loop
    assert re.findall(r"tl\.store\((\w+)|(\w+)\.store\(", loop) == [("", "hidden_desc")]  # and nothing in between


def test_pins_that_go_with_no_loop() -> None:
    sizes = {"M": 64, "H": 32, "F": 64}
    with pytest.raises(IllegalPin, match="own, shared"):
        planned(MLP, sizes, loop="theirs")
    with pytest.raises(NoLegalSchedule):  # silu_out is no loop of its own then
        planned(MLP, sizes, **{"up.loop": "shared", "silu_out.tile": "16x16x16/4w2s"})
    with pytest.raises(NoLegalSchedule):
        planned(MLP, sizes, **{"up.loop": "shared", "up.compute": "library"})


def test_tiles_of_two_matmuls_take_what_one_of_twice_the_width_takes() -> None:
    gpu = topologies.load("h200-nvswitch", 4).gpu
    for tile in matmul_tiles(2):
        wide = replace(tile, n=2 * tile.n)
        one, two = (shared_bytes(t, "bf16", gpu, Held(m)) for t, m in ((wide, 1), (tile, 2)))
        assert one == two
        assert why_not(tile, "bf16", gpu, Held(2)) == "" or tile.per_sm > 1
    shallow = replace(matmul_tiles(1)[0], stages=1)
    assert "2 accumulators" in why_not(shallow, "bf16", gpu, Held(2))
