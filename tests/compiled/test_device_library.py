"""What kernels are linked with: the few functions of NVSHMEM's device library that they call, taken out of it once."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import triton

import lowering
import topologies
from lowering.host import nvshmem, nvshmem_libraries
from tests.pipeline.workloads import load
from tilelink.runtime.aot import _source, record
from tilelink.runtime.load import load_source

_TYPES = {64: "i64", 32: "i32"}


def library(folder: Path) -> None:
    """One with a function for each that is called, which calls another one, and with one that nobody calls."""
    lines = ['target triple = "nvptx64-nvidia-cuda"', "@state = addrspace(1) externally_initialized global i32 0"]
    for number, (name, sizes) in enumerate(nvshmem._CALLED.items()):
        arguments = ", ".join(f"{_TYPES[size]} %a{place}" for place, size in enumerate(sizes))
        lines += [
            f"define internal void @inner_{number}() noinline {{",
            f"store volatile i32 {number + 40}, ptr addrspace(1) @state",
            "ret void",
            "}",
            f"define void @{name}({arguments}) {{",
            f"call void @inner_{number}()",
            "ret void",
            "}",
        ]
    lines += ["define void @nobody() {", "ret void", "}"]
    (folder / "libnvshmem_device.bc").write_text("\n".join(lines))


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    library(tmp_path)
    monkeypatch.setenv("NVSHMEM_LIB_DIR", str(tmp_path))
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path / "kernels"))
    return tmp_path


def test_nothing_else_is_taken(there: Path) -> None:
    path = nvshmem.called_library()
    text = Path(path).read_text()
    defined = re.findall(r"^define (internal )?.*?@(\w+)\(", text, re.MULTILINE)
    assert {name for hidden, name in defined if not hidden} == set(nvshmem._CALLED)
    assert {name for hidden, name in defined if hidden} == {f"inner_{one}" for one in range(len(nvshmem._CALLED))}
    assert os.listdir(there / "kernels") == [Path(path).name]


def test_it_is_made_once_for_a_library(there: Path) -> None:
    first = nvshmem.called_library()
    Path(first).write_text("kept")
    assert nvshmem.called_library() == first and Path(first).read_text() == "kept"
    os.utime(there / "libnvshmem_device.bc", ns=(1, 1))
    assert nvshmem.called_library() != first


def test_kernels_are_the_same(there: Path) -> None:
    topology = topologies.load("h200-nvswitch", 4, 2)
    schedule = load("11_reduce_scatter.py:reduce_scatter").plan_for(
        topology, {"M": 512, "N": 256}, "bf16", {"mover": "Rails(1)"}
    )
    module = load_source(lowering.emit(schedule, "triton-nvshmem"), "reduce_scatter")
    called = 0
    for launch in record(module, 4):
        source, target, given = _source(launch, "sm_90")
        texts = [
            re.sub(
                r"//.*",
                "",
                triton.compile(source, target=target, options=given | {"extern_libs": {"lib": path}}).asm["ptx"],
            )
            for path in (nvshmem_libraries.library("libnvshmem_device.bc"), nvshmem.called_library())
        ]
        assert texts[0] == texts[1] and ".extern .func" not in texts[1]
        called += "inner_" in texts[1]
    assert called


def test_without_a_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NVSHMEM_LIB_DIR", str(tmp_path))
    with pytest.raises(RuntimeError, match="nvidia-nvshmem-cu13"):
        nvshmem.called_library()
