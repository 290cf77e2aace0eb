"""Kernels printed from steps beside those of the printers of nodes: what the GPU does, and where the two differ.

    python -m lab.steps_against_today [--only TEXT] [--show] [--frame]

Each replay case of target triton is emitted twice. Of every kernel that rank 0 launches, the normalised IR is reduced to its
*outline*: loops with their attributes, branches, loads and stores with shapes and masks, dots, atomics, inline assembly.
Arithmetic on indices is left out. Cases are sorted by the kinds of lines in which the outlines differ. The outlines of the
printers of nodes are kept in `.replay/steps/`, with the plans; delete that folder when they change.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any, NamedTuple

from tests.replay import surface
from tests.replay.cases import Case, cases
from tests.replay.normal import normal_ir
from tests.replay.outline import KINDS, kind, outline
from tests.replay.record import record

KEPT = surface.ROOT / ".replay" / "steps"
_COUNTED = ("    atomic add, acq_rel, sys i32", "    atomic add, acq_rel, sys *i32")  # outside of all loops


class Kernel(NamedTuple):
    name: str
    outline: list[str]


# ---- cases -------------------------------------------------------------------------------------------------------------


def kernels(source: str, case: Case, arch: str) -> Iterator[Kernel]:
    """Outlines of what rank 0 launches, each kernel once."""
    module = surface.load(source, "compared")
    seen: list[str] = []
    for one in record(module, case.num_ranks, 0).launches:
        ir = normal_ir(surface.written_ir(one.kernel, one.grid, one.arguments, one.options, arch), arch)
        if ir not in seen:
            seen.append(ir)
            yield Kernel(str(one.kernel.__name__), outline(ir))


def planned(case: Case) -> tuple[Any, list[Kernel]]:
    """The schedule of a case, and the kernels of the printers of nodes."""
    from tilelink.ir.schedule import Schedule

    kept = KEPT / f"{hashlib.sha256(repr(case).encode()).hexdigest()[:16]}.json"
    if kept.exists():
        found = json.loads(kept.read_text())
        return Schedule.from_json(found["schedule"]), [Kernel(*one) for one in found["kernels"]]
    schedule = surface.plan(case.operator, case.topology, case.num_ranks, dict(case.sizes), case.dtype, dict(case.pins))
    today = list(kernels(surface.emit(schedule, "triton"), case, surface.arch(schedule)))
    KEPT.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({"schedule": schedule.to_json(), "kernels": today}))
    return schedule, today


def compared(today: list[Kernel], steps: list[Kernel], frame: bool) -> dict[str, str]:
    """Difference by kernel, with - for today's; empty where outlines are equal."""
    found: dict[str, str] = {}
    before, after = (_of_call(side, frame) for side in (today, steps))
    for old, new in _pairs(before, after):
        lines = list(difflib.unified_diff(old.outline, new.outline, lineterm="", n=2))[2:]
        if lines:
            found[f"{old.name} -> {new.name}"] = "\n".join(lines)
    return found


def _pairs(before: list[Kernel], after: list[Kernel]) -> Iterator[tuple[Kernel, Kernel]]:
    """Kernels of a name, and what lies between them, in order."""
    names = [[one.name for one in side] for side in (before, after)]
    none = Kernel("none", [])
    for _, *ends in difflib.SequenceMatcher(None, *names, autojunk=False).get_opcodes():
        yield from zip_longest(before[ends[0] : ends[1]], after[ends[2] : ends[3]], fillvalue=none)


def _of_call(side: list[Kernel], frame: bool) -> list[Kernel]:
    """Kernels that do more than to begin or end a call, without what only begins or ends one."""
    if frame:
        return side
    cut = [Kernel(one.name, _without_frame(one.outline)) for one in side]
    return [one for one in cut if any(_of_data(line) for line in one.outline)]


def _of_data(line: str) -> bool:
    """Whether a line accesses more than words of synchronisation."""
    word, last = line.split()[0], line.split()[-1]
    return word in ("put", "get", "dot") or (kind(line) == "loads and stores" and "f" in last)


def _without_frame(lines: list[str]) -> list[str]:
    """Without what the program that ends last does, from its count on, and the load of the number of the call."""
    last = max((place for place, line in enumerate(lines) if line in _COUNTED), default=len(lines))
    kept = lines[:last]
    while kept and kept[-1] == "    barrier":
        kept.pop()
    return [line for line in kept if line not in ("    load i32", "    load *i32")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases with this in their names")
    parser.add_argument("--show", action="store_true", help="the differences, each once")
    parser.add_argument("--frame", action="store_true", help="with what begins and ends a call")
    arguments = parser.parse_args()
    report((case for case in cases() if case.target == "triton" and arguments.only in case.name), arguments)


def report(chosen: Iterable[Case], arguments: argparse.Namespace) -> None:
    from lowering.steps.planned import lower_planned

    counts: Counter[str] = Counter()
    by_kinds: dict[tuple[str, ...], list[str]] = {}
    texts: dict[str, list[str]] = {}
    for case in chosen:
        try:
            schedule, today = planned(case)
            found = compared(
                today, list(kernels(lower_planned(schedule), case, surface.arch(schedule))), arguments.frame
            )
        except Exception as error:  # of any kind: it is a fact of the case
            found = {"error": f"- {type(error).__name__}: {error}"[:400]}
            differing: tuple[str, ...] = ("error",)
        else:
            changed = [line[1:] for text in found.values() for line in text.splitlines() if line[0] in "+-"]
            differing = tuple(one for one in KINDS if any(kind(line) == one for line in changed)) or ("equal",)
        counts.update(differing)
        by_kinds.setdefault(differing, []).append(case.name)
        print(f"{', '.join(differing):40} {case.name}", flush=True)
        for name, text in found.items():
            texts.setdefault(f"{name}\n{text}", []).append(case.name)
    if arguments.show:
        for text, names in sorted(texts.items(), key=lambda one: -len(one[1])):
            print(f"\n==== {len(names)} cases: {'; '.join(names[:3])}\n{text}")
    print()
    for differing, names in sorted(by_kinds.items(), key=lambda one: -len(one[1])):
        print(f"{len(names):4}  {', '.join(differing)}")
    print()
    for one, number in counts.most_common():
        print(f"{number:4}  {one}")


if __name__ == "__main__":
    main()
