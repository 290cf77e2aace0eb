"""The commands: what goes to stdout, what to stderr, and the exit codes."""

from __future__ import annotations

import json
import os
import sys
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import topologies
from tilelink import cli

if TYPE_CHECKING:
    from tests.cli.conftest import Invoke

PLAN = ("plan", "layers.py:ag_gemm", "M=8192", "K=4096")


def test_topo_list_names_every_descriptor(invoke: Invoke) -> None:
    result = invoke("topo", "list")
    assert result.exit_code == 0
    listed = [line.split()[0] for line in result.stdout.splitlines()]
    assert listed == list(topologies.names())


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
        ((*PLAN, "N=many"), "SizeNotInteger"),
        ((*PLAN, "M=8192"), "DuplicateSize"),
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
    result = invoke("plan", "layers.py:ag_gemm", "M=13")
    assert result.exit_code == 3
    assert "NoLegalSchedule: " in result.stderr


def test_a_bug_of_ours_is_no_user_error(invoke: Invoke, spec_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str) -> None:
        raise AssertionError("ours")

    monkeypatch.setattr(cli, "load_overlap", broken)
    assert isinstance(invoke(*PLAN).exception, AssertionError)


def test_plan_passes_everything_on(invoke: Invoke, spec_path: Path) -> None:
    options = ("--topology", "h100-nvswitch", "--ranks", "4", "--dtype", "fp16", "--pin", "mover=CommSms(16)")
    result = invoke(*PLAN, *options)
    assert result.exit_code == 0
    assert result.stdout == ("schedule h100-nvswitch x4 fp16 pin={'mover': 'CommSms(16)'} {'M': 8192, 'K': 4096}\n")


def test_plan_defaults_to_all_of_an_h200_node(invoke: Invoke, spec_path: Path) -> None:
    assert invoke(*PLAN).stdout.startswith("schedule h200-nvswitch x8 bf16 pin={} ")


def test_json_is_all_that_reaches_stdout(invoke: Invoke, spec_path: Path) -> None:
    result = invoke(*PLAN, "--json")
    assert "h200-nvswitch x8" in json.loads(result.stdout)["asked"]
    assert result.stderr == "the spec file talks\n"


@pytest.mark.usefixtures("lowered")
class TestEmit:
    EMIT = ("emit", *PLAN[1:])

    def test_to_stdout(self, invoke: Invoke, spec_path: Path) -> None:
        result = invoke(*self.EMIT, "--target", "triton")
        assert result.exit_code == 0
        assert result.stdout.startswith("# triton: schedule h200-nvswitch x8")

    def test_to_a_file(self, invoke: Invoke, spec_path: Path) -> None:
        result = invoke(*self.EMIT, "-o", "ag_gemm.py")
        assert (result.exit_code, result.stdout) == (0, "")
        assert Path("ag_gemm.py").read_text().startswith("# triton: schedule")
        assert sorted(os.listdir()) == ["ag_gemm.py", "layers.py"]

    def test_replaces_what_a_link_points_to_and_keeps_its_mode(self, invoke: Invoke, spec_path: Path) -> None:
        Path("real.py").write_text("old")
        Path("real.py").chmod(0o750)
        Path("link.py").symlink_to("real.py")
        assert invoke(*self.EMIT, "-o", "link.py").exit_code == 0
        assert Path("link.py").is_symlink()
        assert Path("real.py").read_text().startswith("# triton: ")
        assert Path("real.py").stat().st_mode & 0o777 == 0o750

    def test_a_pipe_is_written_to_not_replaced(self, invoke: Invoke, spec_path: Path) -> None:
        os.mkfifo("pipe")
        reader = os.open("pipe", os.O_RDWR | os.O_NONBLOCK)
        try:
            assert invoke(*self.EMIT, "-o", "pipe").exit_code == 0
            assert os.read(reader, 4096).startswith(b"# triton: ")
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


@pytest.mark.usefixtures("lowered")
class TestRun:
    RUN = ("run", *PLAN[1:])

    @pytest.mark.parametrize(("seed", "exit_code", "last"), [("0", 0, "equal"), ("1", 1, "not equal")])
    def test_exit_code(self, invoke: Invoke, spec_path: Path, seed: str, exit_code: int, last: str) -> None:
        result = invoke(*self.RUN, "--ranks", "4", "--seed", seed)
        assert result.exit_code == exit_code
        assert result.stdout.splitlines()[-1] == last

    def test_the_topology_follows_the_device(self, invoke: Invoke, spec_path: Path) -> None:
        on_cpu = invoke(*self.RUN, "--calls", "5")
        assert on_cpu.stdout.startswith("cpu, 5 calls, # triton: schedule laptop-switch")
        on_cuda = invoke(*self.RUN, "--device", "cuda")
        assert "schedule h200-nvswitch" in on_cuda.stdout
        assert "cuda" in on_cuda.stdout

    def test_a_named_topology_wins(self, invoke: Invoke, spec_path: Path) -> None:
        result = invoke(*self.RUN, "--topology", "laptop-mesh", "--ranks", "2")
        assert "schedule laptop-mesh x2" in result.stdout


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
    with cli._working("planning"):
        pass
    assert "planning ..." in terminal.getvalue()
    assert stdout.getvalue() == ""


def test_no_spinner_in_a_file(invoke: Invoke, spec_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # rich alone would take this for a terminal
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert invoke(*PLAN).stderr == "the spec file talks\n"
