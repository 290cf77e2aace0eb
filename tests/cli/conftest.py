"""A runner for commands, and a spec file with two operators."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tilelink import cli

Invoke = Callable[..., Result]

SPEC = """
import tilelink
from tilelink import Shard, Tensor, dims

print("the spec file talks")
M, N, K = dims("M N K")


@tilelink.overlap
def ag_gemm(x: Tensor(M, K, placement=Shard(0)), w: Tensor(K, N, placement=Shard(1))):
    return tilelink.matmul(tilelink.all_gather(x, dim=0), w)


@tilelink.overlap
def gemm_rs(x: Tensor(M, K, placement=Shard(1)), w: Tensor(K, N, placement=Shard(0))):
    return tilelink.reduce_scatter(tilelink.matmul(x, w), dim=0)


threshold = 3


def plain(x, w):
    return x @ w
"""


@pytest.fixture
def invoke() -> Invoke:
    """`invoke("topo", "list")` runs the command line in this process."""

    def run(*args: str) -> Result:
        return CliRunner().invoke(cli.app, args)

    return run


@pytest.fixture
def spec_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`layers.py` in a folder of its own, which is the current one."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "layers.py"
    path.write_text(SPEC)
    return path
