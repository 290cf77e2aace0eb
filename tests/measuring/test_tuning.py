"""A schedule chosen by measuring, on a device whose clock is advanced by what schedules are said to take."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated

import pytest
import torch

import tilelink
import topologies
from tests.bench.fakes import FakeDevice
from tilelink import Shard, Tensor, dims, tuning
from tilelink.emulator import World
from tilelink.errors import IllegalTune, NothingTuned, TuneNeedsGpus
from tilelink.ir.schedule import Schedule
from tilelink.measuring.device import Call, Outputs
from tilelink.measuring.measure import Options
from tilelink.measuring.spec_problem import SpecSetting, make_inputs, wanted_of
from tilelink.tuning import LIBRARY, PLANNED, Timed, Tuned, candidates, fastest, tuned

M, K, N = dims("M K N")
CPU = torch.device("cpu")
MACHINE = topologies.load("h200-nvswitch", 2)
SIZES = {"M": 64, "K": 64, "N": 128}
_ROUNDS = 2


@tilelink.overlap
def ag_gemm(x: Annotated[Tensor, (M, K), Shard(0)], w: Annotated[Tensor, (K, N), Shard(1)]) -> Tensor:
    return tilelink.matmul(tilelink.all_gather(x, dim=0), w)


@tilelink.overlap
def gemm_ar(x: Annotated[Tensor, (M, K), Shard(1)], w: Annotated[Tensor, (K, N), Shard(0)]) -> Tensor:
    return tilelink.all_reduce(tilelink.matmul(x, w))


PLAN = ag_gemm.plan_for(MACHINE, SIZES)
Run = Callable[..., Tuned]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILELINK_CACHE", str(tmp_path))
    return tmp_path / "tuned"


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`tuned` where a schedule takes what `times` says of its name, 10 us otherwise; None: it fails, nan: it is wrong."""

    def call(times: dict[str, float | None], count: int = 3, device: FakeDevice | None = None, **pins: str) -> Tuned:
        fake = device or FakeDevice()
        planned = ag_gemm.plan_for(MACHINE, SIZES, pin=pins)
        known = _candidates(count, tuple(pins.items()))
        names = {one.hash: name for name, one in known.items()}

        def prepare(setting: SpecSetting, schedule: Schedule, group: object, target: str) -> Call:
            name = names[schedule.hash]
            us = times.get(name, 10.0)
            if us is None:
                raise RuntimeError("no binary for this GPU")

            def once() -> Outputs:
                fake.clock_us += 10.0 if us != us else us
                fake.order.append(name)
                return tuple(one * (us / us) for one in _right(setting))

            return once

        monkeypatch.setattr(tuning, "prepare", prepare)
        monkeypatch.setattr(tuning, "candidates", lambda *_: known)  # the same, searched once
        monkeypatch.setattr(tuning, "_OPTIONS", Options(rounds=_ROUNDS, load_ms=0.0))
        return tuned(fake, CPU, MACHINE, planned, count, pins)

    return call


@cache
def _candidates(count: int, pins: tuple[tuple[str, str], ...]) -> dict[str, Schedule]:
    planned = ag_gemm.plan_for(MACHINE, SIZES, pin=dict(pins))
    return candidates(MACHINE, planned, count, dict(pins))


def _right(setting: SpecSetting) -> tuple[torch.Tensor, ...]:
    """The outputs of rank 0 for the inputs that it holds now: those of the first seed, or fresh ones."""
    (found,) = (outputs for x, outputs in _known() if torch.equal(x, setting.inputs[0]))
    return found


@cache
def _known() -> list[tuple[torch.Tensor, tuple[torch.Tensor, ...]]]:
    """Of both seeds: the first input of rank 0, and its outputs."""
    found = []
    for seed in (0, 1):
        ranks = [make_inputs(PLAN.spec, rank, seed, CPU) for rank in range(2)]
        outputs = tuple(near.value.to(torch.bfloat16) for near in wanted_of(PLAN.spec, ranks, 0))
        found.append((ranks[0][0], outputs))
    return found


def test_the_fastest_stays(run: Run) -> None:
    found = run({"alternative 2": 5.0})
    assert (found.chosen, found.known) == ("alternative 2", False)
    assert found.schedule == _candidates(3, ())["alternative 2"]
    assert [one.name for one in found.timed] == [PLANNED, "alternative 1", "alternative 2", "alternative 3", LIBRARY]
    assert found.timed[2].us == pytest.approx(5.0)


def test_all_take_turns_in_each_round(run: Run) -> None:
    device = FakeDevice()
    run({}, device=device)
    names = [name for name, _ in device.runs]
    turns = [names.count(name) for name in (PLANNED, "alternative 1", LIBRARY)]
    assert min(turns) > _ROUNDS


def test_the_library_s_schedule_may_stay(run: Run) -> None:
    found = run({LIBRARY: 2.0}, count=1)
    assert dict(found.schedule.choices) == {"x_full.mover": "Library()", "out.compute": "library"}


def test_noise_changes_no_choice(run: Run) -> None:
    assert run({"alternative 1": 9.97}).chosen == PLANNED


def test_one_that_fails_or_is_wrong_is_named_and_left_out(run: Run) -> None:
    found = run({"alternative 1": None, "alternative 2": float("nan"), "alternative 3": 8.0})
    assert found.chosen == "alternative 3"
    failed = {one.name: one.failure for one in found.timed if one.us is None}
    assert "no binary for this GPU" in failed["alternative 1"]
    assert failed["alternative 2"]


def test_nothing_that_runs_is_an_error(run: Run) -> None:
    names = (PLANNED, "alternative 1", "alternative 2", "alternative 3", LIBRARY)
    with pytest.raises(NothingTuned, match="no binary for this GPU"):
        run(dict.fromkeys(names))


def test_what_was_found_is_known_the_next_time(run: Run) -> None:
    first = run({"alternative 2": 5.0})
    device = FakeDevice()
    again = run({"alternative 1": 1.0}, device=device)  # of another day: nothing is measured
    assert (again.known, again.chosen, again.schedule) == (True, "alternative 2", first.schedule)
    assert again.timed == first.timed
    assert device.order == []


def test_fewer_alternatives_are_covered_and_more_are_not(run: Run) -> None:
    run({"alternative 2": 5.0}, count=3)
    assert run({}, count=2).known
    assert not run({}, count=4).known


def test_ranks_that_know_otherwise_measure(run: Run) -> None:
    run({"alternative 2": 5.0})
    empty = FakeDevice(peer=lambda text: "" if "alternative" in text else text)
    assert not run({"alternative 1": 1.0}, device=empty).known


@pytest.mark.parametrize("damage", ["", "{}", "cut off", "another number"])
def test_a_damaged_file_is_passed_over_and_written_anew(run: Run, folder: Path, damage: str) -> None:
    run({"alternative 2": 5.0})
    (file,) = folder.iterdir()
    text = file.read_text()
    if damage == "cut off":
        damage = text[: len(text) // 2]
    if damage == "another number":
        damage = json.dumps({**json.loads(text), "beside": {"count": 99, "timed": []}})
    file.write_text(damage)
    assert not run({"alternative 1": 5.0}).known
    assert run({}).chosen == "alternative 1"


def test_pins_are_part_of_what_is_known_and_hold_for_all(run: Run) -> None:
    run({"alternative 2": 5.0})
    found = run({}, mover="CopyEngine()")
    assert not found.known
    assert {one.choices["x_full.mover"] for one in found.timed} == {"CopyEngine()"}
    assert LIBRARY not in [one.name for one in found.timed]


@pytest.mark.parametrize(
    ("pins", "have"),
    [
        ({"outputs": "reused"}, {}),  # a promise of the caller's, which no schedule has to use
        ({"algorithm": "direct"}, {"x_full.protocol": "simple"}),
        ({"out.compute": "library"}, {"out.compute": "library"}),
    ],
)
@pytest.mark.slow
def test_pins_that_stand_for_others_hold_too(pins: dict[str, str], have: dict[str, str]) -> None:
    sizes = {"M": 4096, "K": 1024, "N": 2048}
    operator = gemm_ar if "outputs" in pins else ag_gemm
    planned = operator.plan_for(MACHINE, sizes, pin=pins)
    found = candidates(MACHINE, planned, 4, pins)
    assert len(found) > 1
    for one in found.values():
        assert have.items() <= dict(one.choices).items()


def test_without_a_cache_each_time_is_the_first(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILELINK_CACHE", "off")
    assert not run({}).known
    assert not run({}).known


def test_ties_go_to_what_is_planned() -> None:
    def timed(name: str, us: float | None) -> Timed:
        return Timed(name, 1.0, us, "" if us else "it failed", {})

    assert fastest([timed("planned", 4.0), timed("a", 4.0)]) == PLANNED
    assert fastest([timed("planned", None), timed("b", 4.0), timed("a", 4.0)]) == "a"
    assert fastest([timed("planned", None)]) == ""


@pytest.mark.parametrize("value", [-1, 1.5, True, "5"])
def test_tune_is_a_number_of_alternatives(value: object) -> None:
    with pytest.raises(IllegalTune, match="Legal: an integer of 0 or more"):
        ag_gemm.compile(World(2).fabrics[0], tune=value, M=64, K=64, N=128)  # type: ignore[arg-type]


def test_emulated_ranks_have_no_times() -> None:
    with pytest.raises(TuneNeedsGpus, match="emulated ranks have no times"):
        ag_gemm.compile(World(2).fabrics[0], tune=2, M=64, K=64, N=128)
