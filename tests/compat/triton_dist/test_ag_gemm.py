"""The hand-written all-gather and GEMM: right on emulated ranks, and refuted when one line is missing."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.compat.triton_dist.shimmed import load, on_all, world
from tilelink.compat.triton_dist import install
from tilelink.emulator import Deadlock, Race

FILE = Path(__file__).with_name("ag_gemm.py")


def module(folder: Path | None = None, old: str = "", new: str = "") -> ModuleType:
    """The file, with one place of its source changed."""
    assert install()
    if folder is None:
        return load(FILE, "hand_written_ag_gemm")
    source = FILE.read_text(encoding="utf-8")
    assert source.count(old) == 1
    changed = folder / "changed_ag_gemm.py"
    changed.write_text(source.replace(old, new), encoding="utf-8")
    return load(changed, f"changed_ag_gemm_{folder.name}")


def is_right(file: Any, num_ranks: int, seed: int, calls: int = 2) -> bool:
    """Calls of the whole operator under the race detector."""
    emulated = world(num_ranks, seed, races=True)
    operators = on_all(emulated, lambda group: file.AllGatherGemm(group, 32, 16, 16))
    generator = torch.Generator().manual_seed(seed)
    w = torch.randn(16, 16, generator=generator)
    rounds = []
    for _ in range(calls):
        xs = [torch.randn(32, 16, generator=generator) for _ in range(num_ranks)]

        def call(group: Any, xs: list[torch.Tensor] = xs) -> Any:
            return operators[group.rank()](xs[group.rank()], w)

        rounds.append((xs, on_all(emulated, call)))
    emulated.run()
    return all(torch.allclose(out, torch.cat(xs) @ w, atol=1e-5) for xs, outs in rounds for out in outs)


@pytest.mark.parametrize("num_ranks", [2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_it_is_right_and_has_no_race(num_ranks: int) -> None:
    assert all(is_right(module(), num_ranks, seed) for seed in range(2))


def test_it_replays_as_a_graph() -> None:
    emulated = world(2)
    operators = on_all(emulated, lambda group: module().AllGatherGemm(group, 32, 16, 16))
    x, w = torch.zeros(32, 16), torch.eye(16)
    with emulated.capture() as recording:
        outs = on_all(emulated, lambda group: operators[group.rank()](x, w))
    for value in range(3):
        x.fill_(value)
        emulated.replay(recording)
        emulated.run()
        assert all(torch.equal(out, x.repeat(2, 1)) for out in outs)


RACES = {
    "token not consumed": ("        a = dl.consume_token(gathered, token)\n", "        a = gathered\n"),
    "wait of a scope that ends at the GPU": (
        'dl.wait(signals + source, 1, "sys"',
        'dl.wait(signals + source, 1, "gpu"',
    ),
    "relaxed wait": ('"sys", "acquire", waitValue=1', '"sys", "relaxed", waitValue=1'),
    "pushed while the peer reads": ("        barrier_all_on_stream(self.meeting, main)  # every", "        # every"),
    "signal before the copy": (
        """            _memcpy_async_cuda(self.gathered[peer][own], x, x.nbytes, self.push)
            _set_signal_cuda(self.signals[peer][self.rank : self.rank + 1], 1, self.push)
""",
        """            _set_signal_cuda(self.signals[peer][self.rank : self.rank + 1], 1, self.push)
            _memcpy_async_cuda(self.gathered[peer][own], x, x.nbytes, self.push)
""",
    ),
}


@pytest.mark.parametrize("name", RACES)
def test_a_broken_one_has_a_race(name: str, tmp_path: Path) -> None:
    broken = module(tmp_path, *RACES[name])
    with pytest.raises(Race):
        for seed in range(4):
            is_right(broken, 3, seed)


def test_a_value_that_nobody_sets_is_waited_for_in_vain(tmp_path: Path) -> None:
    broken = module(tmp_path, "waitValue=1", "waitValue=2")
    with pytest.raises(Deadlock, match=r"signals|symmetric_"):
        is_right(broken, 2, 0)
