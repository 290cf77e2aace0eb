"""What `run --profile` says of a call, and when it says no."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tilelink.errors import ProfileNeedsGpus
from tilelink.profiling.start import told
from tilelink.run_command import Device, run


def span(rank: int, program: int, doing: str, start: float, end: float, where: str = "y_tiles") -> dict[str, object]:
    return {
        "rank": rank,
        "lane": f"program {program}",
        "doing": doing,
        "where": where,
        "start_us": start,
        "end_us": end,
    }


CALL: dict[str, Any] = {
    "call_us": 100.0,
    "call_with_stamps_us": 101.5,
    "clocks_within_us": 1.5,
    "streams_within_us": 2.0,
    "alone_us": 80.0,
    "spans": [
        span(0, 0, "tile", 0.0, 90.0),
        *(span(1, 0, "launch", 0.0, 4.0), span(1, 0, "tile", 4.0, 44.0), span(1, 0, "wait", 44.0, 56.0, "y: wait A")),
        *(span(1, 0, "tile", 56.0, 98.0), span(1, 0, "end", 98.0, 100.0)),
        *(span(1, 1, "launch", 0.0, 6.0), span(1, 1, "tile", 6.0, 46.0), span(1, 1, "wait", 46.0, 48.0, "y: wait B")),
        *(span(1, 1, "tile", 48.0, 90.0), span(1, 1, "end", 90.0, 94.0)),
    ],
}


def test_what_is_exposed_is_told() -> None:
    first, second, third = told(CALL, links_us=30.0, predicted_us=97.0, alone_us=70.0)
    assert first == (
        "a call takes 100.0 us (101.5 with stamps, 97.0 predicted); clocks of ranks are known within 1.5 us, "
        "those of streams within 2.0"
    )
    assert second == "exposed communication: 20.0 us = 100.0 - max(80.0 computing alone, 30.0 on the link)"
    # launches of 4 and 6, waits of 12 and 2, ends of 2 and 4, and the second program ends 6 before the last one; tiles of 82
    assert third == (
        "beyond computing alone, on average over programs of rank 1: 6.0 us wait in y: wait A; 5.0 us launch, and between "
        "kernels; 3.0 us no further tile, until the last program ends; 3.0 us end of the call; 2.0 us tiles, beyond computing "
        "alone; 1.0 us wait in y: wait B"
    )


def test_the_link_may_be_longer_and_matmuls_predicted() -> None:
    call = {name: value for name, value in CALL.items() if name != "alone_us"} | {"spans": []}
    lines = told(call, links_us=95.0, predicted_us=97.0, alone_us=70.0)
    assert lines[1] == "exposed communication: 5.0 us = 100.0 - max(70.0 computing alone, predicted, 95.0 on the link)"
    assert len(lines) == 2


def test_a_call_may_be_faster_than_the_library_alone() -> None:
    line = told(CALL | {"alone_us": 104.0}, links_us=30.0, predicted_us=97.0, alone_us=70.0)[1]
    assert line == (
        "exposed communication: -4.0 us = 100.0 - max(104.0 computing alone, 30.0 on the link); none, as the call is "
        "faster than that"
    )


@pytest.mark.parametrize(("device", "target"), [(Device.CPU, "triton"), (Device.CUDA, "triton-distributed")])
def test_clocks_are_those_of_gpus(device: Device, target: str) -> None:
    sizes = ["M=256", "K=64", "N=128"]
    with pytest.raises(ProfileNeedsGpus, match=f"this runs on {device.value} for {target}") as found:
        run("examples/02_ag_gemm.py:ag_gemm", sizes, device=device, target=target, profile=Path("spans.json"))
    assert "Legal: --device cuda --target triton" in str(found.value)
