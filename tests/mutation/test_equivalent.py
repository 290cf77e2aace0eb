"""Rules of equivalence: each is used, none claims what a run refutes, and near misses are not claimed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest

import lowering
from tests.mutation.subjects import SUBJECTS, subject
from tilelink.ir.schedule import Schedule
from tilelink.mutation import schedules, sources
from tilelink.mutation.equivalent import prove_schedule, prove_source, reasons
from tilelink.mutation.judges import judge_schedule_by_run, judge_source_by_run
from tilelink.mutation.mutant import ScheduleMutant, SourceMutant
from tilelink.mutation.runner import drawn


@cache
def source_mutants(label: str) -> tuple[SourceMutant, ...]:
    return tuple(sources.mutants(lowering.emit(subject(label))))


RICH = (  # in rules: what these do not use is looked for in all others
    "gather, copy engine push",
    "gather, copy engine pull",
    "gather, SMs pull",
    "gather, fused pull, ragged",
    "gather, SMs push, halves",
    "gather, library matmul",
    "scatter, SMs push, epilogue",
    "scatter, library matmul",
)


def rules_used() -> Iterator[str]:
    for label in dict.fromkeys([*RICH, *SUBJECTS]):
        prove = prove_schedule(subject(label))
        yield from (prove(mutant) for mutant in schedules.mutants(subject(label)))
        prove_text = prove_source(lowering.emit(subject(label)), subject(label))
        yield from (f"source: {prove_text(mutant)}" for mutant in source_mutants(label))


@pytest.mark.slow
def test_every_rule_is_used() -> None:
    unused = set(reasons())
    for rule in rules_used():
        unused.discard(rule)
        if not unused:
            break
    assert unused == set()


@pytest.mark.slow
@pytest.mark.parametrize("label", SUBJECTS)
def test_no_run_refutes_a_rule(label: str) -> None:
    prove = prove_schedule(subject(label))
    sample = drawn(tuple(schedules.mutants(subject(label))), 80, seed=1)
    for mutant in [mutant for mutant in sample if prove(mutant) not in ("", "same text")][:12]:
        verdict = judge_schedule_by_run(mutant)
        assert not verdict.killed, (mutant.operator, mutant.site, verdict)


@pytest.mark.slow
@pytest.mark.parametrize("label", ["gather, copy engine pull", "scatter, SMs push, epilogue", "scatter, fused push"])
def test_no_run_refutes_a_rule_of_sources(label: str) -> None:
    prove = prove_source(lowering.emit(subject(label)), subject(label))
    claimed = tuple(mutant for mutant in source_mutants(label) if prove(mutant))
    for mutant in drawn(claimed, 12, seed=0):
        verdict = judge_source_by_run(subject(label))(mutant)
        assert not verdict.killed, (mutant.operator, mutant.site, verdict)


def rule(label: str, operator: str, text: str) -> str:
    found = schedules.mutants(subject(label))
    return prove_schedule(subject(label))(next(m for m in found if m.operator == operator and text in m.site))


@pytest.mark.parametrize(
    ("label", "operator", "text", "expected"),
    [
        ("gather, SMs pull", "duplicate wait", "", "twice in a row"),
        ("gather, SMs pull", "drop wait", "", ""),
        ("gather, no atomics", "duplicate begin", "", ""),
        ("gather, SMs pull", "duplicate begin", "AwaitPeers", "twice in a row"),
        ("gather, SMs pull", "drop begin", "AwaitPeers", ""),
        ("gather, SMs pull", "within a kernel", "Finish", "by a launch of its own"),
        ("gather, copy engine push", "within a kernel", "Finish", "by a launch of its own"),
        ("gather, SMs pull", "wait fence", "", ""),
        ("scatter, fused push", "wait fence", "", "fence to spare"),
        ("gather, copy engine push", "ranks in the other direction", "role out, order, ranks", "order of tiles"),
        # an order that starts with the own rank serves one peer too few
        ("gather, copy engine push", "ranks from another one", "exchange x_full", ""),
        ("scatter, fused push", "duplicate compute", "y_kernel", ""),
        ("scatter, fused push", "duplicate compute", "out_kernel", ""),  # it also finishes the call
        ("gather, copy engine push", "duplicate compute", "out_kernel", ""),  # so does this one
        ("gather, library matmul", "duplicate compute", "LibraryGemm", "twice in a row"),
        ("gather, copy engine push", "copies that tell their end", "", ""),
        ("all-reduce, library", "duplicate compute", "LibraryCollective", ""),
        ("gather, SMs pull", "communication programs", "2 -> 1", ""),
        ("scatter, SMs push, epilogue", "communication programs", "2 -> 1", "programs that push"),
        ("gather, no atomics", "finish by copy", "", ""),
        ("all-reduce, in a pool", "duplicate wait", "AwaitPlaces", "twice in a row"),
        ("all-reduce, in a pool", "drop wait", "AwaitPlaces", ""),
        ("all-reduce, in a pool", "duplicate copy", "TellPlace", "twice in a row"),
        ("queue", "communication in another kernel", "before it", ""),  # its programs wait until items are taken
        ("gather, SMs pull", "machine sms", "8 -> 3", ""),
        ("gather, SMs pull", "machine sms", "8 -> 4", "fewer sms are enough"),
    ],
)
@pytest.mark.quick(10)
def test_what_is_claimed(label: str, operator: str, text: str, expected: str) -> None:
    assert rule(label, operator, text) == expected


def test_signals_may_be_renamed_but_not_shared() -> None:
    original = subject("scatter, SMs push, epilogue")
    done, count, arrived, sent, ended = original.signals
    prove = prove_schedule(original)

    def claimed(*firsts: int) -> str:
        signals = tuple(replace(s, first=f) for s, f in zip(original.signals, (*firsts, ended.first), strict=True))
        return prove(ScheduleMutant("by hand", "", replace(original, signals=signals)))

    assert [signal.first for signal in (done, count, arrived, sent, ended)] == [0, 0, 1, 4, 8]
    assert claimed(4, 0, 0, 4) == "signals renamed"
    assert claimed(0, 4, 1, 0) == "signals renamed"
    assert claimed(2, 0, 0, 4) == ""  # done shares words with arrived
    assert claimed(0, 0, 2, 4) == ""  # the last word is not allocated


@pytest.mark.slow
def test_the_original_is_equivalent_to_itself() -> None:
    for label in SUBJECTS:
        stored = Schedule.from_json(subject(label).to_json())
        assert prove_schedule(subject(label))(ScheduleMutant("nothing", "", stored)) == "same schedule"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("label", "operator", "text", "expected"),
    [
        # only programs count, so gpu scope is enough for the counts; not for the peers' epochs, and never cta scope
        ("scatter, fused push", "narrower scope", "count_arrival gpu", "gpu scope inside one gpu"),
        ("scatter, fused push", "narrower scope", "count_arrival cta", ""),
        ("scatter, fused push", "narrower scope", "wait_epochs gpu", ""),
        # peers count at that word behind a signal of this rank where calls end together, and at any time elsewhere
        ("gather, copy engine pull", "narrower scope", "next_call gpu", "scope of what signals order"),
        ("all-reduce, in place", "narrower scope", "next_call cta", "scope of what signals order"),
        ("all-reduce, in place", "narrower scope", "wait_count gpu", ""),
        ("scatter, fused push", "narrower scope", "next_call gpu", ""),
        # it is also what awaits the peers, but only where calls end together
        ("gather, SMs pull", "narrower scope", "wait_count gpu", "gpu scope inside one gpu"),
        ("gather, SMs pull", "narrower scope", "wait_count cta", ""),
        ("gather, SMs pull", "duplicate store", "next_call tl.store(epoch", "epochs of two"),
        ("scatter, pieces", "duplicate store", "next_call gl.store(epoch", "epochs of two"),
        ("scatter, pieces", "swap raise", "next_call gl.store(epoch", "stores of one program to two tensors"),
        # slots of a queue are counted by the number of the call
        ("queue", "duplicate store", "next_call tl.store(epoch", ""),
        # here the copy engine waits for them
        ("MLP", "narrower scope", "count_up gpu", ""),
        ("scatter, fused push", "weaker semantics", "count_arrival release", ""),
        ("gather, SMs pull", "comparison", "wait_count !=", "never passes"),
        ("gather, SMs pull", "comparison", "wait_epoch !=", ""),
        ("scatter, fused pull", "duplicate raise", "notify", "twice in a row"),
        # in `close_call`, by way of `count_at_peer`, the branch has had a barrier; where tiles count as well, they have not
        ("gather, SMs pull", "drop barrier", "count_at_peers", "barrier after a barrier"),
        ("MLP", "drop barrier", "count_up", ""),
        ("gather, SMs pull", "duplicate raise", "count_arrival", ""),
        # the one launch of a call, done twice, is a second call; not so where other launches belong to it
        ("scatter, SMs push, epilogue", "duplicate launch", "main.launch", "one call more"),
        ("scatter, fused push", "duplicate launch", "main.launch", ""),
        # `done` says that nothing here is read or written by peers any more, and only in place that copies have arrived
        (
            "gather, copy engine push",
            "swap wait",
            "close_call_after_copies await_copies",
            "told before the last copies",
        ),
        # a second word that a stream has nothing left to copy may come when the call has ended on the first
        ("gather, copy engine push", "duplicate stream write", "copy_x_full.write", ""),
        ("gather, copy engine pull", "duplicate stream write", "write(arrived", "twice in a row"),
    ],
)
def test_what_is_claimed_of_sources(label: str, operator: str, text: str, expected: str) -> None:
    function, _, after = text.partition(" ")
    source = lowering.emit(subject(label)).splitlines()
    prove = prove_source(lowering.emit(subject(label)), subject(label))
    found = []
    for mutant in source_mutants(label):
        if mutant.operator != operator or after not in mutant.after:
            continue
        above = [line for line in source[: mutant.line] if line.startswith("def ")]
        if above[-1].startswith(f"def {function}(") or function in mutant.before:
            found.append(prove(mutant))
    assert found
    assert set(found) == {expected}


def test_checks_of_the_host_may_change_places() -> None:
    label = "gather, SMs pull"
    prove = prove_source(lowering.emit(subject(label)), subject(label))
    setup = [mutant for mutant in source_mutants(label) if "fabric.agree" in mutant.before + mutant.after]
    swapped = {prove(mutant) for mutant in setup if mutant.operator == "swap setup" and "raise" in mutant.before}
    assert swapped == {"refused either way"}
    assert {prove(mutant) for mutant in setup if mutant.operator == "drop setup"} == {""}


@pytest.mark.parametrize(
    ("operator", "before", "after", "rule"),
    [
        ("drop wait", "while cycles() - begun < clocks", "pass", "pace of pieces"),
        ("comparison", "<", "<=", "pace of pieces"),
        ("comparison", "<", "!=", ""),  # the clock may go past it
        ("drop fence", 'gl.inline_asm_elementwise("nanosleep', "pass", "pace of pieces"),
        ("drop fence", "fence_async_shared", "pass", ""),
        ("condition", "MEETS", "True", ""),
        ("condition", "MEETS", "False", "branch that nobody takes"),
        ("rounding", "(left.numel + right.numel) // PLACES", "", "whole places"),
        ("mask", "peers", "None", "pointer of this rank"),
        ("awaited value", "NUM_RANKS - 1", "NUM_RANKS", "branch that nobody takes"),
        ("offset", "there + count", "there", "offset of nothing"),
        ("offset", "signals + ranks * STRIDE", "signals", ""),
        ("drop move", "tma.async_copy_global_to_shared(right_desc, [col", "pass", "branch that nobody takes"),
        ("drop move", "tma.async_copy_global_to_shared(right_desc, [k", "pass", ""),
        ("duplicate move", "tma.async_copy_shared_to_global", "", ""),
        ("swap move", "tma.async_copy_global_to_shared(left_desc", "", "loads in any order"),
        ("swap raise", "mbarrier.expect", "", "loads in any order"),
        ("swap raise", "mbarrier.arrive(turns", "", "turn given later"),
        ("swap raise", "sums = warpgroup_mma_wait", "", ""),
    ],
)
def test_what_changes_nothing_but_time_and_what_no_call_does(operator: str, before: str, after: str, rule: str) -> None:
    label = "scatter, pieces"
    prove = prove_source(lowering.emit(subject(label)), subject(label))
    lines = lowering.emit(subject(label)).splitlines()
    found = [
        mutant
        for mutant in source_mutants(label)
        if mutant.operator == operator
        and mutant.before.strip().startswith(before)
        and after in ("", mutant.after.strip())
        if operator != "comparison" or "cycles()" in lines[mutant.line - 1]
        if operator != "awaited value" or "await_peers(done" in lines[mutant.line - 1]
    ]
    assert found
    assert {prove(mutant) for mutant in found} == {rule}
