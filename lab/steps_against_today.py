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
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any, NamedTuple

from tests.replay import surface
from tests.replay.cases import Case, cases
from tests.replay.normal import normal_ir
from tests.replay.record import record

KEPT = surface.ROOT / ".replay" / "steps"
KINDS = ("loops", "loads and stores", "dots", "atomics", "barriers", "words", "branches", "rest")
_COUNTED = ("    atomic add, acq_rel, sys i32", "    atomic add, acq_rel, sys *i32")  # outside of all loops
_BITS = {"bar.sync": "barrier", "fence.proxy": "fence", "wait_group": "flush", "st.relaxed": "put", "ld.relaxed": "get"}


class Kernel(NamedTuple):
    name: str
    outline: list[str]


# ---- outlines ----------------------------------------------------------------------------------------------------------


def outline(ir: str) -> list[str]:
    """Lines of `ir` that are more than arithmetic, indented by the regions that they stand in."""
    out: list[str] = []
    open_regions: list[int] = []  # where the line of each lies, to which its attributes are added
    for line in ir.splitlines():
        text = line.strip()
        if text.startswith("}"):
            _closed(out, open_regions, text)
            continue
        found = _line(text)
        if found:
            out.append("  " * len(open_regions) + found)
        if text.endswith("{"):
            open_regions.append(len(out) - 1 if found else -1)
    return _without_empty(out)


def _closed(out: list[str], open_regions: list[int], text: str) -> None:
    place = open_regions.pop() if open_regions else -1
    attributes = re.search(r"\{(.*)\}\)?$", text.replace("} do {", "").replace("} else {", "").removeprefix("}"))
    if attributes and place >= 0:
        out[place] += f"  [{attributes[1]}]"
    if text.startswith(("} else", "} do")):
        out.append("  " * len(open_regions) + text.split()[1])
        open_regions.append(len(out) - 1)


def _without_empty(lines: list[str]) -> list[str]:
    """Lines without branches in which nothing is left."""
    out: list[str] = []
    for number, line in enumerate(lines):
        depth = len(line) - len(line.lstrip())
        following = lines[number + 1] if number + 1 < len(lines) else ""
        inner = len(following) - len(following.lstrip()) > depth
        if line.strip() in ("if", "else") and not inner:
            continue
        out.append(line)
    return out


def _line(text: str) -> str:
    """What is left of a line of IR."""
    op = re.search(r"(?:^|= )\"?((?:tt|ttg|ttng|scf|gpu|nvvm|rocdl|arith)\.[\w.]+)", text)
    name = op[1] if op else ""
    types = text.rpartition(" : ")[2]
    match name:
        case "scf.for":
            return "for"
        case "scf.while":
            return "while"
        case "scf.if":
            return "if"
        case "tt.load":
            return f"load{' masked' if _operands(text, name) > 1 else ''} {_shape(types)}"
        case "tt.store":
            return f"store{' masked' if _operands(text, name) > 2 else ''} {_shape(types)}"
        case "tt.descriptor_load" | "tt.descriptor_store":
            return f"{name.removeprefix('tt.')} {_shape(types)}"
        case "tt.reshape" if types.endswith("i32>"):
            return ""  # of flags that are reduced, in any order
        case "tt.dot" | "tt.trans" | "tt.reduce" | "tt.split" | "tt.join" | "tt.reshape" | "tt.call":
            return f"{name.removeprefix('tt.')} {_shape(types)}"
        case "tt.atomic_rmw" | "tt.atomic_cas":
            what = re.search(r"atomic_\w+ ([\w, ]+), %", text)
            return f"atomic {what[1] if what else ''} {_shape(types)}"
        case "tt.elementwise_inline_asm":
            return next((what for part, what in _BITS.items() if part in text), "asm")
        case "gpu.barrier" | "ttg.local_barrier":
            return "barrier"
    if name.startswith(("ttg.", "ttng.", "nvvm.", "rocdl.")):
        return f"{name} {_shape(types)}"
    return ""


def _operands(text: str, op: str) -> int:
    return text.partition(f"{op} ")[2].partition(" : ")[0].split(" {")[0].count(",") + 1


def _shape(types: str) -> str:
    """The shape and the type of the elements of the first tensor in `types`, or the type of the pointer."""
    found = re.search(r"((?:\d+x)*)(!tt\.ptr<)?(bf16|[fi]\d+)\b", types)
    return f"{found[1]}{'*' if found[2] else ''}{found[3]}" if found else ""


def kind(line: str) -> str:
    """The kind of a line of an outline."""
    word = line.strip().split(" ")[0]
    match word:
        case "for" | "while" | "do":
            return "loops"
        case "load" | "store" | "descriptor_load" | "descriptor_store":
            return "loads and stores"
        case "dot" | "trans":
            return "dots"
        case "atomic":
            return "atomics"
        case "barrier" | "fence" | "flush":
            return "barriers"
        case "put" | "get" | "split" | "join" | "reshape":
            return "words"
        case "if" | "else":
            return "branches"
    return "rest"


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
    schedule = surface.plan(
        case.operator, case.topology, case.num_ranks, dict(case.sizes), case.dtype, dict(case.pins)
    )
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
