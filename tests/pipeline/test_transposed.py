"""Weights that lie as [N, K], as those of torch.nn.Linear do: `x @ w.T`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

import lowering
import topologies
from tests.pipeline.features import FEATURES
from tilelink.bench.operators import declaration
from tilelink.bench.rows import Operator
from tilelink.emulator import World
from tilelink.ir.calls import LibraryOp
from tilelink.ir.nodes import Kernel
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import Matmul
from tilelink.ir.steps import MatmulBody
from tilelink.proof.bug_class import BugClass
from tilelink.proof.verify import verify
from tilelink.runtime.aot import compile_launch, record
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.reference import make_inputs
from tilelink.runtime.run import run_emulated


def planned(name: str, dtype: str = "bf16", plain: bool = False) -> Schedule:
    """The schedule of a row, or, with its pins, that of weights that lie as [K, N]."""
    row = FEATURES[f"transposed: {name}"]
    (which,) = (one for one in Operator if declaration(one, True) is row.operator)
    return replace(row, operator=declaration(which, not plain)).plan(dtype=dtype)


def results(schedule: Schedule, inputs: list[dict[str, torch.Tensor]]) -> list[torch.Tensor]:
    world = World(4, num_sms=schedule.machine.num_sms, seed=3)
    build = operator_class(load_source(lowering.emit(schedule), "one"))
    operators = [build(fabric) for fabric in world.fabrics]
    found = [operator(*parts.values()) for operator, parts in zip(operators, inputs, strict=True)]
    world.run()
    return found


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("name", ["gather, copies", "a shared loop"])
@pytest.mark.quick(1)
def test_the_layout_changes_no_bit(name: str, dtype: str) -> None:
    transposed, plain = planned(name, dtype=dtype), planned(name, dtype=dtype, plain=True)
    choices = dict(plain.choices)
    assert choices == dict(transposed.choices)
    lie = make_inputs(transposed.spec, 5)
    turned = [{key: (x.t().contiguous() if key.startswith("w") else x) for key, x in parts.items()} for parts in lie]
    for one, other in zip(results(transposed, lie), results(plain, turned), strict=True):
        assert one.any() and torch.equal(one, other)


def test_products_that_are_turned_anyway_load_weights_as_they_lie() -> None:
    """Fewer rows than Hopper's tensor cores take are computed as columns: what lies as [N, K] is right for that."""
    pins = {"algorithm": "ll-tiles", "tile": "16x64x32/4w2s"}
    machine = topologies.load("h200-nvswitch", 2)
    schedule = declaration(Operator.GEMM_RS, True).plan_for(machine, {"M": 32, "K": 128, "N": 128}, "bf16", pins)
    source = lowering.emit(schedule)
    computed = ["right = w_desc.load([n, k])", "left = tl.trans(left)", "y = tl.dot(right, left, y)", "y = tl.trans(y)"]
    assert all(f"    {text}\n" in source for text in computed)
    assert run_emulated(schedule, source, calls=2).equal


def swapped(schedule: Schedule) -> Iterator[Schedule]:
    """With the right operand of a matmul read the other way."""
    for index, launch in enumerate(schedule.launches):
        if isinstance(launch, LibraryOp) and isinstance(launch.how, Matmul):
            other = replace(launch, how=Matmul(not launch.how.transposed))
        elif isinstance(launch, Kernel) and launch.compute is not None:
            body = tuple(
                replace(x, right=replace(x.right, index=x.right.index[::-1])) if isinstance(x, MatmulBody) else x
                for x in launch.compute.body
            )
            other = replace(launch, compute=replace(launch.compute, body=body))  # type: ignore[assignment]
        else:
            continue
        yield replace(schedule, launches=(*schedule.launches[:index], other, *schedule.launches[index + 1 :]))


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("name", ["gather, packets, library", "scatter, packets of tiles"])
def test_the_proof_knows_how_weights_lie(name: str, plain: bool) -> None:
    schedule = planned(name, plain=plain)
    assert verify(schedule).proved
    (other,) = swapped(schedule)
    assert other != schedule
    assert BugClass.WRONG_PLACE in [finding.bug for finding in verify(other).findings]


@pytest.mark.parametrize("rows", [64, 256, 2048])
@pytest.mark.parametrize("operator", [Operator.AG_GEMM, Operator.GEMM_RS])
@pytest.mark.quick(2)
def test_the_layout_changes_no_plan(operator: Operator, rows: int) -> None:
    """But of library matmuls: loops take as long with either."""
    machine = topologies.load("h200-nvswitch", 2)
    sizes = {"M": rows, "K": 4096, "N": 14336} if operator is Operator.AG_GEMM else {"M": rows, "K": 14336, "N": 4096}
    pins = {"compute": "triton"}
    one, other = (declaration(operator, k_major).plan_for(machine, sizes, "bf16", pins) for k_major in (False, True))
    assert (one.choices, one.predicted_us) == (other.choices, other.predicted_us)


@pytest.mark.slow
def test_loops_are_shared_by_weights_that_lie_alike() -> None:
    schedule = planned("a shared loop")
    bodies = [x for x in schedule.launches if isinstance(x, Kernel) and x.compute is not None]
    together = [s for x in bodies for s in x.compute.body if isinstance(s, MatmulBody) and s.beside]  # type: ignore[union-attr]
    assert together and all(step.transposed for step in together)


@pytest.mark.slow
@pytest.mark.parametrize(("topology", "arch"), [("h200-nvswitch", "sm_90"), ("mi300x-full-mesh", "gfx942")])
@pytest.mark.parametrize("rows", [16, 512, 8192])
def test_it_compiles(rows: int, topology: str, arch: str) -> None:
    """On Hopper tiles go from descriptors to the tensor cores as they lie: nothing turns them in registers."""
    machine = topologies.load(topology, 4)
    for operator in (Operator.AG_GEMM, Operator.GEMM_RS):
        sizes = {"M": rows, "K": 4096, "N": 4096}
        schedule = declaration(operator, True).plan_for(machine, sizes, "bf16", {"compute": "triton"})
        for launch in record(load_source(lowering.emit(schedule), "one"), 4):
            kernel = compile_launch(launch, arch)
            assert arch != "sm_90" or "mma.sync" not in kernel.asm["ptx"]
