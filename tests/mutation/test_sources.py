"""Mutators of source: none is dead, mutants parse, lines keep their numbers, and nothing else is touched."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache

import pytest

import lowering
from tests.mutation.subjects import SUBJECTS, subject
from tilelink.mutation.errors import NoHostClass
from tilelink.mutation.judges import judge_source_by_run
from tilelink.mutation.mutant import SourceMutant
from tilelink.mutation.sources import mutants, source_operators


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
def test_only_the_named_lines_change(label: str) -> None:
    lines = emitted(label).splitlines()
    start, end = (emitted(label)[: emitted(label).index(mark)].count("\n") for mark in ("@triton.jit", "# ---- fabric"))
    for mutant in found(label):
        changed = mutant.source.splitlines()
        assert len(changed) == len(lines)
        last = mutant.line + mutant.before.count("\n")
        assert start < mutant.line <= last <= end
        assert changed[: mutant.line - 1] == lines[: mutant.line - 1]
        assert changed[last:] == lines[last:]
        assert changed[mutant.line - 1 : last] != lines[mutant.line - 1 : last]


def test_deterministic() -> None:
    assert tuple(mutants(emitted("user op"))) == found("user op")


def one(label: str, operator: str, text: str) -> SourceMutant:
    return next(m for m in found(label) if m.operator == operator and text in m.site)


@pytest.mark.parametrize(
    ("label", "operator", "text"),
    [
        ("gather, copy engine pull", "drop wait", "wait_count(counts"),
        ("scatter, SMs push, epilogue", "drop raise", "count_arrival(counts +"),
        ("gather, SMs pull", "another peer", "(rank + 1 + step) % NUM_RANKS"),
        ("gather, copy engine push", "slot", "X_FULL_ARRIVED.value + rank * X_FULL_CHUNKS.value + chunk -> "),
        ("scatter, fused push", "condition", "count_arrival(counts + m_segment * Y_PARTS_CHUNKS + chunk... -> False"),
        ("gather, library matmul", "drop signal copy", "self.copy_x_full.copy(arrived"),
    ],
)
@pytest.mark.quick(2)
def test_bugs_are_killed_by_a_run(label: str, operator: str, text: str) -> None:
    assert judge_source_by_run(subject(label))(one(label, operator, text)).killed


def test_weakened_semantics_are_what_they_say() -> None:
    changes = {(m.before, m.after) for m in found("scatter, SMs push, epilogue") if m.operator == "weaker semantics"}
    assert changes == {
        ('"acquire"', '"relaxed"'),
        ('"release"', '"relaxed"'),
        ('"acq_rel"', '"acquire"'),
        ('"acq_rel"', '"release"'),
        ('"acq_rel"', '"relaxed"'),
    }


def test_a_signalled_tile_is_stored_asynchronously() -> None:
    mutant = one("scatter, fused push", "asynchronous store", "tl.make_tensor_descriptor")
    judge = judge_source_by_run(subject("scatter, fused push"))
    verdict = judge(mutant)
    # what it stores is right: only who knows about asynchronous stores can object
    assert verdict.by != "result"
    assert verdict.by != "host"


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
