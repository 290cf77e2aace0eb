"""What is measured on ranks whose times are known, and the descriptor that follows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import topologies
from tests.calibrating.fake_machine import FakeDevice, FakeWork, Ranks
from tilelink.calibrating import measure
from tilelink.calibrating.calibrate import calibrated, measured
from tilelink.calibrating.crossing import crossings
from tilelink.calibrating.errors import BytesDiffer, CannotCalibrate, GemmBeatsPeak, WordsLost
from tilelink.calibrating.finding import Finding, kept
from tilelink.calibrating.sampling import gb_per_s, rising, rounded, slowest_us, tflops
from tilelink.calibrating.start import Seen, Start
from topologies.descriptor import parse
from topologies.loader import load_descriptor
from topologies.topology import Ramp


def l20(device: FakeDevice) -> FakeWork:
    return FakeWork(device, gemm_tflops=100.0)


def start_of(name: str) -> Start:
    descriptor = load_descriptor(name)
    return Start(descriptor, False, descriptor.topology.gpu.num_sms, {})


def run(
    name: str, num_ranks: int, work: Callable[[FakeDevice], FakeWork]
) -> tuple[list[list[Finding]], list[FakeWork]]:
    """Findings of all ranks, and what they have enqueued."""
    ranks = Ranks(num_ranks)
    works = [work(device) for device in ranks.devices]
    found = ranks.run(lambda device: measured(device, works[device.rank], start_of(name), lambda step: None))
    return found, works


def values(findings: list[Finding]) -> dict[str, float | Ramp]:
    return {finding.key: finding.value for finding in findings}


def test_two_ranks_of_a_switch() -> None:
    found, _ = run("h200-nvswitch", 2, FakeWork)
    assert found[0] == found[1]
    by_key = values(found[0])
    engine, push = by_key["copy_engine"], by_key["push_sms"]
    assert isinstance(engine, Ramp) and isinstance(push, Ramp)
    shipped = topologies.load("h200-nvswitch")
    assert [x for x, _ in engine.points] == [x for x, _ in shipped.copy_engine.points]
    assert engine.at(1 << 18) == pytest.approx(131.0)  # 2 us: the start
    assert engine.at(1 << 28) == 400.0
    assert push.points[:2] == ((1.0, 30.0), (2.0, 60.0))
    assert push.points[-3:] == ((32.0, 398.0), (64.0, 398.0), (132.0, 398.0))  # never falling
    assert {key: value for key, value in by_key.items() if not isinstance(value, Ramp)} == {
        "copy_engine_start_us": 2.0,
        "levels.nvswitch.gb_per_s": 400.0,
        "levels.nvswitch.signal_us": 1.5,
        "gpu.memory_gb_per_s": rounded(2 * 2**30 / 500 / 1e3),
        "gpu.kernel_launch_us": 1.1,
        "gpu.gemm_efficiency": rounded(650 / 989),
    }


def test_the_slowest_rank_counts() -> None:
    found, _ = run("h200-nvswitch", 4, lambda device: FakeWork(device, slower=2.0))
    assert values(found[0])["levels.nvswitch.gb_per_s"] == 200.0
    assert values(found[3])["gpu.kernel_launch_us"] == 2.2


def test_all_ranks_of_a_switch_copy_at_once() -> None:
    _, works = run("h200-nvswitch", 3, FakeWork)
    for rank, work in enumerate(works):
        behind = ((rank + 1) % 3, (rank + 2) % 3)
        assert {one[1] for one in work.done if one[:1] == ("push",)} == {behind[0]}
        assert {one[1] for one in work.done if one[:1] == ("copy",)} == {behind}
        assert [one[1] for one in work.done if one[:1] == ("wrong",)] == [behind, behind]
    assert [[one[1:] for one in work.done if one[:1] == ("words",)] for work in works] == [
        [(1, 0, True, True)],
        [(0, 0, False, True)],
        [],
    ]


def test_pairs_cross_each_level_of_bridges() -> None:
    """One direction alone, since all behind a bridge share its rate; the other ranks wait."""
    found, works = run("l20-pcie", 8, l20)
    assert {"levels.pcie.gb_per_s", "levels.numa.gb_per_s", "levels.numa.signal_us"} <= values(found[0]).keys()
    pushed = [{one[1] for one in work.done if one[:1] == ("push",)} for work in works]
    assert pushed == [{1, 4}, *[set()] * 7]
    words = [[one[1:] for one in work.done if one[:1] == ("words",)] for work in works]
    assert words[0] == [(1, 0, True, False), (4, 1, True, False)]
    assert (words[1], words[4], words[2]) == ([(0, 0, False, False)], [(0, 1, False, False)], [])
    checked = [[one[1] for one in work.done if one[:1] == ("wrong",)] for work in works]
    assert checked[:2] == [[(), (1,)], [(0,), ()]]  # pushes arrive at rank 1, pulls at rank 0


def test_levels_that_the_group_does_not_span_are_left() -> None:
    found, _ = run("l20-pcie", 2, l20)
    assert not [key for key in values(found[0]) if key.startswith("levels.numa")]


def test_networks_are_not_measured() -> None:
    with pytest.raises(CannotCalibrate) as caught:
        crossings(topologies.load("h800-2-nodes"))
    assert "network" in str(caught.value)


def test_words_that_are_lost() -> None:
    ranks = Ranks(2)
    (crossing,) = crossings(topologies.load("h200-nvswitch", 2))

    def play(device: FakeDevice) -> object:
        with pytest.raises(WordsLost) as caught:
            measure.signal(device, FakeWork(device, lost=device.rank == 1), crossing, 0)
        return caught.value.facts["level"]

    assert ranks.run(play) == ["nvswitch"] * 2


def test_bytes_that_differ() -> None:
    ranks = Ranks(2)
    (crossing,) = crossings(topologies.load("h200-nvswitch", 2))

    def copy(device: FakeDevice) -> object:
        with pytest.raises(BytesDiffer) as caught:
            measure.sm_copies(device, FakeWork(device, wrong=7 * device.rank), crossing, [1], push=True)
        return caught.value.facts["rank"], caught.value.facts["words"]

    assert ranks.run(copy) == [(1, 7)] * 2


def test_a_matmul_above_the_peak() -> None:
    ranks, small = Ranks(2), topologies.load("l20-pcie", 2)

    def multiply(device: FakeDevice) -> object:
        with pytest.raises(GemmBeatsPeak) as caught:
            measure.gemm(device, FakeWork(device), small)
        return caught.value.facts["measured"]

    assert ranks.run(multiply) == [650.0] * 2


def test_the_median_of_rounds() -> None:
    device = Ranks(1).devices[0]
    times = iter([5.0, 1.0, 3.0])
    device.time = lambda batch, lead_in, batches, change=None: [next(times)] * batches  # type: ignore[method-assign]
    assert slowest_us(device, measure.nothing, rounds=3) == 3.0


def test_arithmetic() -> None:
    assert (gb_per_s(64e6, 200.0), tflops(2e12, 4000.0)) == (320.0, 500.0)
    assert rising([(1, 10.049), (2, 30.0), (4, 29.0)]) == ((1, 10.0), (2, 30.0), (4, 30.0))
    assert (rounded(4317.2), rounded(0.68551)) == (4320.0, 0.686)
    assert measure.copied_bytes(7) % (7 * measure.BLOCK_BYTES) == 0
    assert measure.sm_counts(Ramp(((1, 1), (64, 2), (132, 3))), 132, 114) == [1, 64, 114]
    assert measure.sm_counts(Ramp(((1, 1), (32, 2))), 92, 128) == [1, 32]  # a bridge is full before


def test_the_descriptor_loads_and_says_how_it_was_measured() -> None:
    found, _ = run("l20-pcie", 2, l20)
    begin = start_of("l20-pcie")
    seen = Seen("NVIDIA L20", "sm_89", 92, 1, 1, 2)
    done = calibrated(begin, found[0], seen, 2, "2026-11")
    read = parse(done.text, "my.toml")
    assert read.topology == done.topology
    assert read.device_names == ("NVIDIA L20",)
    assert (read.topology.name, read.topology.num_ranks) == ("l20-pcie-calibrated", 8)
    origins = dict(read.topology.provenance)
    assert origins["copy_engine"].startswith("measured 2026-11 2xL20: pushes back to back")
    assert (
        origins["levels.pcie.gb_per_s"]
        == "measured 2026-11 2xL20: copy engine push of 256 MiB, rank 0 to rank 1, others idle"
    )
    assert origins["levels.numa.gb_per_s"].startswith("estimate: kept from l20-pcie, peer traffic")
    assert origins["gpu.num_sms"] == "datasheet"
    assert done.table.splitlines()[0].split() == ["field", "shipped", "measured", "ratio"]
    assert "levels.pcie.gb_per_s" in done.table and "15.38" in done.table  # 400 of 26


def test_origins_of_what_is_kept() -> None:
    assert kept("datasheet", "one", False) == "datasheet"
    assert kept("datasheet", "one", True) == "estimate: kept from one, another GPU (datasheet)"
    assert kept("estimate", "one", True) == "estimate: kept from one"
    assert kept("measured 2026-11 4xH200: x", "one", False) == "measured 2026-11 4xH200: x; kept from one"
