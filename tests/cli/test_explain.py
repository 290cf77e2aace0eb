"""`tilelink explain`: text, JSON, and mistakes of its user."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Invoke

EXPLAIN = ("explain", "layers.py:ag_gemm", "M=256", "K=64", "N=256", "--topology", "laptop-switch", "--ranks", "2")


def test_text(invoke: Invoke, spec_path: Path) -> None:
    result = invoke(*EXPLAIN, "--seconds", "0")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("ag_gemm on laptop-switch x2: ") and " us predicted, with x_full.protocol=" in lines[0]
    assert "critical path:" in lines
    assert "the spec file talks" not in result.stdout


def test_json(invoke: Invoke, spec_path: Path) -> None:
    result = invoke(*EXPLAIN, "--seconds", "1", "--families", "3", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    keys = "function topology ranks predicted_us family choices critical hidden rejected more flips unflipped"
    assert list(found) == keys.split()
    assert sum(term["us"] for term in found["critical"]) == pytest.approx(found["predicted_us"], abs=1e-6)
    assert all(set(term) == {"what", "us", "part"} for term in found["critical"])
    assert all(set(term) == {"what", "us", "part", "hidden_by"} for term in found["hidden"])
    assert len(found["rejected"]) <= 3
    assert all(set(one) == {"family", "differs", "us", "lost_by", "lost_us", "term"} for one in found["rejected"])
    assert all(set(one) == {"axis", "value", "before", "family", "differs", "us"} for one in found["flips"])
    assert all(set(one) == {"axis", "larger", "last", "why"} for one in found["unflipped"])
    assert len(found["flips"]) + len(found["unflipped"]) == 2 * (3 + 4)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--pin", "moover=Fused()"), "UnknownPin"),
        (("--pin", "x_full.chunks=9999"), "IllegalPin"),
        (("--topology", "laptop-swich"), "UnknownTopology"),
        (("Q=3",), "UnknownSize"),
    ],
)
def test_mistakes(invoke: Invoke, spec_path: Path, words: tuple[str, ...], error: str) -> None:
    result = invoke(*EXPLAIN, *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{error}: " in result.stderr, result.stderr
