"""Phases in ping-pong, printed in Gluon from their steps: what today's printers print, for any steps of this form."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from triton.compiler import CompiledKernel

from lowering.steps.errors import NotPrinted
from lowering.steps.file import lower
from lowering.steps.gluon import one_by_one
from lowering.steps.planned import lower_planned
from lowering.steps.renaming import with_own_names
from tests.pipeline.test_pieces import races
from tests.pipeline.test_turns import CASES, planned
from tests.replay import surface
from tests.replay.cases import STOCK, Case, cases
from tests.schedule.test_lowering_planned import alike, results
from tilelink.compiled.check import check_compiled
from tilelink.elaborate.schedule import elaborated
from tilelink.emulator import Deadlock, Race
from tilelink.ir.enums import Protocol
from tilelink.ir.ops.elementwise import FUNCTIONS
from tilelink.ir.schedule import Schedule as Planned
from tilelink.mutation.sites import sites
from tilelink.runtime.aot import compile_launch, record
from tilelink.runtime.load import load_source
from tilelink.runtime.run import run_emulated
from tilelink.schedule.memory import Access, Buffer, Memory, Region
from tilelink.schedule.roles import Phase, PingPong, Role, Schedule, Sms
from tilelink.schedule.steps import Compute, For, Load, Notify, Step, Store, Wait
from tilelink.schedule.walk import mapped, with_bodies


def steps(name: str, ranks: int = 2) -> Schedule:
    return with_own_names(elaborated(planned(name, ranks)))


# ---- what printed kernels compute ---------------------------------------------------------------------------------------


def test_it_gives_what_torch_gives() -> None:
    one = planned("gather", 2)
    assert run_emulated(one, lower_planned(one), seed=1).equal


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_case_gives_what_the_spec_means(name: str) -> None:
    """On emulated ranks, under the race detector."""
    alike(planned(name), seeds=(7,), compiled=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sums, copies", "gather"])
def test_weights_that_lie_as_n_k(name: str) -> None:
    alike(planned(name, 2, k_major=True), seeds=(7,))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sums by stores into pools", "gather, chunk by chunk", "sums, copies, ragged"])
def test_the_bits_are_those_of_one_tile_after_the_other(name: str) -> None:
    """The same steps without groups, in Triton: ping-pong says who does them, and when."""
    same(steps(name), one_by_one(steps(name)))


def same(one: Schedule, other: Schedule) -> None:
    texts = lower(one), lower(other)
    assert ["warp_specialize" in text for text in texts] == [True, False]
    ours, theirs = (results(load_source(text, "form"), 2, seed=3, calls=2) for text in texts)
    assert len(ours) == len(theirs) > 0
    assert all(torch.equal(first, second) for first, second in zip(ours, theirs, strict=True))


def with_epilogue() -> Schedule:
    """A row, a column and all elementwise functions behind the product of tiles."""
    one = steps("gather")
    rows, cols = one.shapes["out"]

    def change(step: Step) -> tuple[Step, ...]:
        if not isinstance(step, Store) or step.region.buffer != "out":
            return (step,)
        (row, col), (height, width), value = step.region.start, step.region.extent, step.value
        loads = (
            Load("row", Region("bias", (0, col), (1, width))),
            Load("column", Region("scale", (row, 0), (height, 1))),
        )
        given = {"add": "row", "mul": "column"}
        computed = [
            Compute((value,), name, (value, given.get(name, 0.5)) if function.num_operands == 2 else (value,))
            for name, function in FUNCTIONS.items()
        ]
        return (*loads, *computed, step)

    inputs = Buffer("bias", Memory.INPUT, (1, cols), "bf16"), Buffer("scale", Memory.INPUT, (rows, 1), "bf16")
    return replace(with_bodies(one, lambda body: mapped(body, change)), buffers=(*one.buffers, *inputs))


@pytest.mark.slow
def test_what_is_computed_of_each_element_is_done_slice_by_slice() -> None:
    one = with_epilogue()
    same(one, one_by_one(one))
    (compiled,) = [found for found in compiled_of(lower(one)) if found.metadata.num_warps == 12]
    assert "wgmma" in compiled.asm["ptx"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_pieces_are_told_of_when_they_are_there(number: int) -> None:
    """By the end of the call, and by the count of a chunk."""
    one, flush = planned("sums by stores", 2), "            flush_stores()\n"
    text = lower_planned(one)
    head, *parts = text.split(flush)
    assert len(parts) == 2
    between = ["" if place == number else flush for place in range(2)]
    assert not races(text, one)
    assert races("".join([head, between[0], parts[0], between[1], parts[1]]), one)


def test_names_of_groups_give_way_to_those_of_the_schedule() -> None:
    """A tensor may be called as what groups share."""
    one = renamed_buffer(steps("gather"), "w", "used")
    text = lower(one)
    assert "used_in_turns" in text and "used_in_turns" not in lower(steps("gather"))
    compile(text, "named", "exec")  # no function has two parameters of a name


def renamed_buffer(schedule: Schedule, name: str, to: str) -> Schedule:
    buffers = tuple(replace(one, name=to) if one.name == name else one for one in schedule.buffers)

    def change(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Load) and step.region.buffer == name:
            return (replace(step, region=replace(step.region, buffer=to)),)
        return (step,)

    return replace(with_bodies(schedule, lambda body: mapped(body, change)), buffers=buffers)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gather", "sums by stores into pools"])
def test_without_a_wait_or_a_notify_some_run_is_wrong(name: str) -> None:
    """What a stream tells the last program is told by the order of streams as well, where nobody waits for it."""
    one = steps(name)
    waits = [(site.drop(), Race) for site in sites(one, Wait) if site.node.signal != "copied"]
    raised = [(site.drop(), Deadlock) for site in sites(one, Notify) if site.node.signal != "copied"]
    for mutant, wrong in (*waits, *raised):
        module = load_source(lower(mutant), "mutant")
        with pytest.raises(wrong):
            for seed in (0, 1, 3, 5, 7):
                results(module, 2, seed)


# ---- what they are compiled to ------------------------------------------------------------------------------------------


def compiled_of(text: str) -> list[CompiledKernel]:
    return [compile_launch(one, "sm_90") for one in record(load_source(text, "compiled"), 2)]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_what_is_compiled_keeps_the_order_of_accesses(name: str) -> None:
    report = check_compiled(load_source(lower_planned(planned(name)), "checked"), 4, "sm_90")
    assert report.kernels and not report.findings


REPLAYED = (
    "bench ag_gemm: turns",
    "bench gemm_rs: turns, copies",
    "bench gemm_rs: turns, pieces",
    "bench gemm_ar: pooled, turns in pieces",
    "spec folded: two shots",
)


def replayed(name: str) -> Planned:
    case = next(one for one in cases() if one.name.startswith(f"{name}, h200") and one.target == STOCK)
    return plan_of(case)


def plan_of(case: Case) -> Planned:
    made = surface.plan(case.operator, case.topology, case.num_ranks, dict(case.sizes), case.dtype, dict(case.pins))
    assert isinstance(made, Planned)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bench gemm_rs: turns, copies", "bench gemm_rs: turns, pieces"])
def test_at_real_sizes_groups_multiply_and_fit(name: str) -> None:
    """Two groups of 240 registers a thread, one of 24, and shared memory for the ring buffer and the slices."""
    text = lower_planned(replayed(name))
    launches = (one for one in record(load_source(text, "ptx"), 4) if one.grid == (132,))
    compiled = next(compile_launch(launch, "sm_90") for launch in launches)
    counted = _instructions(compiled.asm["ptx"])
    assert counted["wgmma.mma_async"] > 0
    registers = {"setmaxnreg.inc.sync.aligned.u32 240", "setmaxnreg.dec.sync.aligned.u32 24"}
    assert registers <= counted.keys(), counted
    assert 150_000 < compiled.metadata.shared <= 232_448


def _instructions(ptx: str) -> Counter[str]:
    kinds = r"wgmma\.mma_async|cp\.async\.bulk\.tensor\.2d\.\w+|mbarrier\.\w+|setmaxnreg\.\w+\.\S+\s+\d+|st\.global|nanosleep"
    return Counter(" ".join(one.split()) for one in re.findall(kinds, ptx))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(16))
def test_all_replayed_cases_print(block: int) -> None:
    refused = {}
    for case in list(cases())[block::16]:
        if case.target == STOCK:
            try:
                lower_planned(plan_of(case))
            except NotPrinted as error:
                refused[case.name] = str(error)
    assert not refused


# ---- what has no form ---------------------------------------------------------------------------------------------------


def edited(change: Callable[[Step], Step], name: str = "gather") -> Schedule:
    return with_bodies(steps(name), lambda body: mapped(body, lambda step: (change(step),)))


def with_phase(change: Callable[[Phase], Phase], engine: Sms | None = None) -> Schedule:
    """Phases in ping-pong changed, on another engine."""
    one = steps("gather")

    def role(found: Role) -> Role:
        if not any(isinstance(phase.pipelining, PingPong) for phase in found.phases):
            return found
        phases = tuple(change(p) if isinstance(p.pipelining, PingPong) else p for p in found.phases)
        return replace(found, phases=phases, engine=engine or found.engine)

    launches = tuple(replace(launch, roles=tuple(map(role, launch.roles))) for launch in one.launches)
    return replace(one, launches=launches)


def _stored(access: Access) -> Callable[[Step], Step]:
    def change(step: Step) -> Step:
        if isinstance(step, Store) and step.region.buffer == "out":
            return replace(step, region=replace(step.region, access=access))
        return step

    return change


def _by_pointer(step: Step) -> Step:
    if isinstance(step, Load) and step.result == "right":
        return replace(step, region=replace(step.region, access=Access.POINTER))
    return step


def _shifted(step: Step) -> Step:
    """Loads of the right operand begin one step later along k."""
    if not isinstance(step, Load) or step.result != "right":
        return step
    row, col = step.region.start
    return replace(step, region=replace(step.region, start=(row + 16, col)))


def _scaled(step: Step) -> Step:
    """A product of an operand that is computed first."""
    if not isinstance(step, For) or not isinstance(step.body[-1], Compute):
        return step
    return replace(step, body=(*step.body[:-1], Compute(("left",), "neg", ("left",)), step.body[-1]))


def _waits_in_branch(step: Step) -> Step:
    """A wait of an own tile inside of what is computed."""
    if isinstance(step, For) and any(isinstance(one, Wait) for one in step.body):
        inner = For("again", 2, step.body)
        return replace(step, body=(inner,), let=step.let)
    return step


def _packets() -> Schedule:
    one = steps("parts by stores")
    buffers = tuple(
        replace(buffer, protocol=Protocol.LAMPORT) if buffer.name == "y_parts" else buffer for buffer in one.buffers
    )
    return replace(one, buffers=buffers)


def _beside() -> Schedule:
    """Another role in the kernel."""
    one = steps("gather")
    other = Role("other", Sms(1), (Phase(1, (Wait("x_full_arrived", (0, 0), 1),)),))
    launches = tuple(
        replace(launch, roles=(*launch.roles, other))
        if any(isinstance(r.engine, Sms) for r in launch.roles)
        else launch
        for launch in one.launches
    )
    return replace(one, launches=launches)


REFUSED: dict[str, tuple[str, Callable[[], Schedule]]] = {
    "groups of other sizes": (
        "groups of 8 warps",
        lambda: with_phase(lambda phase: replace(phase, pipelining=PingPong(8, 2))),
    ),
    "programs that share an SM": ("share an SM", lambda: with_phase(lambda phase: phase, Sms(8, 4, 2, per_sm=2))),
    "positions of each program": ("each program does", lambda: with_phase(lambda phase: replace(phase, every=True))),
    "no product": (
        "without a product",
        lambda: with_phase(lambda p: replace(p, body=tuple(s for s in p.body if not isinstance(s, For)))),
    ),
    "another role": ("beside other roles", _beside),
    "operands by pointers": ("by descriptor", lambda: edited(_by_pointer)),
    "operands that begin later": ("does not go through k", lambda: edited(_shifted)),
    "operands that are computed": ("does something else", lambda: edited(_scaled)),
    "whole tiles by descriptor": ("a store of a whole tile", lambda: edited(_stored(Access.DESCRIPTOR))),
    "pieces for the own rank alone": ("peers do not reach", lambda: edited(_stored(Access.PACED))),
    "waits between computations": (
        "a wait inside",
        lambda: edited(_waits_in_branch, "sums, copies"),
    ),
    "packets": ("packets in ping-pong", _packets),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused(case: str) -> None:
    what, made = REFUSED[case]
    with pytest.raises(NotPrinted, match=what) as caught:
        lower(made())
    assert "Legal" in str(caught.value)


def test_gpus_without_such_products_are_refused() -> None:
    with pytest.raises(NotPrinted, match="on sm_80"):
        lower(steps("gather"), "sm_80")
    assert "warp_specialize" not in lower(steps("gather"), "gfx942")  # one tile after the other
