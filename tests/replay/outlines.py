"""Kernels of both sides of a replay by their outlines: cases sorted by the kinds of lines that differ.

What begins and ends a call is left out: kernels without data, and what the program that ends last does.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import NamedTuple

from tests.replay.outline import KINDS, kind, outline
from tests.replay.side import Facts, Side

_COUNTED = ("    atomic add, acq_rel, sys i32", "    atomic add, acq_rel, sys *i32")  # outside of all loops
_NUMBER_OF_CALL = ("    load i32", "    load *i32")


class Outlined(NamedTuple):
    name: str
    lines: list[str]


def report(old: Side, new: Side, shown: int) -> int:
    """Prints differences, each once, then how many cases have which kinds of them; returns how many cases differ."""
    kinds: dict[str, tuple[str, ...]] = {}
    texts: dict[str, list[str]] = {}
    for case, facts in new["cases"].items():
        if case not in old["cases"]:
            continue
        found = differences(old["cases"][case], facts, {**old["texts"], **new["texts"]})
        kinds[case] = kinds_of(found)
        for name, text in found.items():
            texts.setdefault(f"{name}\n{text}", []).append(case)
    for text, names in sorted(texts.items(), key=lambda one: -len(one[1])):
        lines = text.splitlines()
        more = f"\n… {len(lines) - shown} more lines" if len(lines) > shown else ""
        print(f"\n== {names[0]}" + (f", and {len(names) - 1} more" if names[1:] else ""))
        print("\n".join(lines[:shown]) + more)
    _tables(kinds)
    return sum(found != () for found in kinds.values())


def _tables(kinds: Mapping[str, tuple[str, ...]]) -> None:
    print("\ncases by what differs:")
    for found, number in Counter(kinds.values()).most_common():
        print(f"{number:5}  {', '.join(found) or 'nothing'}")
    print("cases with differences of a kind:")
    for one, number in Counter(one for found in kinds.values() for one in found).most_common():
        print(f"{number:5}  {one}")


def differences(old: Facts, new: Facts, texts: Mapping[str, str]) -> dict[str, str]:
    """By kernel, with - for the old side; errors of either side are one."""
    if old["errors"] or new["errors"]:
        lines = [f"{sign} {text}" for sign, side in (("-", old), ("+", new)) for text in side["errors"].values()]
        return {} if old["errors"] == new["errors"] else {"error": "\n".join(lines)}
    if old["choices"] != new["choices"]:
        return {"choices": "other choices of the planner: no kernels to compare"}
    found: dict[str, str] = {}
    for one, other in _pairs(*(_with_data(side, texts) for side in (old, new))):
        lines = list(difflib.unified_diff(one.lines, other.lines, lineterm="", n=2))[2:]
        if lines:
            found[f"{one.name} -> {other.name}"] = "\n".join(lines)
    return found


def kinds_of(found: Mapping[str, str]) -> tuple[str, ...]:
    if "error" in found or "choices" in found:
        return tuple(found)
    changed = [line[1:] for text in found.values() for line in text.splitlines() if line[0] in "+-"]
    return tuple(one for one in KINDS if any(kind(line) == one for line in changed))


def _pairs(before: list[Outlined], after: list[Outlined]) -> Iterator[tuple[Outlined, Outlined]]:
    """Kernels of a name, and what lies between them, in order."""
    names, other_names = ([one.name for one in side] for side in (before, after))
    none = Outlined("none", [])
    for _, *ends in difflib.SequenceMatcher(None, names, other_names, autojunk=False).get_opcodes():
        yield from zip_longest(before[ends[0] : ends[1]], after[ends[2] : ends[3]], fillvalue=none)


def _with_data(side: Facts, texts: Mapping[str, str]) -> list[Outlined]:
    cut = [
        Outlined(side["names"][label], _without_frame(outline(texts[text]))) for label, text in side["kernels"].items()
    ]
    return [one for one in cut if any(map(_of_data, one.lines))]


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
    return [line for line in kept if line not in _NUMBER_OF_CALL]
