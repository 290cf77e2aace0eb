"""The script that checks the dialect on GPUs: its checks on emulated ranks, its kernels through the compiler, its comparisons."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.compat.triton_dist.shimmed import on_all, world
from tests.compat.triton_dist.test_compiled import ptx
from tilelink.compat.check.__main__ import Outcome, differences, report, series
from tilelink.compat.triton_dist import install, on_rank
from tilelink.emulator import EmulatedStream, World


def cases() -> Any:
    assert install()
    return importlib.import_module("tilelink.compat.check.cases")


def emulated_calls(name: str, num_ranks: int, calls: int, seed: int) -> None:
    emulated: World = world(num_ranks, seed, races=True, num_sms=24)
    checks = on_all(emulated, cases().CHECKS[name])
    for call in range(1, calls + 1):
        for fabric, check in zip(emulated.fabrics, checks, strict=True):
            with on_rank(fabric):
                check.step()
        emulated.run()
        assert [differences(check, call) for check in checks] == [""] * num_ranks


NAMES = (
    "notify set",
    "notify add",
    "notify inter_node",
    "wait for all ranks",
    "puts and gets",
    "puts and gets of odd sizes",
    "plain puts and words",
    "collectives",
    "words of one thread",
    "arrive and wait_eq",
    "grid and rank barriers",
    "stream words of 32 bits",
    "stream words of 64 bits",
    "wait in a pipelined loop",
    "wait before a descriptor",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_check_holds_on_emulated_ranks(name: str) -> None:
    emulated_calls(name, 3, 2, 0)


def test_every_check_is_here_or_needs_threads() -> None:
    checks = cases().CHECKS
    assert {name for name in checks if getattr(checks[name], "emulated", True)} == set(NAMES)


@pytest.mark.slow
def test_its_kernels_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    launches: dict[object, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {}

    def record(_: object, kernel: Any, grid: object, *arguments: Any, **options: Any) -> None:
        launches.setdefault((kernel.fn, str(options)), (kernel, arguments, options))

    monkeypatch.setattr(EmulatedStream, "launch", record)
    for build in cases().CHECKS.values():

        def step(group: Any, build: Any = build) -> None:
            build(group).step()

        on_all(world(2), step)
    assert len(launches) >= 17
    for kernel, arguments, options in launches.values():
        names = [parameter.name for parameter in kernel.params if parameter.is_constexpr]
        types = {name: type_of(value) for name, value in zip(kernel.arg_names, arguments, strict=False)}
        constants = {name: options[name] if name in options else parameter_default(kernel, name) for name in names}
        assert ptx(kernel, types, **constants)


def parameter_default(kernel: Any, name: str) -> Any:
    return kernel.signature.parameters[name].default


def type_of(value: Any) -> str:
    """A type of Triton for an argument of a launch."""
    element = {torch.bfloat16: "bf16", torch.float32: "fp32", torch.int32: "i32", torch.int64: "i64"}
    if isinstance(value, TensorDescriptor):
        return f"tensordesc<{element[value.base.dtype]}{list(value.block_shape)}>"
    return f"*{element[value.dtype]}" if isinstance(value, torch.Tensor) else "i32"


class Fake:
    """Call c makes the number c, but call 7 makes 8."""

    def __init__(self) -> None:
        self.value = torch.zeros(2, dtype=torch.int32)
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        self.value[1] = self.steps + (self.steps == 7)

    def wanted(self, call: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return [(self.value, torch.tensor([0, call], dtype=torch.int32))]


def test_a_wrong_call_is_found_with_its_number() -> None:
    fake, met = Fake(), []
    wrong = series(fake.step, lambda: met.append(fake.steps), fake, 0, 10)
    assert wrong == "call 7, result 0: 1 of 2 elements differ, first at [1]: 8 instead of 7"
    assert len(met) == 14  # before and after each comparison
    assert series(Fake().step, lambda: None, Fake(), 0, 3) != ""  # steps of another one change nothing


def test_the_report_shows_the_wrong_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "none")
    outcomes = [
        Outcome("a", "eager", 0, 5, 2.0, ""),
        Outcome("a", "eager", 1, 5, 1.0, "call 3"),
        Outcome("b", "graph", 0, 5, 1.0, ""),
    ]
    report(outcomes, tmp_path / "out.json")
    first, second = capsys.readouterr().out.splitlines()
    assert "WRONG on rank 1: call 3" in first and second.endswith("equal")
    assert [held["check"] for held in json.loads((tmp_path / "out.json").read_text())["outcomes"]] == ["a", "a", "b"]
