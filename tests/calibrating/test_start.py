"""What a calibration begins with, and what it says where something is missing. torch sees what a test says."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import topologies
from tests.calibrating.fake_machine import FakeDevice, FakeWork, Ranks
from tilelink.calibrating import ranks
from tilelink.calibrating.calibrate import Calibrated, calibrated, measured
from tilelink.calibrating.errors import CalibrationStopped, CannotCalibrate, DescriptorExists, PeakUnknown
from tilelink.calibrating.start import Seen, check_machine, start
from tilelink.cli_errors import OutputNotWritable
from tilelink.runtime.ranks import MULTICAST_OFF
from topologies import IllegalRanks
from topologies.descriptor import parse

RANKS = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
H200 = Seen("NVIDIA H200", "sm_90", 132, 62914560, 233472, 3)
OTHER = Seen("NVIDIA H100 PCIe", "sm_90", 114, 52428800, 233472, 5)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`gpus(seen, count)`: what torch sees from then on."""

    def see(seen: Seen, count: int = 2, peers: bool = True) -> None:
        major, minor = divmod(int(seen.arch[3:]), 10)
        found = SimpleNamespace(
            name=seen.name, major=major, minor=minor, multi_processor_count=seen.num_sms, gcnArchName=""
        )
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: seen.name)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: found)
        monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda rank, peer: peers)

    return see


@pytest.mark.parametrize(
    ("count", "peers", "environment", "missing", "legal"),
    [
        (0, True, RANKS, "no GPU", "2 or more GPUs"),
        (1, True, RANKS, "a single GPU", "CUDA_VISIBLE_DEVICES"),
        (4, True, {}, "no ranks were started", "torchrun --nproc-per-node N"),
        (4, True, RANKS | {"WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}, "one rank", "N from 2 to 4"),
        (2, True, RANKS | {"WORLD_SIZE": "4"}, "several hosts", "N from 2 to 2"),
        (2, True, RANKS | {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}, "4 ranks share 2 GPUs", "N from 2 to 2"),
        (2, False, RANKS, "peer access", "nvidia-smi topo -p2p r"),
    ],
)
def test_what_is_missing(
    gpus: Callable[..., None], count: int, peers: bool, environment: dict[str, str], missing: str, legal: str
) -> None:
    gpus(H200, count, peers)
    with pytest.raises(CannotCalibrate) as caught:
        check_machine(environment)
    assert missing in str(caught.value.facts["missing"])
    assert legal in str(caught.value.facts["legal"])


def test_gpus_of_amd(gpus: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(H200)
    monkeypatch.setattr(torch.version, "hip", "6.4")
    with pytest.raises(CannotCalibrate, match="AMD"):
        check_machine(RANKS)


def test_ranks_with_gpus_of_their_own(gpus: Callable[..., None]) -> None:
    gpus(H200, 8)
    assert check_machine(RANKS) == 2


def test_known_gpus_begin_with_their_descriptor(gpus: Callable[..., None]) -> None:
    gpus(H200)
    begin = start(H200, 2, None, None, "2026-11")
    assert begin.descriptor.topology == topologies.load("h200-nvswitch")
    assert (begin.another_gpu, begin.told, begin.cut(2).num_ranks) == (False, {}, 2)


def test_other_gpus_need_their_peak(gpus: Callable[..., None]) -> None:
    gpus(OTHER)
    with pytest.raises(PeakUnknown) as caught:
        start(OTHER, 2, None, None, "2026-11")
    assert caught.value.facts == {"gpu": "NVIDIA H100 PCIe", "like": "h100-nvswitch"}


def test_gpus_that_no_descriptor_has(gpus: Callable[..., None]) -> None:
    """Facts of the driver, the peak that is given, and what the nearest GPU has."""
    gpus(OTHER)
    begin = start(OTHER, 2, None, 756.0, "2026-11")
    assert begin.another_gpu and begin.descriptor.device_names == ("NVIDIA H100 PCIe",)
    fake = Ranks(2)
    found = fake.run(lambda device: measured(device, FakeWork(device), begin, lambda step: None))
    done = calibrated(begin, found[0], OTHER, 2, "2026-11")
    read = parse(done.text, "my.toml").topology
    assert read == done.topology
    assert (read.gpu.name, read.gpu.num_sms, read.gpu.num_copy_engines) == ("NVIDIA H100 PCIe", 114, 5)
    assert read.push_sms.points[-1][0] == 114
    assert read.gpu.tflops("bf16") == 756.0
    assert read.gpu.tflops("fp8") == pytest.approx(1513, rel=0.001)
    origins = dict(read.provenance)
    assert origins["gpu.num_sms"] == "measured 2026-11 1xH100 PCIe: as the driver reports"
    assert origins["gpu.dense_tflops.bf16"] == "estimate: bf16 as given by --tflops"
    assert origins["gpu.num_dies"] == "estimate: kept from h100-nvswitch, another GPU (datasheet)"
    assert origins["gpu.memory_gb_per_s"].startswith("measured 2026-11 2xH100 PCIe")


def test_no_descriptor_of_the_architecture(gpus: Callable[..., None]) -> None:
    gpus(Seen("NVIDIA T4", "sm_75", 40, 1, 1, None))
    with pytest.raises(CannotCalibrate) as caught:
        start(Seen("NVIDIA T4", "sm_75", 40, 1, 1, None), 2, None, 65.0, "2026-11")
    assert "--like" in str(caught.value)


def test_a_descriptor_that_is_given(gpus: Callable[..., None]) -> None:
    gpus(OTHER)
    begin = start(OTHER, 2, "l40s-pcie", 756.0, "2026-11")
    assert [level.name for level in begin.descriptor.topology.levels] == ["pcie", "numa"]
    assert begin.descriptor.topology.gpu.tensor_descriptors


def test_more_ranks_than_the_fabric_has(gpus: Callable[..., None]) -> None:
    gpus(H200, 9)
    with pytest.raises(IllegalRanks):
        start(H200, 9, None, None, "2026-11")


def test_files_are_whole_and_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "my.toml"
    ranks.check_output(path)
    ranks.write_new(path, "first")
    with pytest.raises(DescriptorExists):
        ranks.check_output(path)
    with pytest.raises(DescriptorExists):
        ranks.write_new(path, "second")
    with pytest.raises(OutputNotWritable):
        ranks.check_output(tmp_path / "absent" / "my.toml")
    with pytest.raises(OutputNotWritable):
        ranks.write_new(tmp_path / "absent" / "my.toml", "text")

    def no_links(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", no_links)
    ranks.write_new(tmp_path / "other.toml", "third")
    with pytest.raises(DescriptorExists):
        ranks.write_new(path, "second")
    assert {one.name: one.read_text() for one in tmp_path.iterdir()} == {"my.toml": "first", "other.toml": "third"}


def test_a_rank_that_fails_ends(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def end(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr("os._exit", end)
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(SystemExit) as caught:
        ranks.give_up("multiplying", "RuntimeError: no")
    assert caught.value.code == 1
    said = capsys.readouterr().err
    assert said.startswith("CalibrationStopped: rank 1 stopped while multiplying: RuntimeError: no.")
    assert (
        said.strip()
        == f"CalibrationStopped: {CalibrationStopped(rank=1, step='multiplying', reason='RuntimeError: no')}"
    )


def test_a_whole_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks as threads: each finds the same, and leaves the group."""
    fake, here, left = Ranks(2), threading.local(), list[object]()
    monkeypatch.setattr(ranks, "check_machine", lambda environment: 2)
    monkeypatch.setattr(ranks, "seen_here", lambda: H200)
    monkeypatch.setattr(ranks, "join", lambda: None)
    monkeypatch.setattr(ranks, "check_peers", lambda group: None)
    monkeypatch.setattr(ranks, "CudaDevice", lambda device: here.device)
    monkeypatch.setattr(ranks, "SymmetricMemoryFabric", lambda: here.device)
    monkeypatch.setattr(ranks, "GpuWork", lambda fabric, largest, places: FakeWork(fabric))
    monkeypatch.setattr("torch.distributed.destroy_process_group", lambda: left.append(here.device.rank))
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    for name in MULTICAST_OFF:
        monkeypatch.setenv(name, "as the user has it")
    monkeypatch.setenv("LOCAL_RANK", "0")

    def one(device: FakeDevice) -> Calibrated:
        here.device = device
        return ranks.calibrate(None, "h200-nvswitch", None)

    first, second = fake.run(one)
    assert first == second
    assert parse(first.text, "my.toml").topology == first.topology
    assert sorted(map(str, left)) == ["0", "1"]
    assert {name: os.environ[name] for name in MULTICAST_OFF} == MULTICAST_OFF
