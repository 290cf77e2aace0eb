"""Specs whose exchanges go along rails, and their plans at small sizes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace

import lowering
import tilelink
from tests.pipeline.random_specs import random_spec
from tests.pipeline.workloads import load
from tilelink import Partial, Shard, Tensor, dims
from tilelink.elaborate.rails import puts_words
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.movers import ChunkMover
from tilelink.ir.schedule import Schedule
from tilelink.planner.sample import sample_schedule
from tilelink.proof.bug_class import BugClass
from tilelink.proof.happens_before.check import checked
from tilelink.proof.happens_before.refuted import Wrong
from tilelink.proof.verify import verify
from tilelink.runtime.run import run_emulated
from tilelink.schedule.instance import instantiated
from tilelink.schedule.roles import Schedule as Steps
from tilelink.schedule.steps import Step
from tilelink.schedule.walk import mapped, with_bodies
from topologies.topology import Topology

M, K, N = dims("M K N")


@tilelink.overlap
def gathered(x: Tensor(M, K, placement=Shard(0))) -> Tensor:  # type: ignore[valid-type]
    return tilelink.all_gather(x, dim=0)


@tilelink.overlap
def both(
    x: Tensor(M, K, placement=Shard(0)),  # type: ignore[valid-type]
    w: Tensor(K, N, placement=Shard(0)),  # type: ignore[valid-type]
) -> Tensor:
    """Rows and weights, of which each tile needs all parts in its loop over k."""
    return tilelink.matmul(tilelink.all_gather(x, dim=0), tilelink.all_gather(w, dim=0))


@tilelink.overlap
def scattered(x: Tensor(M, K, placement=Partial())) -> Tensor:  # type: ignore[valid-type]
    return tilelink.reduce_scatter(x, dim=0)


@tilelink.overlap
def there_and_back(x: Tensor(M, K, placement=Partial()), w: Tensor(K, N, placement=Shard(1))) -> Tensor:  # type: ignore[valid-type]
    """What one exchange brings another one takes on."""
    return tilelink.matmul(tilelink.all_gather(tilelink.reduce_scatter(x, dim=0), dim=0), w)


EXAMPLES = {"ag_gemm": "02_ag_gemm.py", "gemm_rs": "03_gemm_rs.py", "gemm_ar": "04_gemm_ar.py", "mlp": "05_mlp.py"}
SPECS = {name: load(f"{file}:{name}") for name, file in EXAMPLES.items()}
SPECS |= {"gathered": gathered, "both": both, "scattered": scattered, "there_and_back": there_and_back}
TARGETS = ("triton", "triton-nvshmem", "triton-distributed")
MATMULS = {"ag_gemm", "gemm_rs", "gemm_ar", "mlp", "both", "there_and_back"}


def without(wanted: Callable[[Step], bool]) -> Callable[[Steps], Steps]:
    """The edit that leaves out steps."""
    return lambda steps: with_bodies(steps, lambda body: mapped(body, lambda one: () if wanted(one) else (one,)))


def planned_on(topology: Topology, name: str, pins: dict[str, str], rows: int = 24) -> Schedule:
    """With tile loops, and no all_reduce in one shot: what goes along rails needs both."""
    ranks = topology.num_ranks
    every = {"M": rows * ranks, "K": 16 * ranks, "N": 8 * ranks, "H": 32, "F": 16 * ranks}
    sizes = {str(dim): every[str(dim)] for value in SPECS[name].spec.inputs for dim in value.shape}
    pins = pins | ({"compute": "triton"} if name in MATMULS else {})
    pins |= {"algorithm": "two-shot"} if name == "gemm_ar" else {}
    return SPECS[name].plan_for(topology, sizes, "fp32", pins)


def check_equal(schedule: Schedule, mover: str, chunks: str) -> None:
    """Proved, all of it by `mover`, and equal to torch on emulated ranks; of two chunks also as Triton-distributed spells it."""
    assert {exchange.mover.text for exchange in schedule.exchanges} == {mover}
    proof = verify(schedule)
    assert proof.proved, proof.lines()
    for target in ("triton", "triton-distributed") if chunks == "2" else ("triton",):
        assert run_emulated(schedule, lowering.emit(schedule, target), calls=3, seed=int(chunks)).equal


def check_random(
    what: str,
    seeds: Iterable[int],
    meshes: list[tuple[int, int]],
    machine: Callable[[int, int], Topology],
    wanted: Callable[[ChunkMover], bool],
) -> None:
    """Specs and schedules that nobody chose, with a mover that is `wanted` if six draws find one: proved, and equal to torch on
    emulated ranks of `machine(nodes, local)`, as a target spells it."""
    for seed in seeds:
        rng = random.Random(f"{what} {seed}")
        mesh = rng.choice(meshes)
        spec, schedule = random_spec(rng, mesh[0] * mesh[1]), None
        for _ in range(6):
            schedule = sample_schedule(spec, machine(*mesh), rng)
            if any(wanted(one.mover) for one in schedule.exchanges):
                break
        assert schedule is not None and verify(schedule).proved, f"seed {seed}"
        target = rng.choice(TARGETS) if puts_words(schedule) else "triton"  # of what the library carries nothing is put
        result = run_emulated(schedule, lowering.emit(schedule, target), calls=2, seed=seed)
        assert result.equal, f"seed {seed}: {result.lines()}\n{schedule}"


def check_refuted(schedule: Schedule, edit: Callable[[Steps], Steps], kinds: tuple[Wrong, ...]) -> None:
    """Its steps with a mistake, which the proof finds as what it is."""
    steps = instantiated(elaborated(schedule))
    changed = edit(steps)
    assert changed != steps
    refutation = checked(changed).refutation
    assert refutation is not None and refutation.wrong in kinds, str(refutation)


def check_held(schedule: Schedule, beside: int, held: int) -> None:
    """So many programs move `beside` tiles, and streams and calls of a library hold so many SMs: with one less nobody ends."""
    kernel = schedule.kernels()[0]
    assert sum(comm.programs for comm in kernel.comm) == beside
    needed = schedule.grid(kernel) + held
    for sms, bugs in ((needed, []), (needed - 1, [BugClass.RESIDENCY])):
        tight = replace(schedule, machine=replace(schedule.machine, num_sms=sms))
        assert [one.bug for one in verify(tight).findings][:1] == bugs
