"""Calls that a fabric on GPUs remembers, and replays as graphs, on a fake GPU: also where enqueuing raises."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import lowering
from lowering.host import symmetric_memory
from lowering.host.symmetric_memory import MOST_CALLS, SymmetricMemoryFabric
from tests.pipeline.workloads import load


class Gpu:
    """The stream that is current, and the one that is being captured; only one may be, and it must be current."""

    def __init__(self) -> None:
        self.current: Any = SimpleNamespace(cuda_stream=1)
        self.captured: Any = None
        self.broken = False
        self.replays = 0

    @contextlib.contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    found = Gpu()

    class Graph:
        def capture_begin(self, capture_error_mode: str) -> None:
            assert found.captured is None, "a capture is still open"
            found.captured = found.current

        def capture_end(self) -> None:
            assert found.captured is found.current
            found.captured = None
            if found.broken:
                raise RuntimeError("capture invalidated")

        def replay(self) -> None:
            assert found.captured is None
            found.replays += 1

    fakes = {
        "current_device": lambda: 0,
        "get_device_properties": lambda device: SimpleNamespace(multi_processor_count=132),
        "current_stream": lambda: found.current,
        "Stream": lambda priority: SimpleNamespace(cuda_stream=2),
        "stream": found.stream,
        "is_current_stream_capturing": lambda: found.captured is found.current,
        "CUDAGraph": Graph,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: found.current.cuda_stream, raising=False)
    monkeypatch.setattr(symmetric_memory, "driver", None)
    return found


class Fault(Exception):
    """What enqueuing raises."""


class Operator:
    """Writes down whether its work went into a graph; raises `fault` if there is one."""

    def __init__(self) -> None:
        self.captured: list[bool] = []
        self.fault: BaseException | None = None

    def enqueue(self, stream: Any, x: torch.Tensor) -> None:
        if self.fault is not None:
            raise self.fault
        self.captured.append(stream.captures())


@pytest.fixture
def fabric(gpu: Gpu) -> SymmetricMemoryFabric:
    return SymmetricMemoryFabric(SimpleNamespace(rank=lambda: 0, size=lambda: 1))  # type: ignore[arg-type]


X = torch.zeros(1)


def call(fabric: SymmetricMemoryFabric, op: Operator, x: torch.Tensor = X) -> None:
    fabric.run(op.enqueue, fabric.main(), x)


def failing(fabric: SymmetricMemoryFabric, op: Operator, fault: BaseException) -> None:
    op.fault = fault
    with pytest.raises(type(fault)) as raised:
        call(fabric, op)
    assert raised.value is fault
    op.fault = None


def test_the_third_call_replays_what_the_second_enqueued(fabric: SymmetricMemoryFabric, gpu: Gpu) -> None:
    op = Operator()
    for _ in range(3):
        call(fabric, op)
    assert (op.captured, gpu.replays) == ([False, True], 2)


def test_as_many_calls_are_remembered_as_it_says(fabric: SymmetricMemoryFabric, gpu: Gpu) -> None:
    op, tensors = Operator(), [torch.zeros(1) for _ in range(MOST_CALLS + 1)]
    for x in tensors:
        call(fabric, op, x)
    call(fabric, op, tensors[1])
    call(fabric, op, tensors[0])  # the oldest one was dropped
    assert op.captured[-2:] == [True, False]


@pytest.mark.parametrize("broken", [False, True], ids=["capture that ends", "capture that is broken"])
@pytest.mark.parametrize(
    "fault", [Fault(), RuntimeError("enqueue"), KeyboardInterrupt()], ids=lambda f: type(f).__name__
)
def test_a_fault_in_a_capture_ends_it(
    fault: BaseException, broken: bool, fabric: SymmetricMemoryFabric, gpu: Gpu
) -> None:
    op = Operator()
    call(fabric, op)
    gpu.broken = broken
    failing(fabric, op, fault)
    gpu.broken = False
    assert gpu.captured is None and gpu.replays == 0
    for _ in range(2):
        call(fabric, op)
    assert (op.captured, gpu.replays) == ([False, False, True], 1)


def test_a_first_call_that_fails_is_not_remembered(fabric: SymmetricMemoryFabric, gpu: Gpu) -> None:
    op = Operator()
    failing(fabric, op, Fault())
    call(fabric, op)
    assert (op.captured, gpu.replays) == ([False], 0)


def test_a_graph_belongs_to_the_stream_of_its_calls(fabric: SymmetricMemoryFabric, gpu: Gpu) -> None:
    """Two streams may run at once, and what the library keeps for the stream of a capture is in the graph."""
    op = Operator()
    for _ in range(2):
        call(fabric, op)
    gpu.current = SimpleNamespace(cuda_stream=7)
    for _ in range(3):
        call(fabric, op)
    assert (op.captured, gpu.replays) == ([False, True, False, True], 3)
    assert {"capture 1", "capture 7"} <= set(fabric._streams)


@pytest.mark.parametrize(("algorithm", "remembered"), [("direct", True), ("library", False)])
def test_calls_with_matmuls_of_the_library_are_remembered_and_those_with_nccl_are_not(
    algorithm: str, remembered: bool
) -> None:
    pins = {"algorithm": algorithm, "compute": "library"}
    source = lowering.emit(load("02_ag_gemm.py:ag_gemm").plan("laptop-switch", 2, pin=pins, M=64, K=32, N=64))
    assert ("self.fabric.run(self.enqueue, " in source) == remembered
