"""`make replay`: what the working tree makes of about 250 cases, compared with what a commit makes of them.

Compared are kernels (IR without names and locations, helpers inlined), the operations of the host on every rank, the
rest of each file without texts and names, the planner's choices, and the predicted time. Exit code 0: all equal; 1: not.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.replay.cases import Case, cases
from tests.replay.compare import KINDS, Difference, compare
from tests.replay.outlines import report
from tests.replay.side import Side
from tests.replay.sides import Tree, both, commit_of

WIDTH = 240  # characters of a line that are shown
SLOW_S = 5.0  # a case that takes longer is listed


def main(given: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(given)
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # what is running, and temporary folders, end with the replay
    chosen = [case for case in cases() if arguments.only.lower() in case.name.lower()]
    if not chosen:
        sys.exit(
            f"no case has {arguments.only!r} in its name; names: {', '.join(case.name for case in cases()[:5])}, …"
        )
    commit = commit_of(arguments.against)
    print(f"{len(chosen)} cases, the working tree against {commit[:12]}", flush=True)
    start = time.perf_counter()
    old, new = both(Tree.of(commit), Tree.working(), chosen, arguments.jobs)
    if arguments.outlines:
        return 1 if report(old, new, arguments.lines) else 0
    found = compare(old, new)
    _show(found, arguments.lines)
    _table(chosen, found)
    _remarks(old, new)
    print(f"{time.perf_counter() - start:.0f} s")
    if arguments.json:
        arguments.json.write_text(json.dumps(_as_json(commit, chosen, found), indent=1))
    return 1 if found else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make replay", description=__doc__)
    parser.add_argument("--against", default="HEAD", help="commit to compare with (HEAD)")
    parser.add_argument("--only", default="", help="cases with this text in their names")
    parser.add_argument("--json", type=Path, help="write the differences to this file")
    parser.add_argument("--lines", type=int, default=60, help="lines shown of a difference (60)")
    parser.add_argument("--outlines", action="store_true", help="kernels by what the GPU does, without arithmetic")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time (one a CPU)")
    return parser


def _show(found: Sequence[Difference], lines: int) -> None:
    """Each text once, with the cases that have it."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for one in found:
        alike.setdefault((one.kind, one.title, one.text), []).append(one.case)
    for (kind, title, text), names in sorted(alike.items(), key=lambda item: KINDS.index(item[0][0])):
        print(f"\n== {kind}: {title}\n   {names[0]}" + (f", and {len(names) - 1} more" if names[1:] else ""))
        shown = text.splitlines()
        print("\n".join(line if len(line) <= WIDTH else f"{line[:WIDTH]} …" for line in shown[:lines]))
        if len(shown) > lines:
            print(f"… {len(shown) - lines} more lines: --lines {len(shown)} shows all")


def _table(chosen: Sequence[Case], found: Sequence[Difference]) -> None:
    """Cases that differ, by kind of difference and group of cases."""
    groups = {case.name: case.group for case in chosen}
    differing = Counter({(one.kind, groups[one.case], one.case): 1 for one in found})
    counts = Counter((kind, group) for kind, group, _ in differing)
    columns = list(dict.fromkeys(groups.values()))
    print("\n" + " ".join(f"{text:>11}" for text in ("cases", *columns, "all")))
    totals = Counter(groups.values())
    for row in ("replayed", *KINDS):
        numbers = [totals[column] if row == "replayed" else counts[row, column] for column in columns]
        print(" ".join(f"{text:>11}" for text in (row, *numbers, sum(numbers))))
    print(f"{len({one.case for one in found})} of {len(chosen)} cases differ")


def _remarks(old: Side, new: Side) -> None:
    """Cases that say nothing, because both sides fail; seconds of the processor, whenever they were spent."""
    for name, facts in new["cases"].items():
        if facts["errors"] and old["cases"][name]["errors"] == facts["errors"]:
            print(f"fails on both sides: {name}: {next(iter(facts['errors'].values())).splitlines()[0]}")
    seconds = {name: sum(facts["seconds"].values()) for name, facts in new["cases"].items()}
    print(f"{sum(seconds.values()):.0f} s of a processor for the working tree's side")
    for name, one in seconds.items():
        if one > SLOW_S:
            print(f"slow: {one:.1f} s, {name}")


def _as_json(commit: str, chosen: Sequence[Case], found: Sequence[Difference]) -> dict[str, object]:
    listed = [{"case": one.case, "kind": one.kind, "title": one.title, "text": one.text} for one in found]
    return {"against": commit, "cases": [case.name for case in chosen], "differences": listed}


if __name__ == "__main__":
    sys.exit(main())
