"""Schedules of real sizes, and the guards of their sources that keep loads behind waits and notifies behind stores."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import topologies
from tests.pipeline.workloads import load
from tilelink.compiled import CompiledReport, check_compiled
from tilelink.declaration import Overlap
from tilelink.ir.schedule import Schedule
from tilelink.runtime.load import load_source
from tilelink.spec_file import load_overlap

MORE = str(__file__).replace("planted.py", "specs.py")
LOOP, TURNS = "128x256x64/8w3s", "128x128x64/4w5s2g"
RANKS = 2
_ASSEMBLY = 'tl.inline_asm_elementwise("bar.sync 0; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)'


def named(name: str) -> Overlap:
    return load(name) if name[0].isdigit() else load_overlap(f"{MORE}:{name}")


def planned(name: str, sizes: dict[str, int], **pins: str) -> Schedule:
    given = {field.replace("__", "."): value for field, value in pins.items()}
    return named(name).plan_for(topologies.load("h100-nvswitch", RANKS), sizes, "bf16", given)


def checked(schedule: Schedule, source: str, arch: str = "sm_90", ahead: bool | None = None) -> CompiledReport:
    return check_compiled(load_source(source, schedule.name), schedule.num_ranks, arch, waits_ahead=ahead)


@dataclass(frozen=True, slots=True)
class Planted:
    """A guard taken out of the source of a schedule; `rule` is what is said then."""

    name: str
    sizes: dict[str, int]
    pins: dict[str, str]
    without: Callable[[str], str]
    rule: str
    ahead: bool | None = None

    def schedule(self) -> Schedule:
        return planned(self.name, self.sizes, **self.pins)


def _replaced(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(old, new)


def _no_fence(text: str) -> str:
    return re.sub(r"\n +fence_descriptors\(\)(?=\n)", "", text)


def _no_group_barrier(text: str) -> str:
    """Without the barrier of a warpgroup before it notifies."""
    start = text.index("gl.thread_barrier()", text.index("def program_barrier"))
    return text[:start] + "pass" + text[start + len("gl.thread_barrier()") :]


def _places_in_one_loop(text: str) -> str:
    return re.sub(r"(_place in )tl\.range\((\w+), num_stages=1\)", r"\1range(\2)", text)


_ONE_STEP = {"M": 8192, "K": 64, "N": 8192}
_ONE_STEP_A_PART = {"M": 8192, "K": 64 * RANKS, "N": 4096}
_DEEP = {"M": 8192, "K": 4096, "N": 4096}
OVERTAKEN, UNFENCED = "the load has overtaken the wait for it", "no proxy fence stands between a wait"
NO_BARRIER, NOT_DRAINED = "no barrier stands between a store", "is not waited for before the notify"
CIRCLE = "the wait has overtaken a notify"
GATHER, SCATTER = "02_ag_gemm.py:ag_gemm", "03_gemm_rs.py:gemm_rs"
ENGINE = {"mover": "CopyEngine()"}

PLANTED = {
    "one stage of the loop over tiles": Planted(
        GATHER, _ONE_STEP, {**ENGINE, "prefetch": "no"}, _replaced(", num_stages=1", ""), OVERTAKEN
    ),
    "one stage of the loop over parts of x": Planted(
        "gathered_columns", _ONE_STEP_A_PART, {**ENGINE, "tile": LOOP}, _places_in_one_loop, OVERTAKEN
    ),
    "one stage of the loop over parts of w": Planted(
        "gathered_weights", _ONE_STEP_A_PART, {"mover": "CommSms(8)", "tile": LOOP}, _places_in_one_loop, OVERTAKEN
    ),
    "one stage of the loop around a user's body": Planted(
        "user_matmul", _ONE_STEP, {**ENGINE, "tile": "64x128x0/4w3s"}, _replaced(", num_stages=1", ""), OVERTAKEN
    ),
    "two loops that are not one": Planted(
        "gathered_twice",
        _DEEP,
        {"x_full__mover": "CopyEngine()", "prefetch": "no", "tile": "128x128x64/8w3s"},
        _replaced("PROGRAMS):\n        m_place", "PROGRAMS, flatten=True):\n        m_place"),
        CIRCLE,
        ahead=False,
    ),
    "barrier before a notify": Planted(
        SCATTER, _DEEP, {**ENGINE, "tile": LOOP}, _replaced(_ASSEMBLY, "pass"), NO_BARRIER
    ),
    "fence behind a wait": Planted(GATHER, _DEEP, {**ENGINE, "tile": LOOP}, _no_fence, UNFENCED),
    "barrier of a warpgroup before a notify": Planted(
        SCATTER, _DEEP, {**ENGINE, "tile": TURNS}, _no_group_barrier, NO_BARRIER
    ),
    "fence behind a wait of the warpgroup that loads": Planted(
        GATHER, _DEEP, {**ENGINE, "tile": TURNS}, _no_fence, UNFENCED
    ),
    "wait for pieces before a notify": Planted(
        SCATTER, _DEEP, {"mover": "Fused()", "tile": TURNS}, _replaced("            flush_stores()\n", ""), NOT_DRAINED
    ),
}
