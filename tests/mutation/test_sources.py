"""Mutators of source: none is dead, mutants parse, lines keep their numbers, and nothing else is touched."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache

import pytest

import lowering
from tests.mutation.subjects import SUBJECTS, subject
from tilelink.mutation.errors import NoHostClass
from tilelink.mutation.mutant import SourceMutant
from tilelink.mutation.sources import mutants, source_operators
from tilelink.mutation.verifier import SAME_ACCESSES, JudgeSource


@cache
def emitted(label: str) -> str:
    return lowering.emit(subject(label))


@cache
def found(label: str) -> tuple[SourceMutant, ...]:
    return tuple(mutants(emitted(label)))


@pytest.mark.slow
def test_every_operator_is_alive() -> None:
    counts = Counter(mutant.operator for label in SUBJECTS for mutant in found(label))
    assert [name for name in source_operators() if not counts[name]] == []


@pytest.mark.slow
@pytest.mark.parametrize("label", ["scatter, SMs push, epilogue", "gather, fused pull, ragged", "user op"])
def test_mutants_parse_and_differ(label: str) -> None:
    source, sources = emitted(label), [mutant.source for mutant in found(label)]
    assert source not in sources
    assert len(set(sources)) == len(sources)
    for mutant in found(label)[::4]:
        ast.parse(mutant.source)


@pytest.mark.parametrize("label", ["gather, copy engine pull", "MLP"])
@pytest.mark.quick(1)
def test_only_the_named_lines_change(label: str) -> None:
    lines = emitted(label).splitlines()
    start, end = (emitted(label)[: emitted(label).index(mark)].count("\n") for mark in ("@triton.jit", "# ---- fabric"))
    for mutant in found(label):
        changed = mutant.source.splitlines()
        fewer = len(lines) - len(changed)  # where an argument of several lines is left out
        assert 0 <= fewer <= mutant.before.count("\n")
        last = mutant.line + mutant.before.count("\n")
        assert start < mutant.line <= last <= end
        assert changed[: mutant.line - 1] == lines[: mutant.line - 1]
        assert changed[last - fewer :] == lines[last:]
        assert changed[mutant.line - 1 : last - fewer] != lines[mutant.line - 1 : last]


def test_deterministic() -> None:
    assert tuple(mutants(emitted("user op"))) == found("user op")


def one(label: str, operator: str, text: str) -> SourceMutant:
    return next(m for m in found(label) if m.operator == operator and text in m.site)


@pytest.mark.parametrize(
    ("label", "operator", "text"),
    [
        ("gather, copy engine pull", "drop", "wait_until(counts"),
        ("scatter, SMs push, epilogue", "condition", "count_arrival(counts +"),
        ("gather, SMs pull", "an argument alone", "(rank + 1 + tile // X_FULL_CHUNKS) % NUM_RANKS -> rank + 1 + tile"),
        ("gather, copy engine push", "one off", "signals + X_FULL_ARRIVED + m_segment * X_FULL_CHUNKS + chunk -> "),
        ("scatter, fused push", "arguments exchanged", "signal, call"),
        ("gather, library matmul", "drop", "copy_x_full.copy("),
    ],
)
@pytest.mark.quick(2)
def test_bugs_are_killed_by_a_run(label: str, operator: str, text: str) -> None:
    mutant = next(
        mutant
        for mutant in found(label)
        if mutant.operator == operator and text in f"{mutant.before} -> {mutant.after}"
    )
    assert JudgeSource(emitted(label), subject(label))(mutant).killed


def replaced(label: str, before: str, after: str) -> SourceMutant:
    source = emitted(label)
    assert before in source
    return SourceMutant("planted", 1, before, after, source.replace(before, after, 1))


XCHG = 'tl.atomic_xchg(signal, call, sem="release", scope="sys")'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "killed", "by"),
    [
        (XCHG, f"{XCHG}; {XCHG}", False, SAME_ACCESSES),  # the word is what it was
        ("call = tl.load(epoch)", "program_barrier(); call = tl.load(epoch)", False, SAME_ACCESSES),
        ("def notify(signal, call):", "def notify(signal, call, more: tl.constexpr = 0):", False, SAME_ACCESSES),
        # a count in front of it has a barrier: nobody shows that from runs
        ("    program_barrier()  # one thread releases", "    # one thread releases", False, ""),
        ('sem="acquire"', 'sem="relaxed"', True, "Race"),
    ],
)
def test_what_survives_is_equivalent_if_it_orders_the_same(before: str, after: str, killed: bool, by: str) -> None:
    label = "all-reduce, in place"
    verdict = JudgeSource(emitted(label), subject(label))(replaced(label, before, after))
    assert (verdict.killed, verdict.by) == (killed, by), verdict


def test_weakened_semantics_are_what_they_say() -> None:
    changes = {(m.before, m.after) for m in found("scatter, SMs push, epilogue") if m.operator == "weaker"}
    assert changes >= {
        ('"acquire"', '"relaxed"'),
        ('"release"', '"relaxed"'),
        ('"acq_rel"', '"acquire"'),
        ('"acq_rel"', '"release"'),
        ('"acq_rel"', '"relaxed"'),
        ('"sys"', '"gpu"'),
    }


HAND_WRITTEN = """
import triton
import triton.language as tl

@triton.jit
def unused(word):
    tl.atomic_add(word, 1, sem="release", scope="sys")

@triton.jit
def raise_it(word):  # Größe
    tl.debug_barrier()
    tl.atomic_xchg(word, 1, sem="release", scope="sys")

class Op:
    INPUTS = {}
    def __call__(self):
        self.fabric.main().launch(raise_it, (1,), self.word)

class Fabric:
    def launch(self):
        self.stream.copy(1, 2)
"""


def test_hand_written_source() -> None:
    """Functions that no launch reaches and other classes are left alone; text before a place may be of any script."""
    mutated = list(mutants(HAND_WRITTEN))
    assert {mutant.line for mutant in mutated} == {11, 12, 17}
    assert any('sem="relaxed", scope="sys")\n\nclass Op' in mutant.source for mutant in mutated)


@pytest.mark.parametrize("source", ["def f(:", "x = 1\n", HAND_WRITTEN + HAND_WRITTEN])
def test_no_host_class(source: str) -> None:
    with pytest.raises(NoHostClass):
        list(mutants(source))
