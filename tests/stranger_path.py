"""The path of a stranger: a fresh clone, the demo, a spec of one's own, its plan, a run, the emitted file, why it was chosen.

    python tests/stranger_path.py               # with the packages of this Python
    python tests/stranger_path.py --install     # in a new environment, made as the page says
    python tests/stranger_path.py --tutorials   # the scripts of docs/tutorials in a clone, instead

Each step is read from docs/getting_started.md of the clone, and a shell runs it: no step is taken that the page does not name.
Prints what each step took, and fails above 10 minutes. A clone has what is committed, and no other change.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = "docs/getting_started.md"
MOST_SECONDS = 600.0
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# (\w+\.py)\n")  # first line of what the reader writes into that file

# where the page leads, in this order, and what it prints there
WANTED = (
    ("tilelink demo", "equal: "),
    ("tilelink plan", "predicted "),
    ("tilelink explain", "critical path:"),
    ("tilelink show", ""),
    ("tilelink run", "equal: "),
    ("tilelink verify", "no run refutes "),  # of the spec
    ("tilelink emit", ""),
    ("tilelink emit", ""),
    ("tilelink verify", "no run refutes "),  # of the emitted file, on emulated ranks
)


class Walk:
    """A clone in `folder`, and a shell in it that finds `tilelink`."""

    def __init__(self, folder: Path, install: bool) -> None:
        self.took: list[tuple[str, float]] = []
        self.clone = folder
        self.environment = os.environ | {"TILELINK_CACHE": str(folder / "cache")}  # nothing is there from earlier walks
        self.run(f"git clone --quiet {shlex.quote(str(ROOT))} tilelink")
        self.clone = folder / "tilelink"
        if install:
            bin_folder = self.clone / ".venv" / "bin"
            self.environment.pop("PYTHONPATH", None)
        else:  # `tilelink` as an installation makes it, of the clone
            bin_folder = folder / "bin"
            bin_folder.mkdir()
            command = bin_folder / "tilelink"
            command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tilelink "$@"\n')
            command.chmod(0o755)
            self.environment["PYTHONPATH"] = str(self.clone)
        self.environment["PATH"] = f"{bin_folder}{os.pathsep}{self.environment['PATH']}"

    def run(self, line: str) -> str:
        """What the line prints. It must exit with 0."""
        start = time.perf_counter()
        done = subprocess.run(
            ["bash", "-c", line], cwd=self.clone, env=self.environment, capture_output=True, text=True
        )
        self.took.append((line, time.perf_counter() - start))
        assert done.returncode == 0, f"exit {done.returncode}: {line}\n{(done.stdout + done.stderr)[-3000:]}"
        return done.stdout

    def report(self) -> float:
        """Print what each step took. The seconds of all."""
        for line, seconds in self.took:
            print(f"{seconds:6.1f} s  {line.partition(chr(10))[0]}")
        total = sum(seconds for _, seconds in self.took)
        print(f"{total:6.1f} s  in all")
        return total


def steps(page: str, install: bool) -> list[str]:
    """The lines of the page's shells; a block of Python that names its file is written there. Without `install`, of the first
    block only what follows the installation."""
    found = list[str]()
    first, *rest = BLOCK.findall(page)
    setting_up = first[1].splitlines()
    found += setting_up if install else [line for line in setting_up if line.startswith("tilelink ")]
    for language, text in rest:
        if language == "sh":
            found += text.splitlines()
        elif named := NAMED.match(text):
            found.append(f"cat > {named[1]} <<'EOF'\n{text}EOF")
    return found


def follow(folder: Path, install: bool = False) -> float:
    """Walk the whole path. Its seconds. Fails where a step does, or where the page leads elsewhere."""
    walk = Walk(folder, install)
    wanted = list(WANTED)
    for line in steps((walk.clone / PAGE).read_text(encoding="utf-8"), install):
        printed = walk.run(line)
        if wanted and line.startswith(wanted[0][0]):
            _, shown = wanted.pop(0)
            assert shown in printed, f"{line}: it does not print {shown!r}\n{printed[-2000:]}"
    assert not wanted, f"{PAGE} does not lead to {wanted[0][0]}"
    report = (walk.clone / "report.html").read_text(encoding="utf-8")
    assert "row_parallel" in report and "</html>" in report
    total = walk.report()
    assert total <= MOST_SECONDS, f"the path takes {total:.0f} s, and may take {MOST_SECONDS:.0f}"
    return total


def run_tutorials(folder: Path) -> float:
    """Start each tutorial as its page says. The seconds of all."""
    walk = Walk(folder, install=False)
    for script in sorted((walk.clone / "docs" / "tutorials").glob("[1-9]_*.py")):
        walk.run(f"{shlex.quote(sys.executable)} docs/tutorials/{script.name}")
    return walk.report()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--tutorials", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        run_tutorials(Path(name)) if options.tutorials else follow(Path(name), options.install)


if __name__ == "__main__":
    main()
