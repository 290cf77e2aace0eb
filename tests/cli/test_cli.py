"""The commands: what goes to stdout, what to stderr, and the exit codes."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

import lowering
import topologies
from tilelink import cli, command_arguments
from tilelink import terminal as terminal_module
from tilelink.ir.schedule import Schedule
from tilelink.plan import Plan
from tilelink.run_command import Device, machine_of

if TYPE_CHECKING:
    from tests.cli.conftest import Invoke

PLAN = ("plan", "layers.py:ag_gemm", "M=256", "K=64", "N=256")
EMITTED = '"""ag_gemm: one overlapped kernel for 8 ranks.'
HEADER = "schedule ag_gemm on h200-nvswitch x8, M=256 K=64 N=256 bf16"


def test_topo_list_names_every_descriptor(invoke: Invoke) -> None:
    result = invoke("topo", "list")
    assert result.exit_code == 0
    listed = [line.split()[0] for line in result.stdout.splitlines()]
    assert listed == list(topologies.names())


def test_versions(invoke: Invoke) -> None:
    result = invoke("--version")
    assert result.exit_code == 0
    found = dict(line.split() for line in result.stdout.splitlines())
    assert found == {
        "tilelink": version("tilelink-overlap"),
        "torch": version("torch"),
        "triton": version("triton"),
        "Python": platform.python_version(),
    }


def test_the_package_is_a_command(tmp_path: Path) -> None:
    """Where the console script is not on the path; as quick as `--help`, since nothing is planned."""
    for option, says in (("--version", "Python"), ("--help", "verify")):
        command = [sys.executable, "-m", "tilelink", option]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
        assert says in done.stdout


def test_topo_show(invoke: Invoke) -> None:
    result = invoke("topo", "show", "h200-nvswitch", "--ranks", "4")
    assert result.exit_code == 0
    assert result.stdout == topologies.show(topologies.load("h200-nvswitch", 4)) + "\n"


def test_topo_show_of_an_unknown_name(invoke: Invoke) -> None:
    result = invoke("topo", "show", "h200-nvswich")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("UnknownTopology: ")
    assert "h200-nvswitch" in result.stderr
    assert "Traceback" not in result.stderr


def test_topo_detect(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    found = topologies.load("laptop-mesh")
    monkeypatch.setattr(topologies, "detect", lambda: found)
    result = invoke("topo", "detect")
    assert (result.exit_code, result.stdout) == (0, topologies.show(found) + "\n")


@pytest.mark.parametrize(
    "args",
    [
        ("no-such-command",),
        ("topo", "no-such-command"),
        ("topo", "show"),
        ("plan",),
        (*PLAN, "--no-such-option"),
        (*PLAN, "--ranks", "four"),
        ("run", "layers.py:ag_gemm", "--device", "tpu"),
        ("run", "layers.py:ag_gemm", "--calls", "0"),
    ],
)
def test_usage_errors(invoke: Invoke, args: tuple[str, ...]) -> None:
    result = invoke(*args)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Usage" in result.stderr


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("plan", "layers.py", "M=8"), "NoFunctionNamed"),
        (("plan", "absent.py:ag_gemm", "M=8"), "SpecFileMissing"),
        (("emit", "layers.py:absent", "M=8"), "NoSuchFunction"),
        (("run", "layers.py:plain", "M=8"), "NotAnOverlap"),
        (("plan", "layers.py:ag_gemm", "N=many"), "SizeNotInteger"),
        (("plan", "layers.py:ag_gemm", "M=256", "K=64"), "MissingSize"),
        (("plan", "layers.py:ag_gemm", "M=257", "K=64", "N=256"), "NotDivisible"),
        ((*PLAN, "--dtype", "fp8"), "UnknownDtype"),
        ((*PLAN, "--pin", "colour=red"), "UnknownPin"),
        ((*PLAN, "--pin", "chunks=many"), "IllegalPin"),
        (("emit", *PLAN[1:], "--target", "cuda"), "UnknownTarget"),
        (("run", *PLAN[1:], "--device", "cuda"), "FabricUnavailable"),
        ((*PLAN, "M=256"), "DuplicateSize"),
        ((*PLAN, "--pin", "mover"), "MalformedPin"),
        ((*PLAN, "--topology", "h200"), "UnknownTopology"),
        ((*PLAN, "--ranks", "3000"), "IllegalRanks"),
    ],
)
def test_bad_input(invoke: Invoke, spec_path: Path, args: tuple[str, ...], error: str) -> None:
    result = invoke(*args)
    assert result.exit_code == 2
    assert result.stdout == ""
    message = result.stderr.removeprefix("the spec file talks\n")
    assert message.startswith(f"{error}: ")
    assert "Traceback" not in message


def test_a_message_is_printed_as_it_is(invoke: Invoke, spec_path: Path) -> None:
    result = invoke("plan", "layers.py:[bold]x", "M=8")
    assert "'[bold]x'" in result.stderr


def test_no_legal_schedule_exits_3(invoke: Invoke, spec_path: Path) -> None:
    result = invoke(*PLAN, "--pin", "mover=Fused()", "--pin", "transfer=push")
    assert result.exit_code == 3
    assert "NoLegalSchedule: " in result.stderr


def test_a_bug_of_ours_is_no_user_error(invoke: Invoke, spec_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str) -> None:
        raise AssertionError("ours")

    monkeypatch.setattr(command_arguments, "load_overlap", broken)
    assert isinstance(invoke(*PLAN).exception, AssertionError)


def test_plan_passes_everything_on(invoke: Invoke, spec_path: Path) -> None:
    options = ("--topology", "h100-nvswitch", "--ranks", "4", "--dtype", "fp16", "--pin", "mover=CommSms(16)")
    result = invoke(*PLAN, *options)
    assert result.exit_code == 0
    assert result.stdout.startswith("schedule ag_gemm on h100-nvswitch x4, M=256 K=64 N=256 fp16\n")
    assert "x_full_send on 16 programs of " in result.stdout


def test_plan_defaults_to_all_of_an_h200_node(invoke: Invoke, spec_path: Path) -> None:
    assert invoke(*PLAN).stdout.startswith(HEADER)


def test_json_is_all_that_reaches_stdout(invoke: Invoke, spec_path: Path) -> None:
    result = invoke(*PLAN, "--json")
    assert str(Plan.from_json(result.stdout)).startswith(HEADER)
    assert result.stderr == "the spec file talks\n"


class TestEmit:
    EMIT = ("emit", *PLAN[1:], "--pin", "mover=Library()", "--pin", "compute=library")  # what is emitted is no matter

    def test_to_stdout(self, invoke: Invoke, spec_path: Path) -> None:
        result = invoke(*self.EMIT, "--target", "triton")
        assert result.exit_code == 0
        assert result.stdout.startswith(EMITTED)
        assert f"# Emitted by tilelink {version('tilelink-overlap')} for Triton" in result.stdout

    def test_a_stored_schedule(self, invoke: Invoke, spec_path: Path) -> None:
        planned = invoke("plan", *self.EMIT[1:], "--json")
        Path("stored.json").write_text(planned.stdout)
        result = invoke("emit", "--schedule", "stored.json")
        assert result.exit_code == 0
        assert result.stdout == invoke(*self.EMIT).stdout

    @pytest.mark.parametrize(
        ("arguments", "text", "says"),
        [
            ((), "", "one of both"),
            (("layers.py:ag_gemm", "--schedule", "stored.json"), "{}", "one of both"),
            (("--schedule", "stored.json", "--ranks", "4"), "{}", "has its sizes"),
            (("--schedule", "stored.json", "--dtype", "fp16"), "{}", "has its sizes"),
            (("--schedule", "stored.json"), "{}", "no schedule of this version"),
            (("--schedule", "stored.json"), "[1", "no schedule of this version"),
            (("--schedule", "missing.json"), "", "FileNotFoundError"),
        ],
    )
    def test_what_is_no_stored_schedule(
        self, arguments: tuple[str, ...], text: str, says: str, invoke: Invoke, spec_path: Path
    ) -> None:
        Path("stored.json").write_text(text)
        result = invoke("emit", *arguments)
        assert result.exit_code == 2
        assert says in " ".join(result.stderr.split())
        assert not result.stdout

    def test_a_stored_schedule_that_is_changed_is_refuted(self, invoke: Invoke, spec_path: Path) -> None:
        planned = invoke("plan", *PLAN[1:], "--pin", "mover=CopyEngine()", "--pin", "chunks=2", "--json")
        schedule = Schedule.from_json(planned.stdout)
        exchanges = tuple(replace(one, reach=1) for one in schedule.exchanges)
        Path("stored.json").write_text(replace(schedule, exchanges=exchanges).to_json())
        result = invoke("emit", "--schedule", "stored.json")
        assert result.exit_code == 2
        assert "StoredScheduleRefuted: stored.json" in result.stderr
        assert not result.stdout

    def test_to_a_file(self, invoke: Invoke, spec_path: Path) -> None:
        result = invoke(*self.EMIT, "-o", "ag_gemm.py")
        assert (result.exit_code, result.stdout) == (0, "")
        assert Path("ag_gemm.py").read_text().startswith(EMITTED)
        assert sorted(os.listdir()) == ["ag_gemm.py", "layers.py"]

    def test_replaces_what_a_link_points_to_and_keeps_its_mode(self, invoke: Invoke, spec_path: Path) -> None:
        Path("real.py").write_text("old")
        Path("real.py").chmod(0o750)
        Path("link.py").symlink_to("real.py")
        assert invoke(*self.EMIT, "-o", "link.py").exit_code == 0
        assert Path("link.py").is_symlink()
        assert Path("real.py").read_text().startswith(EMITTED)
        assert Path("real.py").stat().st_mode & 0o777 == 0o750

    def test_a_pipe_is_written_to_not_replaced(self, invoke: Invoke, spec_path: Path) -> None:
        os.mkfifo("pipe")
        reader = os.open("pipe", os.O_RDWR | os.O_NONBLOCK)
        try:
            assert invoke(*self.EMIT, "-o", "pipe").exit_code == 0
            assert os.read(reader, 4096).startswith(EMITTED.encode())
        finally:
            os.close(reader)
        assert Path("pipe").is_fifo()

    @pytest.mark.parametrize("output", ["absent/ag_gemm.py", "."])
    def test_not_writable(self, invoke: Invoke, spec_path: Path, output: str) -> None:
        result = invoke(*self.EMIT, "-o", output)
        assert result.exit_code == 2
        assert f"OutputNotWritable: cannot write {output}" in result.stderr

    def test_an_interrupted_write_leaves_the_old_file(
        self, invoke: Invoke, spec_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(source: object, target: object) -> None:
            raise OSError(28, "No space left on device")

        Path("ag_gemm.py").write_text("old")
        monkeypatch.setattr(os, "replace", fail)
        assert invoke(*self.EMIT, "-o", "ag_gemm.py").exit_code == 2
        assert Path("ag_gemm.py").read_text() == "old"
        assert sorted(os.listdir()) == ["ag_gemm.py", "layers.py"]


class TestRun:
    RUN = ("run", "layers.py:ag_gemm", "M=36", "K=16", "N=40")

    def test_equal(self, invoke: Invoke, spec_path: Path) -> None:
        result = invoke(*self.RUN, "--ranks", "4", "--calls", "3", "--seed", "5")
        assert result.exit_code == 0
        first, note, *_, last = result.stdout.splitlines()
        assert re.fullmatch(r"schedule ag_gemm [0-9a-f]{16} on laptop-switch x4, M=36 K=16 N=40 bf16", first)
        assert "h200-nvswitch" in note
        assert last.startswith("equal: 4 emulated ranks, 3 calls")

    def test_not_equal_exits_1(self, invoke: Invoke, spec_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        emit = lowering.emit

        def wrong(schedule: Schedule, target: str) -> str:
            return emit(schedule, target).replace(".to(tl.bfloat16)", ".to(tl.bfloat16) * 2")

        monkeypatch.setattr(lowering, "emit", wrong)
        result = invoke(*self.RUN, "--ranks", "2", "--pin", "compute=triton", "--pin", "algorithm=direct")
        assert result.exit_code == 1
        assert "\nNOT equal" in result.stdout

    def test_a_hang_exits_1_with_a_table(
        self, invoke: Invoke, spec_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        emit = lowering.emit

        def silent(schedule: Schedule, target: str) -> str:
            return emit(schedule, target).replace('tl.atomic_xchg(signal, call, sem="release", scope="sys")', "pass")

        monkeypatch.setattr(lowering, "emit", silent)
        result = invoke(*self.RUN, "--ranks", "2", "--pin", "mover=CommSms(2)", "--pin", "compute=triton")
        assert result.exit_code == 1
        assert "Deadlock: the emulation hangs" in result.stderr
        assert "rank 1" in result.stderr
        assert "Traceback" not in result.stderr

    def test_a_named_topology_wins(self, invoke: Invoke, spec_path: Path) -> None:
        result = invoke(*self.RUN, "--topology", "laptop-mesh", "--ranks", "2")
        assert result.exit_code == 0
        first, second = result.stdout.splitlines()
        assert " on laptop-mesh x2, " in first and second.startswith("equal")

    def test_another_schedule_than_for_real_gpus_is_said(self, invoke: Invoke, spec_path: Path) -> None:
        result = invoke("run", "layers.py:ag_gemm", "M=512", "K=256", "N=512", "--ranks", "2", "--calls", "1")
        assert result.exit_code == 0, result.output
        assert "  another one than for h200-nvswitch, " in result.stdout
        assert "--topology h200-nvswitch runs that one" in result.stdout

    def test_the_gpus_that_are_here_are_planned_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "NVIDIA H100 80GB HBM3")
        assert machine_of(Device.CUDA, None, 4) == topologies.load("h100-nvswitch", 4)
        assert machine_of(Device.CUDA, "h20-nvswitch", None) == topologies.load("h20-nvswitch")
        assert machine_of(Device.CPU, None, 4) == topologies.load("laptop-switch", 4)


@pytest.mark.slow
def test_demo(invoke: Invoke, spec_path: Path) -> None:
    result = invoke("demo")
    assert result.exit_code == 0
    assert "schedule ag_gemm on laptop-switch x2" in result.stdout
    for word in ("2 chunks", "wait x_full_arrived", "notify x_full_arrived", "copy engine", "on 8 programs of "):
        assert word in result.stdout
    assert "emitted: ag_gemm_tilelink.py" in result.stdout
    assert Path("ag_gemm_tilelink.py").read_text().startswith('"""ag_gemm: one overlapped kernel for 2 ranks.')
    assert result.stdout.splitlines()[-1].startswith("equal: 2 emulated ranks")


@pytest.mark.parametrize(("args", "exit_code"), [(("topo", "list"), 0), (("topo", "show", "nope"), 2), (("x",), 2)])
def test_console_entry(monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], exit_code: int) -> None:
    monkeypatch.setattr(sys, "argv", ["tilelink", *args])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert (caught.value.code or 0) == exit_code


def test_a_spinner_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, stdout = StringIO(), StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", stdout)
    with terminal_module.working("planning"):
        pass
    assert "planning ..." in terminal.getvalue()
    assert stdout.getvalue() == ""


def test_no_spinner_in_a_file(invoke: Invoke, spec_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # rich alone would take this for a terminal
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert invoke(*PLAN).stderr == "the spec file talks\n"
