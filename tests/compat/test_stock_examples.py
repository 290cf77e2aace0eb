"""The kernels of examples/stock as a stranger would write them: right, and refuted when one line is missing."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tilelink.emulator import Deadlock, Race, World
from tilelink.emulator.policies import Newest, Oldest, StarveRank
from tilelink.emulator.races.detector import RaceDetector

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from tilelink.emulator import Observer, Policy

EXAMPLES = Path(__file__).parents[2] / "examples" / "stock"


def load(file: Path) -> ModuleType:
    spec = spec_from_file_location(f"stock_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def broken(name: str, old: str, new: str, folder: Path) -> ModuleType:
    """An example with one place of its source changed."""
    source = (EXAMPLES / name).read_text(encoding="utf-8")
    assert source.count(old) == 1
    file = folder / f"broken_{name}"
    file.write_text(source.replace(old, new), encoding="utf-8")
    return load(file)


def host_class(module: ModuleType) -> Any:
    (found,) = (value for value in vars(module).values() if isinstance(value, type) and hasattr(value, "INPUTS"))
    return found


def is_right(
    module: ModuleType,
    num_ranks: int,
    calls: int = 2,
    seed: int = 0,
    policy: Policy | None = None,
    observers: Sequence[Observer] = (),
) -> bool:
    """All calls of the host class on emulated ranks against the module's reference, bit for bit."""
    build = host_class(module)
    world = World(num_ranks, num_sms=6, seed=seed, policy=policy, observers=observers)
    operators = [build(fabric) for fabric in world.fabrics]
    generator = torch.Generator().manual_seed(seed)
    rounds = []
    for _ in range(calls):
        inputs = [
            {name: torch.randn(shape, generator=generator).to(dtype) for name, (shape, dtype) in build.INPUTS.items()}
            for _ in range(num_ranks)
        ]
        rounds.append((inputs, [operator(**mine) for operator, mine in zip(operators, inputs, strict=True)]))
    world.run()
    return all(
        torch.equal(output, wanted)
        for inputs, outputs in rounds
        for output, (wanted,) in zip(outputs, module.reference(inputs), strict=True)
    )


def policies(num_ranks: int) -> Sequence[Policy]:
    return [Newest(), Oldest(), *(StarveRank(rank) for rank in range(num_ranks))]


@pytest.mark.parametrize("name", ["one_shot_all_reduce.py", "copy_engine_all_gather.py"])
@pytest.mark.parametrize("num_ranks", [2, 3, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.quick(2)
def test_examples_equal_their_reference(name: str, num_ranks: int) -> None:
    module = load(EXAMPLES / name)
    assert all(is_right(module, num_ranks, calls=3, seed=seed) for seed in range(3))
    assert all(is_right(module, num_ranks, policy=policy) for policy in policies(num_ranks))


LAST_MEETING = """        tl.store(out + offsets, total.to(tl.bfloat16), mask=offsets < count)
    meet_peers(signal_pads, rank, NUM_RANKS)
"""
MUTANTS = {
    "read before the peers have copied": (
        "one_shot_all_reduce.py",
        "    meet_peers(signal_pads, rank, NUM_RANKS)\n    for start",
        "    for start",
    ),
    "overwritten while a peer reads": (
        "one_shot_all_reduce.py",
        LAST_MEETING,
        LAST_MEETING.splitlines(keepends=True)[0],
    ),
    "pulled before the peer has its shard": (
        "copy_engine_all_gather.py",
        "            handle.barrier(channel=BEFORE_PULL)\n",
        "",
    ),
    "progress of the last call": (
        "copy_engine_all_gather.py",
        "            symm.memset32(self.progress, 0, 0, num_ranks)\n",
        "",
    ),
    "side stream not behind the main one": (
        "copy_engine_all_gather.py",
        '        symm.wait_stream("pull", "main")\n',
        "",
    ),
    "overwritten while a peer pulls": (
        "copy_engine_all_gather.py",
        "            handle.barrier(channel=AFTER_PULL)  # no rank overwrites its shard while another one pulls it\n",
        "",
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_example_is_wrong_under_some_policy(mutant: str, tmp_path: Path) -> None:
    name, old, new = MUTANTS[mutant]
    module = broken(name, old, new, tmp_path)
    runs: list[dict[str, Any]] = [
        *({"policy": policy} for policy in policies(3)),
        *({"seed": seed} for seed in range(8)),
    ]
    assert not all(survives(module, **run) for run in runs)


@pytest.mark.parametrize("name", ["one_shot_all_reduce.py", "copy_engine_all_gather.py"])
def test_examples_have_no_race(name: str) -> None:
    module = load(EXAMPLES / name)
    assert all(is_right(module, 3, seed=seed, observers=[RaceDetector(3)]) for seed in range(2))


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_example_has_a_race_in_any_run(mutant: str, tmp_path: Path) -> None:
    name, old, new = MUTANTS[mutant]
    module = broken(name, old, new, tmp_path)
    for seed in range(2):
        with pytest.raises(Race):
            is_right(module, 3, seed=seed, observers=[RaceDetector(3)])


@pytest.mark.parametrize("name", ["one_shot_all_reduce.py", "copy_engine_all_gather.py"])
def test_examples_replay_as_a_graph_and_load_lazily(name: str) -> None:
    module = load(EXAMPLES / name)
    build = host_class(module)
    world = World(2, num_sms=6, lazy_loading=True, any_residency_order=True)
    operators = [build(fabric) for fabric in world.fabrics]
    inputs = [{"x": torch.ones(build.INPUTS["x"][0]).to(build.INPUTS["x"][1])} for _ in operators]
    with world.capture() as recording:
        outputs = [operator(**mine) for operator, mine in zip(operators, inputs, strict=True)]
    for value in range(3):
        for rank, mine in enumerate(inputs):
            mine["x"].fill_(value + rank)
        world.replay(recording)
        world.run()
        wanted = [one for (one,) in module.reference(inputs)]
        assert all(map(torch.equal, outputs, wanted))


def survives(module: ModuleType, **options: Any) -> bool:
    try:
        return is_right(module, 3, **options)
    except Deadlock:
        return False


def test_a_missing_signal_hangs_at_the_line_that_waits(tmp_path: Path) -> None:
    old = "                symm.stream_write_value32(self.progress, peer, 1)\n"
    module = broken("copy_engine_all_gather.py", old, "", tmp_path)
    with pytest.raises(Deadlock, match=r"tl.atomic_add\(progress \+ peer"):
        is_right(module, 2)
