"""Calls that a fabric on GPUs remembers, and replays as graphs, on a fake GPU: also where enqueuing raises."""

from __future__ import annotations

import contextlib
import gc
import threading
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
        self.handed: dict[int, int] = {}

    def from_pool(self, priority: int = 0) -> Any:
        """Torch has 32 streams of each priority, and hands them out in turns."""
        handed = self.handed[priority] = self.handed.get(priority, -1) + 1
        return SimpleNamespace(cuda_stream=1000 + 100 * priority + handed % 32)

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
        "Stream": found.from_pool,
        "ExternalStream": lambda handle, device: SimpleNamespace(cuda_stream=handle),
        "stream": found.stream,
        "is_current_stream_capturing": lambda: found.captured is found.current,
        "CUDAGraph": Graph,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: found.current.cuda_stream, raising=False)
    monkeypatch.setattr(symmetric_memory, "driver", None)
    monkeypatch.setitem(vars(torch.cuda), "_tilelink_captures", (threading.Lock(), {}))
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
    return one_rank()


def capture_streams() -> dict[tuple[int, int], Any]:
    """Those of the process, by device and stream of the caller."""
    _, found = vars(torch.cuda)["_tilelink_captures"]
    return dict(found)


def captured_for() -> set[tuple[int, int]]:
    return set(capture_streams())


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
    assert captured_for() == {(0, 1), (0, 7)}


def test_operators_of_a_process_share_the_stream_of_captures(gpu: Gpu) -> None:
    """Torch keeps a workspace for each stream on which library matmuls were captured."""
    for _ in range(40):
        fabric, op = one_rank(), Operator()
        for _ in range(3):
            call(fabric, op)
        assert op.captured == [False, True]
    assert captured_for() == {(0, 1)} and gpu.handed == {0: 0}


class Slow(Operator):
    """Enqueues what is captured in two halves."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.go_on = threading.Event(), threading.Event()

    def enqueue(self, stream: Any, x: torch.Tensor) -> None:
        super().enqueue(stream, x)
        if stream.captures():
            self.began.set()
            assert self.go_on.wait(10)


def test_captures_of_two_threads_follow_each_other(gpu: Gpu) -> None:
    """They are on one stream, which has one capture at a time."""
    slow, other = Slow(), Operator()
    mains = [(fabric, op, fabric.main()) for fabric, op in ((one_rank(), slow), (one_rank(), other))]
    threads = []
    for fabric, op, main in mains:
        fabric.run(op.enqueue, main, X)
        threads.append(threading.Thread(target=fabric.run, args=(op.enqueue, main, X)))
    threads[0].start()
    assert slow.began.wait(10)
    threads[1].start()
    threads[1].join(0.05)
    assert threads[1].is_alive() and other.captured == [False]
    slow.go_on.set()
    for thread in threads:
        thread.join(10)
    assert slow.captured == other.captured == [False, True] and gpu.replays == 2


class Driver:
    """Streams of the driver, which has a new one whenever it is asked."""

    CUresult = SimpleNamespace(CUDA_SUCCESS=0)
    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)
    CUstreamCaptureStatus = SimpleNamespace(CU_STREAM_CAPTURE_STATUS_NONE=0)

    def __init__(self) -> None:
        self.made: list[int] = []
        self.dropped: list[int] = []

    def cuStreamCreateWithPriority(self, flags: int, priority: int) -> tuple[int, int]:
        assert (flags, priority) == (1, -1)
        self.made.append(5000 + len(self.made))
        return 0, self.made[-1]

    def cuStreamDestroy(self, stream: int) -> tuple[int]:
        self.dropped.append(stream)
        return (0,)

    def cuStreamIsCapturing(self, stream: int) -> tuple[int, int]:
        return 0, 0


@pytest.fixture
def gpu_driver(monkeypatch: pytest.MonkeyPatch, gpu: Gpu) -> Driver:
    found = Driver()
    monkeypatch.setattr(symmetric_memory, "driver", found)
    return found


def one_rank() -> SymmetricMemoryFabric:
    return SymmetricMemoryFabric(SimpleNamespace(rank=lambda: 0, size=lambda: 1))  # type: ignore[arg-type]


@pytest.mark.parametrize("operators", [16, 17, 33])
@pytest.mark.parametrize("has_driver", [True, False])
def test_no_copy_stream_is_that_of_a_capture(operators: int, has_driver: bool, request: Any, gpu: Gpu) -> None:
    """Behind a kernel that waits for them copies would never begin. All operators are built before any is called."""
    if has_driver:
        request.getfixturevalue("gpu_driver")
    fabrics = [one_rank() for _ in range(operators)]
    copying = [{fabric.stream(name).handle for name in ("copy_x", "copy_y")} for fabric in fabrics]
    for fabric, handles in zip(fabrics, copying, strict=True):
        op = Operator()
        for _ in range(2):
            call(fabric, op)
        assert len(handles) == 2 and not handles & {stream.cuda_stream for stream in capture_streams().values()}


def test_no_copy_stream_is_one_that_a_caller_can_be_on(gpu_driver: Driver, gpu: Gpu) -> None:
    fabrics = [one_rank() for _ in range(20)]
    handles = [fabric.stream(name).handle for fabric in fabrics for name in ("copy_x", "copy_y")]
    pools = {gpu.from_pool(priority).cuda_stream for priority in (0, -1) for _ in range(64)}
    assert handles == gpu_driver.made and not pools & set(handles)
    assert len(set(handles)) == 40


def test_streams_go_with_their_fabric(gpu_driver: Driver) -> None:
    gc.disable()  # what is made here stays among the youngest, which are few
    try:
        fabric = one_rank()
        assert fabric.stream("copy_x") is fabric.stream("copy_x")
        del fabric
        gc.collect(0)
    finally:
        gc.enable()
    assert gpu_driver.dropped == gpu_driver.made and len(gpu_driver.made) == 1


def test_a_driver_that_has_no_stream_left_is_said(gpu_driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_driver, "cuStreamCreateWithPriority", lambda flags, priority: (2, 0))
    with pytest.raises(RuntimeError, match="cuStreamCreateWithPriority failed: 2"):
        one_rank().stream("copy_x")


@pytest.mark.parametrize(("algorithm", "remembered"), [("direct", True), ("library", False)])
def test_calls_with_matmuls_of_the_library_are_remembered_and_those_with_nccl_are_not(
    algorithm: str, remembered: bool
) -> None:
    pins = {"algorithm": algorithm, "compute": "library"}
    source = lowering.emit(load("02_ag_gemm.py:ag_gemm").plan("laptop-switch", 2, pin=pins, M=64, K=32, N=64))
    assert ("self.fabric.run(self.enqueue, " in source) == remembered
