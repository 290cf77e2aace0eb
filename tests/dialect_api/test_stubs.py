"""Stubs for type checkers: made from the API data, accepted by mypy, and what an editor says of a file is what we say."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from mypy import api

from tests.dialect_api.checked import no_types
from tests.dialect_api.seeds import AG, NAMES, QUEUE, RING, sample
from tilelink.dialect_api import Rule, Vendor, check_source
from tilelink.stubs.typecheck import ask_mypy, folder
from tilelink.stubs.write import files

VENDORS = pytest.mark.parametrize("vendor", Vendor, ids=lambda vendor: vendor.value)
IMPORTS = "import triton_dist\nimport triton_dist.language as dl\n"


def said(text: str, vendor: Vendor = Vendor.NVIDIA) -> list[tuple[int, str]]:
    """Line and words of each message of mypy."""
    return [(message.span.line, message.text) for message in ask_mypy(text, vendor)]


@VENDORS
def test_the_stubs_are_those_of_the_data(vendor: Vendor) -> None:
    written = {path for path in folder(vendor).rglob("*") if path.is_file()}
    assert written == {folder(vendor) / path for path in files(vendor)}
    for path, text in files(vendor).items():
        assert (folder(vendor) / path).read_text(encoding="utf-8") == text, "python -m tilelink.stubs.write"


@pytest.mark.slow
@VENDORS
def test_mypy_accepts_the_stubs(vendor: Vendor, tmp_path: Path) -> None:
    limit = sys.getrecursionlimit()
    options = ["--config-file", str(folder(vendor) / "mypy.ini"), "--cache-dir", str(tmp_path), "--strict"]
    shown, errors, status = api.run([*options, "--allow-any-generics", "--allow-subclassing-any", str(folder(vendor))])
    sys.setrecursionlimit(limit)
    assert (status, errors) == (0, ""), shown


def test_samples_have_no_error_in_an_editor() -> None:
    for name in NAMES:
        assert said(sample(name), check_source(sample(name), ask=no_types).vendor) == []


def test_bodies_without_annotations_are_checked_and_values_flow_through_them() -> None:
    text = IMPORTS + (
        "import triton.language as tl\n"
        "@triton_dist.jit\n"
        "def kernel(words, rank, SCOPE: tl.constexpr, COUNT: tl.constexpr = 1):\n"
        "    wait = dl.wait\n"
        "    token = wait(words, COUNT, SCOPE, 'acquire', waitValue=tl.load(words))\n"
        "    wait(words, 1, 'everywhere', 'acquire')\n"
        "    words = dl.consume_token(words, token) + tl.arange(0, COUNT)\n"
        "    dl.symm_at(words)\n"
    )
    assert [line for line, _ in said(text)] == [8, 10]


def test_a_kernel_of_the_library_is_called_and_launched() -> None:
    text = (
        "from triton_dist.kernels.nvidia.common_ops import barrier_on_this_grid\n"
        "def launch(words, options):\n"
        "    barrier_on_this_grid[(8,)](words, True, num_warps=4, **options)\n"
        "    barrier_on_this_grid[(8,)](words, num_warps=4)\n"
        "    barrier_on_this_grid(words, True, 3)\n"
    )
    found = [(one.line, one.rule) for one in check_source(text).findings]
    assert found == [(4, Rule.MISSING_ARGUMENT), (5, Rule.TOO_MANY_ARGUMENTS)]


@pytest.mark.parametrize("comment", ["# mypy: ignore-errors", "# type: ignore", "#mypy:ignore-errors"])
def test_comments_for_type_checkers_silence_nothing(comment: str) -> None:
    text = f"{comment}\n{IMPORTS}\ndef kernel(words):\n    dl.symm_at(words)  {comment}\n"
    found = check_source(text).findings
    assert Rule.MISSING_ARGUMENT in {one.rule for one in found}


def test_an_argument_that_is_left_out_between_others() -> None:
    """mypy guesses by its type which one is missing, and points at the next."""
    text = sample(RING).replace(
        "            libshmem_device.NVSHMEM_SIGNAL_SET,\n            peer,\n", "            9,\n"
    )
    found = check_source(text).findings
    assert [one.rule for one in found] == [Rule.MISSING_ARGUMENT] and '"sig_op"' in found[0].message


def test_a_scope_in_a_variable_is_followed() -> None:
    text = (
        IMPORTS + "@triton_dist.jit\ndef kernel(word):\n    scope = {}\n    return dl.wait(word, 1, scope, 'acquire')\n"
    )
    assert check_source(text.format("'sys'")).findings == ()
    assert [one.rule for one in check_source(text.format("'system'")).findings] == [Rule.WRONG_CONSTANT]


def test_places_are_those_of_python_in_any_alphabet() -> None:
    text = IMPORTS + "@triton_dist.jit\ndef kernel(é):\n    ü = 'é𝒳'; dl.symm_at(é); dl.wait(é, 1, 'ü', 'acquire')\n"
    found = [(one.rule, one.column) for one in check_source(text).findings if one.rule is not Rule.TOKEN_UNUSED]
    line = text.splitlines()[-1].encode()
    places = [line.index(part.encode()) + 1 for part in ("dl.symm_at", "'ü'")]
    assert found == list(zip((Rule.MISSING_ARGUMENT, Rule.WRONG_CONSTANT), places, strict=True))


def test_relative_imports_do_not_stop_it() -> None:
    text = IMPORTS + "from . import x\nfrom ..y import z\nfrom .a.b import (\n    c\n)\n"
    report = check_source(text)
    assert (report.verdict, report.findings) == ("valid", ())


def test_a_call_with_arguments_that_nobody_sees() -> None:
    text = IMPORTS + (
        "@triton_dist.jit\ndef kernel(x, more, named):\n"
        "    dl.symm_at(*more)\n    dl.symm_at(x, *more)\n    dl.symm_at(x, **named)\n    dl.symm_at(*more, rank=x)\n"
    )
    assert check_source(text).findings == ()


def test_errors_of_other_code_are_no_findings() -> None:
    text = IMPORTS + "def wait(a: int) -> str:\n    return a + 'x'\n\nwait()\nlen(1, 2)\nimport no_module\nundefined\n"
    assert check_source(text).findings == ()


def test_without_mypy_the_rest_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mypy", None)
    report = check_source(sample(QUEUE), "queue.py")
    assert (report.verdict, report.exit_code, report.findings) == ("not checked", 2, ())
    assert report.lines()[0].startswith("not checked: names, arguments and constants: mypy is not installed")
    planted = check_source(sample(AG).replace("        __syncthreads()\n", ""))
    assert (planted.verdict, planted.exit_code) == ("refuted", 1) and planted.unchecked


def test_a_file_that_stops_mypy_is_not_valid() -> None:
    report = check_source(IMPORTS + "break\n")
    assert (report.verdict, report.exit_code) == ("not checked", 2)
    assert 'line 3: "break" outside loop' in report.unchecked


@pytest.mark.slow
def test_the_cache_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, cache = tmp_path / "project", tmp_path / "cache"
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    assert check_source(sample(QUEUE)).verdict == "valid"
    assert os.listdir(project) == [] and (cache / "tilelink" / "mypy").is_dir()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert check_source(sample(QUEUE)).verdict == "valid"  # without a cache, only later
