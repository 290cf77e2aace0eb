"""Detection with a torch that sees whatever the test says."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import torch

import topologies
from topologies import IllegalRanks, NothingDetected, UnknownGpu

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`machine("NVIDIA H200", "NVIDIA H200")` is what torch sees from then on, GPUs of `major`.`minor` with `sms` SMs."""

    def see(*gpus: str, major: int = 9, minor: int = 0, sms: int = 114, gcn: str = "") -> None:
        found = SimpleNamespace(
            name="".join(gpus[:1]), major=major, minor=minor, multi_processor_count=sms, gcnArchName=gcn
        )
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: found)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(gpus))
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: gpus[index])

    return see


@pytest.mark.parametrize(
    ("gpu", "count", "name"),
    [
        ("NVIDIA H200", 4, "h200-nvswitch"),
        ("NVIDIA H20", 8, "h20-nvswitch"),
        ("NVIDIA H800", 8, "h800-nvswitch"),
        ("NVIDIA A100-SXM4-80GB", 2, "a100-nvswitch"),
        ("AMD Instinct MI300X", 8, "mi300x-full-mesh"),
        ("NVIDIA L20", 8, "l20-pcie"),
    ],
)
def test_detects(machine: Callable[..., None], gpu: str, count: int, name: str) -> None:
    machine(*[gpu] * count)
    assert topologies.detect() == topologies.load(name, count)


@pytest.mark.parametrize(
    ("gpus", "words"),
    [
        ([], "no GPU"),
        (["NVIDIA H200"], "single GPU (NVIDIA H200)"),
        (["NVIDIA H200", "NVIDIA H100 80GB HBM3"], "several kinds (NVIDIA H100 80GB HBM3, NVIDIA H200)"),
        (["NVIDIA H100 PCIe"] * 4, "no descriptor has the 4 GPUs"),
        (["NVIDIA GeForce RTX 4090"] * 2, "RTX 4090"),
    ],
)
def test_nothing_detected(machine: Callable[..., None], gpus: list[str], words: str) -> None:
    machine(*gpus)
    with pytest.raises(NothingDetected) as caught:
        topologies.detect()
    assert words in str(caught.value.facts["found"])
    assert "h200-nvswitch" in str(caught.value.facts["legal"])


@pytest.mark.parametrize(
    ("gpu", "facts", "nearest"),
    [
        ("NVIDIA H100 PCIe", {"sms": 114}, "h100-nvswitch"),
        ("NVIDIA H20-3e", {"sms": 78}, "h20-nvswitch"),
        ("NVIDIA GeForce RTX 4090", {"major": 8, "minor": 9, "sms": 128}, "l40s-pcie"),
        ("NVIDIA A100-PCIE-40GB", {"major": 8, "sms": 108}, "a100-nvswitch"),
        ("AMD Instinct MI325X", {"gcn": "gfx942:sramecc+:xnack-", "sms": 304}, "mi300x-full-mesh"),
        ("AMD Radeon RX 7900", {"gcn": "gfx1100", "sms": 96}, "mi308x-full-mesh"),
    ],
)
def test_unknown_gpus_name_the_nearest(
    machine: Callable[..., None], gpu: str, facts: dict[str, int], nearest: str
) -> None:
    machine(gpu, gpu, **facts)
    with pytest.raises(UnknownGpu) as caught:
        topologies.detect()
    assert caught.value.facts["nearest"] == nearest


@pytest.mark.parametrize(("count", "ranks"), [(1, 8), (8, 2)])
def test_a_number_of_ranks_that_is_given(machine: Callable[..., None], count: int, ranks: int) -> None:
    machine(*["NVIDIA H200"] * count)
    assert topologies.detect(ranks) == topologies.load("h200-nvswitch", ranks)


def test_known_gpus_in_an_illegal_number(machine: Callable[..., None]) -> None:
    machine(*["NVIDIA L20"] * 6)
    with pytest.raises(IllegalRanks):
        topologies.detect()


def test_descriptors_are_read_without_torch() -> None:
    code = "import sys, topologies; topologies.load('h200-nvswitch'); print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
