"""Two sides of a replay, compared: what differs in which case, as text that a person reads."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from tests.replay.side import Facts, Side

KINDS = ("error", "choices", "predicted", "kernel", "host", "beside")
# numbers that every line behind an inserted one changes: lines that differ in them only are aligned, and not shown as changed
_NUMBERED = re.compile(
    r"%cst(?:_\d+)?|%(?!c)[A-Za-z_]*\d*(?:_\d+)?|(%c[-\w]*?i\d+)(?:_\d+)?|\b(memory|symmetric|n)\d+|(#[a-z]+)\d+\b"
)
_LEVEL = 1e-9  # relative difference of predicted times that is rounding


@dataclass(frozen=True, slots=True)
class Difference:
    """`text` says what differs, with - for the old and + for the new side."""

    case: str
    kind: str
    title: str
    text: str


def compare(old: Side, new: Side) -> list[Difference]:
    """All differences of the cases of both, in the order of `new`."""
    found = []
    for name in dict.fromkeys([*new["cases"], *old["cases"]]):
        before, after = old["cases"].get(name), new["cases"].get(name)
        if before is None or after is None:
            found.append(
                Difference(name, "error", "case", f"it is replayed on the {'old' if before else 'new'} side only")
            )
        else:
            found += _of_case(name, before, after, {**old["texts"], **new["texts"]})
    return found


def _of_case(name: str, old: Facts, new: Facts, texts: Mapping[str, str]) -> Iterator[Difference]:
    for stage, text in _changed(old["errors"], new["errors"]):
        yield Difference(name, "error", stage, text)
    if "plan" in {*old["errors"], *new["errors"]}:
        return  # nothing else is known of one side
    if old["choices"] != new["choices"]:
        changed = [text for _, text in _changed(old["choices"], new["choices"], names=True)]
        yield Difference(name, "choices", "choices", "\n".join(changed))
    before, after = old["predicted_us"], new["predicted_us"]
    if abs(after - before) > _LEVEL * max(before, after):
        percent = f" ({100 * (after / before - 1):+.3g} %)" if before else ""
        yield Difference(name, "predicted", "predicted time", f"{before:.3f} us -> {after:.3f} us{percent}")
    if not {"emit", "load", "host", "kernels"} & {*old["errors"], *new["errors"]}:
        yield from _of_file(name, old, new, texts)


def _of_file(name: str, old: Facts, new: Facts, texts: Mapping[str, str]) -> Iterator[Difference]:
    yield from _of_kernels(name, old, new, texts)
    ranks = [rank for rank in new["host"] if old["host"].get(rank) != new["host"][rank]]
    if ranks:
        title = f"operations of the host, rank {ranks[0]}" + (f", and {len(ranks) - 1} more" if ranks[1:] else "")
        text = unified(texts.get(old["host"].get(ranks[0], ""), ""), texts[new["host"][ranks[0]]])
        yield Difference(name, "host", title, text)
    if old["beside"] != new["beside"]:
        yield Difference(name, "beside", "fabric and self-check", unified(texts[old["beside"]], texts[new["beside"]]))


def _of_kernels(name: str, old: Facts, new: Facts, texts: Mapping[str, str]) -> Iterator[Difference]:
    """Kernels that only one side has, in pairs; those of both sides may stand in another order."""
    sides = old["kernels"], new["kernels"]
    before = [label for label, text in sides[0].items() if text not in sides[1].values()]
    after = [label for label, text in sides[1].items() if text not in sides[0].values()]
    for one, other in zip_longest(before, after, fillvalue=""):
        called = dict.fromkeys((old["names"].get(one, "none"), new["names"].get(other, "none")))
        text = unified(texts.get(sides[0].get(one, ""), ""), texts.get(sides[1].get(other, ""), ""))
        yield Difference(name, "kernel", f"{other or one} ({' -> '.join(called)})", text)
    if not before and not after and list(sides[0].values()) != list(sides[1].values()):
        orders = ["  then  ".join(facts["names"].values()) for facts in (old, new)]
        yield Difference(name, "kernel", "order of the kernels", f"- {orders[0]}\n+ {orders[1]}")


def _changed(old: Mapping[str, str], new: Mapping[str, str], names: bool = False) -> Iterator[tuple[str, str]]:
    """What differs under each name."""
    for name in dict.fromkeys([*old, *new]):
        if old.get(name) != new.get(name):
            sides = (("-", old), ("+", new))
            prefix = f"{name} = " if names else ""
            yield name, "\n".join(f"{sign} {prefix}{side[name]}" for sign, side in sides if name in side)


def unified(old: str, new: str, context: int = 3) -> str:
    """A unified diff in which lines that differ in numbers of values only are alike, unless nothing else differs."""
    before, after = old.splitlines(), new.splitlines()
    for masked in (lambda line: _NUMBERED.sub(_stem, line), str):
        matcher = difflib.SequenceMatcher(None, [*map(masked, before)], [*map(masked, after)], autojunk=False)
        shown = [_hunk(before, after, group) for group in matcher.get_grouped_opcodes(context)]
        if shown:
            return "\n".join(shown)
    return ""


def _stem(found: re.Match[str]) -> str:
    return next((text for text in found.groups() if text), "%")


def _hunk(before: list[str], after: list[str], group: list[tuple[str, int, int, int, int]]) -> str:
    first, last = group[0], group[-1]
    lines = [f"@@ -{first[1] + 1},{last[2] - first[1]} +{first[3] + 1},{last[4] - first[3]} @@"]
    for tag, old_start, old_end, new_start, new_end in group:
        if tag == "equal":
            lines += [f"  {line}" for line in after[new_start:new_end]]
        else:
            lines += [f"- {line}" for line in before[old_start:old_end]]
            lines += [f"+ {line}" for line in after[new_start:new_end]]
    return "\n".join(lines)
