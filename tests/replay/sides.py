"""Both sides of a replay: trees of commits, processes that describe them, and what is kept from earlier replays."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.replay.cases import Case
from tests.replay.side import Side, digest, key

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".replay"
MOST_KEPT = 8  # commits
_CODE = ("tilelink", "lowering", "topologies", "examples", "tests/pipeline")  # of which facts are


@dataclass(frozen=True, slots=True)
class Tree:
    """The tree of `commit`, or the working tree, which may be equal to one."""

    commit: str
    is_working: bool

    @staticmethod
    def of(commit: str) -> Tree:
        return Tree(commit, False)

    @staticmethod
    def working() -> Tree:
        """It has a commit if nothing that cases see has been changed since."""
        changed = _git("status", "--porcelain", "--", *_CODE)
        return Tree("" if changed else commit_of("HEAD"), True)

    @contextlib.contextmanager
    def checked_out(self) -> Iterator[Path]:
        """A folder with this tree and the replay of the working tree."""
        if self.is_working:
            yield ROOT
            return
        with tempfile.TemporaryDirectory(prefix="tilelink-replay-") as folder:
            archive, tree = Path(folder) / "tree.tar", Path(folder) / "tree"
            _git("archive", "--format=tar", f"--output={archive}", self.commit)
            with tarfile.open(archive) as packed:
                packed.extractall(tree, filter="data")
            shutil.rmtree(tree / "tests" / "replay", ignore_errors=True)
            shutil.copytree(ROOT / "tests" / "replay", tree / "tests" / "replay")
            yield tree


def commit_of(name: str) -> str:
    """The full hash of a commit. Exits with what git says where there is none."""
    return _git("rev-parse", "--verify", f"{name}^{{commit}}")


def both(old: Tree, new: Tree, chosen: Sequence[Case], jobs: int) -> tuple[Side, Side]:
    """Facts of `chosen` on both sides; what an earlier replay of a commit has found is not computed again."""
    sides = [_kept(tree) for tree in (old, new)]
    missing = [[case for case in chosen if not _has(side, case)] for side in sides]
    if old.commit == new.commit:  # equal by what git says: described once, and compared with itself
        missing[0] = []
    busy = sum(1 for cases in missing if cases)
    with contextlib.ExitStack() as stack:
        running = []
        for tree, cases in zip((old, new), missing, strict=True):
            folder = stack.enter_context(tree.checked_out()) if cases else ROOT
            running.append(_start(stack, folder, cases, max(1, jobs // max(1, busy))))
        for side, outputs in zip(sides, running, strict=True):
            for process, out in outputs:
                if process.wait():
                    sys.exit(f"a process of the replay failed, exit code {process.returncode}")
                found = json.loads(out.read_text())
                side["cases"] |= found["cases"]
                side["texts"] |= found["texts"]
    if old.commit == new.commit:
        sides[0] = sides[1]
    for tree, side in zip((old, new), sides, strict=True):
        _keep(tree, side)
    first, second = (_only(side, chosen) for side in sides)
    return first, second


def _start(
    stack: contextlib.ExitStack, tree: Path, cases: Sequence[Case], parts: int
) -> list[tuple[subprocess.Popen[bytes], Path]]:
    if not cases:
        return []
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tilelink-replay-")))
    names = folder / "names"
    names.write_text("\n".join(case.name for case in cases))
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    started = []
    for part in range(parts):
        out = folder / f"{part}.json"
        command = [sys.executable, "-m", "tests.replay.side", "--names", str(names), "--out", str(out)]
        command += ["--part", str(part), "--parts", str(parts)]
        process = subprocess.Popen(command, cwd=tree, env=environment)
        stack.callback(process.kill)  # where the replay ends before it does
        started.append((process, out))
    return started


def _kept(tree: Tree) -> Side:
    path = KEPT / f"{tree.commit}.json"
    empty = Side(digest=digest(), cases={}, texts={})
    if not tree.commit or not path.exists():
        return empty
    side: Side = json.loads(path.read_text())
    return side if side["digest"] == empty["digest"] else empty


def _has(side: Side, case: Case) -> bool:
    return case.name in side["cases"] and side["cases"][case.name]["key"] == key(case)


def _keep(tree: Tree, side: Side) -> None:
    """Facts of commits only: the working tree has others the next time."""
    if tree.commit:
        KEPT.mkdir(exist_ok=True)
        path = KEPT / f"{tree.commit}.json"
        partial = path.with_suffix(f".{os.getpid()}.part")
        partial.write_text(json.dumps(side))
        partial.replace(path)
        for old in sorted(KEPT.glob("*.json"), key=lambda one: one.stat().st_mtime)[:-MOST_KEPT]:
            old.unlink()


def _only(side: Side, chosen: Sequence[Case]) -> Side:
    facts = {case.name: side["cases"][case.name] for case in chosen if case.name in side["cases"]}
    return Side(digest=side["digest"], cases=facts, texts=side["texts"])


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()
