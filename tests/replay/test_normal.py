"""The replay sees what an emitted file does, and not what it is called: edits planted in the text of one file."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.replay import surface
from tests.replay.cases import Case, cases
from tests.replay.compare import Difference, compare, unified
from tests.replay.side import Describing, Facts, Side

COPIED = "bench gemm_rs: copies push, h200-nvswitch x4, triton"
TURNS = "bench gemm_rs: turns, copies, h200-nvswitch x4, triton"
TYPED = "bench gemm_rs: copies push, h200-nvswitch x4, triton-distributed"


@cache
def emitted(name: str) -> tuple[Case, str, str]:
    case = next(case for case in cases() if case.name == name)
    schedule = surface.plan(case.operator, case.topology, case.num_ranks, dict(case.sizes), case.dtype, dict(case.pins))
    return case, surface.emit(schedule, case.target), surface.arch(schedule)


@cache
def described(name: str, source: str) -> Side:
    case, _, arch = emitted(name)
    texts: dict[str, str] = {}
    describing = Describing(case, texts)
    describing.of_source(source, arch)
    assert not describing.facts["errors"], describing.facts["errors"]
    return Side(digest="", cases={name: describing.facts}, texts=texts)


def differences(name: str, edit: str, into: str, count: int = 1) -> list[Difference]:
    """What is seen of an edit of the emitted text, by regular expression."""
    source = emitted(name)[1]
    edited, found = re.subn(edit, into, source, count=count, flags=re.MULTILINE)
    assert found and edited != source, f"{edit!r} is not in the text"
    return compare(described(name, source), described(name, edited))


UNSEEN = {
    "a comment": (COPIED, r"^    # groups of .*$", "    # other words", 1),
    "docstrings": (COPIED, r"^    \"\"\"[A-Z][^\"]*\"\"\"$", '    """Other words."""', 0),
    "a kernel": (COPIED, r"\by_kernel\b", "renamed_kernel", 0),
    "a helper": (COPIED, r"\bcount_up\b", "renamed_helper", 0),
    "a helper of Gluon": (TURNS, r"\bmultiply_in_turn\b", "renamed_helper", 0),
    "a variable of a kernel": (COPIED, r"\bprogram\b", "instance", 0),
    "a constant": (COPIED, r"\bY_TILE_M\b", "ROWS_OF_A_TILE", 0),
    "a parameter": (COPIED, r"\by_staged\b", "staged_here", 0),
    "a stream": (COPIED, r"\bcopy_y_parts\b", "side_stream", 0),
    "a buffer": (COPIED, r"\by_parts\b", "parts", 0),
    "a method of the fabric": (COPIED, r"\b_check_residency\b", "_fits", 0),
    "a word of a message": (COPIED, r"this schedule is for", "this operator is for", 0),
    "a kernel, in the other language": (TYPED, r"\by_kernel\b", "renamed_kernel", 0),
    "the hash of the schedule": (COPIED, r"SCHEDULE = \"\w+\"", 'SCHEDULE = "0"', 1),
}


@pytest.mark.parametrize("what", UNSEEN)
@pytest.mark.quick(2)
def test_names_and_comments_do_not_count(what: str) -> None:
    assert differences(*UNSEEN[what]) == []


SEEN = {
    "a constant": (COPIED, r"^Y_GROUP_M = tl.constexpr\(\d+\)", "Y_GROUP_M = tl.constexpr(2)", "kernel"),
    "a barrier that is dropped": (COPIED, r"^    program_barrier\(\)$", "    pass", "kernel"),
    "a barrier of Gluon": (TURNS, r"^    gl\.thread_barrier\(\)$", "    pass", "kernel"),
    "a weaker order": (COPIED, r'sem="release"', 'sem="relaxed"', "kernel"),
    "a wait of the kernel": (COPIED, r"^( +)wait_until\(counts \+ COPIED.*$", r"\1pass", "kernel"),
    "statements swapped": (
        COPIED,
        r"^( +wait_until\(counts \+ COPIED.*\n)( +count_at_peers\(.*\n)",
        r"\2\1",
        "kernel",
    ),
    "warps": (COPIED, r"num_warps=8", "num_warps=4", "host"),
    "a grid": (COPIED, r"\(Y_PROGRAMS\.value,\)", "(Y_PROGRAMS.value - 1,)", "host"),
    "the offset of a copy": (COPIED, r"self\.y_staged\[peer\b", "self.y_staged[0", "host"),
    "the size of a copy": (TURNS, r"chunk \* (\w+)\.value : ", r"1 + chunk * \1.value : ", "host"),
    "a wait of a stream": (COPIED, r"^( +)copy_y_parts\.wait_at_least\(self\.counts.*$", r"\1pass", "host"),
    "what is waited for": (COPIED, r"(wait_at_least\(self\.counts\[[^]]*\]\[:1\], )", r"\g<1>1 + ", "host"),
    "a stream that joins": (COPIED, r"^( +)main\.after\(copy_y_parts\)$", r"\1pass", "host"),
    "what words begin with": (COPIED, r"\.fill_\(NUM_RANKS\.value - 1\)", ".fill_(0)", "host"),
    "what the fabric does": (COPIED, r"CU_STREAM_NON_BLOCKING", "CU_STREAM_DEFAULT", "beside"),
    "what it is compared with": (COPIED, r"Near\.sum\(y\)", "Near.sum(y[1:])", "beside"),
}


@pytest.mark.parametrize("what", SEEN)
@pytest.mark.slow
def test_what_a_file_does_counts(what: str) -> None:
    name, edit, into, kind = SEEN[what]
    found = differences(name, edit, into)
    assert kind in {one.kind for one in found}
    assert all(one.text for one in found)


def test_a_launch_that_fails_is_a_difference() -> None:
    case, source, arch = emitted(COPIED)
    edited = source.replace("tl.program_id(0)", "tl.program_id(no_such_name)")
    describing = Describing(case, {})
    describing.of_source(edited, arch)
    failed = Side(digest="", cases={COPIED: describing.facts}, texts={})
    (found,) = compare(described(COPIED, source), failed)
    assert (found.kind, found.title) == ("error", "kernels") and "no_such_name" in found.text


def test_a_case_that_cannot_be_planned_is_a_difference() -> None:
    case = emitted(COPIED)[0]
    wrong = Case(**{field: getattr(case, field) for field in Case.__slots__} | {"pins": (("tile", "1x1"),)})
    facts = Describing(wrong, {}).run()
    assert facts["errors"]["plan"].startswith("IllegalPin")


def test_kernels_in_another_order_are_a_difference() -> None:
    """What both sides have is paired, so that a new kernel is shown as one."""
    name, source = COPIED, emitted(COPIED)[1]
    side = described(name, source)
    facts = side["cases"][name]
    first, second = facts["kernels"].items()
    turned = {**facts, "kernels": {first[0]: second[1], second[0]: first[1]}}
    fewer = {**facts, "kernels": {"kernel0": second[1]}}
    (order,) = compare(side, Side(digest="", cases={name: Facts(**turned)}, texts=side["texts"]))  # type: ignore[typeddict-item]
    (lost,) = compare(side, Side(digest="", cases={name: Facts(**fewer)}, texts=side["texts"]))  # type: ignore[typeddict-item]
    assert order.title == "order of the kernels"
    assert lost.kind == "kernel" and lost.text.splitlines()[1].startswith("- ")


def test_numbers_behind_an_inserted_line_are_not_shown() -> None:
    old = "%cst_4 = zeros\n%c1_i32 = one\n%0 = load %arg0\n%1 = add %0, %c1_i32\nstore %1\n" + "keep\n" * 9
    new = (
        "%cst_5 = zeros\n%c1_i32 = one\n%0 = barrier\n%1 = load %arg0\n%2 = add %1, %c1_i32\nstore %2\n" + "keep\n" * 9
    )
    assert [line for line in unified(old, new).splitlines() if line[0] in "+-"] == ["+ %0 = barrier"]
    assert "- %c1_i32 = one" in unified(old, old.replace("%c1_i32", "%c2_i32", 1))


def test_a_swap_of_operands_alone_is_shown() -> None:
    assert "+ %2 = sub %1, %0" in unified("%2 = sub %0, %1", "%2 = sub %1, %0")
