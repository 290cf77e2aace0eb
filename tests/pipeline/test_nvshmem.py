"""Files that put by NVSHMEM, as far as they can be looked at without GPUs: what the compiler is given of each kernel."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import lowering
import topologies
from lowering.steps.errors import EngineCannot, NothingToPut
from lowering.steps.file import lower
from lowering.steps.renaming import with_own_names
from lowering.targets import NVSHMEM
from tests.adversary.bugs import verdict
from tests.pipeline.rail_specs import SPECS
from tilelink.adversary.verdict import VerdictKind
from tilelink.compiled.check import check_compiled
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.schedule import Schedule
from tilelink.runtime.aot import RecordedLaunch, record, written_ir
from tilelink.runtime.load import load_source
from tilelink.runtime.run import run_emulated
from tilelink.schedule.instance import instantiated
from tilelink.schedule.roles import Network
from tilelink.schedule.steps import Move, Step
from tilelink.schedule.walk import mapped, with_phases

NAMES = ("ag_gemm", "gemm_rs", "gemm_ar", "mlp", "gathered", "scattered")
BARRIER = '    program_barrier()\n    tl.inline_asm_elementwise("fence.acq_rel.sys'
TARGETS = (NVSHMEM, "triton-distributed")
_PUT = "nvshmemx_putmem_signal_nbi_block"


def planned(name: str, nodes: int | None = 2, ranks: int = 4) -> Schedule:
    every = {"M": 64 * ranks, "K": 32 * ranks, "N": 32 * ranks, "H": 64, "F": 32 * ranks}
    sizes = {str(dim): every[str(dim)] for value in SPECS[name].spec.inputs for dim in value.shape}
    pins = {"mover": "Rails(2)"} if nodes else {}
    pins |= {"algorithm": "two-shot"} if name == "gemm_ar" and nodes else {}
    return SPECS[name].plan_for(topologies.load("h200-nvswitch", ranks, nodes), sizes, "bf16", pins)


def in_the_small(name: str) -> Schedule:
    sizes = {"ag_gemm": {"M": 96, "K": 32, "N": 64}, "gemm_rs": {"M": 96, "K": 64, "N": 32}}[name]
    pins = {"mover": "Rails(2)", "tile": "16x16x16/4w2s", "chunks": "2", "compute": "triton"}
    return SPECS[name].plan_for(topologies.load("laptop-switch", 4, 2), sizes, "bf16", pins)


def launches(schedule: Schedule) -> list[RecordedLaunch]:
    return record(load_source(lowering.emit(schedule, NVSHMEM), schedule.name), schedule.num_ranks)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.quick(2)
def test_each_put_is_one_call_behind_a_barrier_and_a_fence(name: str) -> None:
    schedule = planned(name)
    texts = [written_ir(one, "sm_90") for one in launches(schedule)]
    functions = [body for text in texts for body in re.split(r"(?=tt\.func )", text)]
    puts = {body for body in functions if _PUT in body}
    assert puts
    for body in puts:
        assert body.count(_PUT) == 1
        before, _, behind = body.partition(_PUT)
        assert re.search(r"@[\w.]*published", before) and re.search(r"@[\w.]*program_barrier", behind)
    (published,) = {one for text in texts for one in functions if "fence.acq_rel.sys" in one and one in text}
    assert published.index("program_barrier") < published.index("fence.acq_rel.sys")
    whole = "".join(texts)
    assert "nvshmem_quiet" in whole and "nvshmemx_signal_op" in whole


@pytest.mark.parametrize("name", ["ag_gemm", "gemm_rs"])
def test_words_have_64_bits(name: str) -> None:
    source = lowering.emit(planned(name), NVSHMEM)
    assert "self.signals = fabric.symmetric((NUM_SIGNALS.value,), torch.int64)" in source
    assert not any("tl.int32" in line for line in re.findall(r"on_peer\(signal_peers[^\n]*\n", source))
    assert "notify_all(" not in source and "count_at_peers(" not in source


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.quick(1)
def test_names_are_defined_and_used(name: str, target: str, tmp_path: Path) -> None:
    (tmp_path / "emitted.py").write_text(lowering.emit(planned(name), target))
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "F", str(tmp_path)]
    linted = subprocess.run(command, capture_output=True, text=True)
    assert linted.returncode == 0, linted.stdout


def test_a_schedule_of_one_node_puts_nothing() -> None:
    with pytest.raises(NothingToPut, match="several nodes"):
        lowering.emit(planned("ag_gemm", None), NVSHMEM)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("nodes", "ranks"), [(2, 4), (3, 6), (2, 2)], ids=str)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.quick(2)
def test_emulated_puts_give_what_the_definition_gives(name: str, nodes: int, ranks: int, target: str) -> None:
    schedule = planned(name, nodes, ranks)
    assert run_emulated(schedule, lowering.emit(schedule, target), calls=3, seed=ranks).equal


@pytest.mark.parametrize("name", NAMES)
def test_triton_distributed_puts_the_same(name: str) -> None:
    ours, theirs = (lowering.emit(planned(name), target) for target in TARGETS)
    calls = [re.findall(r"^ +(put|put_word|quiet)\(", source, re.MULTILINE) for source in (ours, theirs)]
    assert calls[0] == calls[1] and "put" in calls[0]
    assert "libshmem_device.putmem_signal_nbi_block(" in theirs


def test_of_one_node_triton_distributed_puts_nothing() -> None:
    assert "libshmem_device" not in lowering.emit(planned("ag_gemm", None), "triton-distributed")


# one line of the file that a mistake leaves out, or has in another way
MISTAKES = {
    "a rail that may still read": ("ag_gemm", r"^ +wait_until\(signals \+ DONE_FAR[^\n]*\n", ""),
    "a chunk that is handed on before it has come": (
        "ag_gemm",
        r"^ +wait_until\(signals \+ X_FULL_ARRIVED \+ owner[^\n]*\n",
        "",
    ),
    "another rank of the node": (
        "ag_gemm",
        r"(RANKS_PER_NODE \+ rank % RANKS_PER_NODE)",
        r"\1 - rank % 2 + (rank + 1) % 2",
    ),
    "a sum that waits for no rank of the node": (
        "gemm_rs",
        r"^ +wait_until\(signals \+ Y_\w+_ARRIVED \+ part[^\n]*\n",
        "",
    ),
    "a source that is stored to again while it is put": ("gemm_rs", r"^ +quiet\(\)\n", ""),
}


@pytest.mark.parametrize("name", ["ag_gemm", "gemm_rs"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.slow
def test_no_delay_of_a_put_shows(name: str, target: str) -> None:
    found = verdict(lowering.emit(in_the_small(name), target), name)
    assert found.kind is VerdictKind.NOT_REFUTED, found.lines()


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.slow
def test_a_mistake_shows(mistake: str) -> None:
    name, line, other = MISTAKES[mistake]
    source = lowering.emit(in_the_small(name), NVSHMEM)
    changed = re.sub(line, other, source, flags=re.MULTILINE)
    assert changed != source, source
    assert verdict(changed, name).kind is VerdictKind.REFUTED


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.quick(2)
def test_the_compiler_keeps_the_order_of_puts(name: str) -> None:
    schedule = planned(name)
    source = lowering.emit(schedule, NVSHMEM)
    report = check_compiled(load_source(source, schedule.name), schedule.num_ranks, "sm_90")
    assert not report.findings and not report.unknown and report.events, report.lines()


def test_a_put_without_a_barrier_in_front_is_found() -> None:
    schedule = planned("gemm_rs")
    source = lowering.emit(schedule, NVSHMEM)
    # the wait in front of the put has a barrier of its own
    changed = source.replace(BARRIER, BARRIER.replace("    program_barrier()\n", ""))
    changed = re.sub(r"^ +wait_until\(signals \+ DONE_FAR[^\n]*\n", "", changed, flags=re.MULTILINE)
    report = check_compiled(load_source(changed, schedule.name), schedule.num_ranks, "sm_90")
    assert (
        report.findings
        and "no barrier stands between a store" in report.findings[0].rule
        and _PUT in report.findings[0].early
    ), report.lines()


def test_a_put_of_two_regions_is_refused() -> None:
    def two(step: Step) -> tuple[Step, ...]:
        return (replace(step, source=step.source * 2, target=step.target * 2),) if isinstance(step, Move) else (step,)

    steps = instantiated(elaborated(planned("ag_gemm")))
    twice = with_phases(
        steps,
        lambda role, phase: replace(phase, body=mapped(phase.body, two)) if isinstance(role.engine, Network) else phase,
    )
    assert twice != steps
    with pytest.raises(EngineCannot, match="put several regions"):
        lower(with_own_names(twice), "sm_90", target=NVSHMEM)
