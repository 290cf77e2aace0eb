"""Inline assembly of published kernels: what is read, what each instruction computes, what threads do to each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.emulator import assembly_kernels as kernels
from tests.emulator.race_scenarios import INT, SEEDS, clean, find, racy, symmetric, zeros
from tilelink.compat.dialects.symm_mem import symmetric_memory
from tilelink.emulator import NarrowScope, World
from tilelink.emulator.assembly import Steps, UnknownInstruction, program
from tilelink.emulator.assembly.lanes import Lanes
from tilelink.emulator.assembly.memory import Who
from tilelink.emulator.errors import Deadlock, ThreadsDiffer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.emulator.race_scenarios import Scenario

MACHINE = World(1).machine


def computed(text: str, *operands: list[int]) -> list[int]:
    """`$0` of each lane."""
    bits = [np.array(one, np.int64).view(np.uint64) for one in operands]
    count = bits[0].size
    lanes = Lanes(MACHINE, program(text), [np.zeros(count, np.uint64), *bits], np.ones(count, bool), Who.ELEMENTS)
    MACHINE.scheduler.spawn(MACHINE.new_task(0, "lanes"), lanes.run)
    MACHINE.scheduler.run()
    return lanes.operand(0).tolist()  # type: ignore[no-any-return]


# the text


@pytest.mark.parametrize(
    ("text", "statement", "line"),
    [
        ("mov.u32 $0, 1;\npopc.b32 $0, $1;", "popc.b32 $0, $1", 2),
        ("add.u32 $0, tmp, 1;", "add.u32 $0, tmp, 1 (no register tmp is declared)", 1),
        ("/* two\nlines */ ld.shared.u32 $0, [$1];", "ld.shared.u32 $0, [$1]", 2),
        ("bra nowhere;", "bra nowhere", 1),
        ("bar.sync 1, 64;", "bar.sync 1, 64", 1),
        ("l: l: mov.u32 $0, 1;", "a second label l", 1),
        (".reg .u32 a; .reg .u32 a;", "a second register a", 1),
        ("atom.global.u32 $0, [$1], 1;", "atom.global.u32 $0, [$1], 1", 1),
        ("st.acquire.sys.global.u32 [$1], 1;", "st.acquire.sys.global.u32 [$1], 1", 1),
        ("mul.hi.u32 $0, $1, $2;", "mul.hi.u32 $0, $1, $2", 1),
        ("ld.global.v2.u32 {$0}, [$1];", "ld.global.v2.u32 {$0}, [$1]", 1),
        ("shfl.sync.bfly.b32 $0, $1, 1, 31, -1;", "shfl.sync.bfly.b32 $0, $1, 1, 31, -1", 1),
    ],
)
def test_what_is_not_known_is_named_with_its_line(text: str, statement: str, line: int) -> None:
    with pytest.raises(UnknownInstruction) as caught:
        program(text)
    assert (caught.value.statement, caught.value.line) == (statement, line)


def test_labels_guards_and_vectors() -> None:
    steps = program("{ .reg .pred %p<2>; // none\n a: @!%p1 ld.global.v2.b32 {$0, $1}, [$2 + 0x10]; @%p0 bra a; }")
    assert isinstance(steps, Steps)
    load, jump = steps.program.instructions
    assert (load.guard, load.negated, load.line) == ("%p1", True, 2)
    assert (jump.guard, jump.negated, steps.program.labels, steps.program.loops) == ("%p0", False, {"a": 0}, True)


# computations

WIDTHS = st.sampled_from([32, 64])
OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "min": min,
    "max": max,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(OPERATIONS)), st.sampled_from("us"), WIDTHS, st.data())
def test_integers_are_those_of_their_type(operation: str, kind: str, width: int, data: st.DataObject) -> None:
    low, high = (0, (1 << width) - 1) if kind == "u" else (-(1 << width - 1), (1 << width - 1) - 1)
    values = [data.draw(st.lists(st.integers(low, high), min_size=3, max_size=3)) for _ in range(2)]
    given_bits = [[value - (1 << 64) if value >= 1 << 63 else value for value in lanes] for lanes in values]
    found = computed(f"{operation}.{kind}{width} $0, $1, $2;", *given_bits)
    mask = (1 << width) - 1
    assert [bits & mask for bits in found] == [OPERATIONS[operation](a, b) & mask for a, b in zip(*values, strict=True)]


@pytest.mark.parametrize(
    ("text", "operands", "wanted"),
    [
        ("shr.s32 $0, $1, 40;", [-8], 2**64 - 1),
        ("shl.b32 $0, $1, 32;", [1], 0),
        ("cvt.s64.s32 $0, $1;", [0xFFFF_FFFF], 2**64 - 1),
        ("cvt.rzi.s32.f32 $0, $1;", [0xC020_0000], 2**64 - 2),  # -2.5
        ("cvt.rn.f32.u32 $0, $1;", [3], 0x4040_0000),
        ("add.f32 $0, $1, 0f3F800000;", [0x3F80_0000], 0x4000_0000),
        ("mul.wide.u32 $0, $1, $1;", [0xFFFF_FFFF], 0xFFFF_FFFE_0000_0001),
        ("mad.lo.s32 $0, $1, 3, 4;", [-2], 2**64 - 2),
        ("{.reg .b32 a, b; mov.b64 {a, b}, $1; mov.b64 $0, {b, a};}", [0x0000_0002_0000_0001], 0x0000_0001_0000_0002),
        ("{.reg .pred p; setp.lt.s32 p, $1, 0; selp.b32 $0, 7, 9, p;}", [-1], 7),
        ("{.reg .pred p, q; setp.ge.u32 p, $1, 4; setp.eq.and.u32 q, $1, 5, p; selp.u32 $0, 1, 0, q;}", [5], 1),
        ("div.s32 $0, $1, 4;", [-9], 2**64 - 2),
        ("{.reg .u32 i; mov.u32 i, 0; go: add.u32 i, i, $1; setp.lt.u32 p, i, 20; @p bra go; mov.u32 $0, i;}", [6], 24),
    ],
)
def test_computations(text: str, operands: list[int], wanted: int) -> None:
    text = text.replace(".reg .u32 i;", ".reg .u32 i; .reg .pred p;")
    assert computed(text, *([one] for one in operands)) == [wanted]


def test_lanes_take_branches_of_their_own() -> None:
    text = "{.reg .pred p; again: setp.ge.u32 p, $0, $1; @p bra end; add.u32 $0, $0, 3; bra again; end:}"
    assert computed(text, [0, 1, 7, 9]) == [0, 3, 9, 9]


# threads


def meetings(ranks: int = 2, /, **planted: str | bool) -> Scenario:
    def scenario(world: World) -> None:
        handles = []
        for fabric in world.fabrics:
            symm = symmetric_memory(fabric)
            handles.append((symm, symm.empty(64, dtype=INT)))
        for rank, (symm, buffer) in enumerate(handles):
            handle = symm.rendezvous(buffer)
            for call in range(2):
                with symm.launches():
                    symm.copy(buffer, torch.full((64,), 10 * rank + call, dtype=INT))
                    tables = handle.buffer_ptrs_dev, handle.signal_pad_ptrs_dev
                    kernels.read_next[(1,)](*tables, zeros(), rank, RANKS=ranks, **{"FORM": "blocks", **planted})

    return scenario


@pytest.mark.parametrize("form", ["blocks", "threads"])
def test_the_barrier_of_published_kernels(form: str) -> None:
    clean(meetings(FORM=form))


def test_of_four_ranks() -> None:
    assert find(meetings(4), num_ranks=4) is None


@pytest.mark.parametrize("planted", [{"AFTER": False}, {"BEFORE": False}, {"FORM": "threads", "AFTER": False}])
def test_a_barrier_that_orders_too_little(planted: dict[str, str | bool]) -> None:
    assert all(find(meetings(2, **planted), seed=seed) is not None for seed in SEEDS)


def test_a_barrier_of_one_gpu() -> None:
    assert isinstance(find(meetings(SCOPE="gpu")), NarrowScope)


def test_without_its_guard_each_word_is_raised_by_many_threads() -> None:
    with pytest.raises(Deadlock):
        find(meetings(ALL=True))


def exchange(push: object, *arguments: object, order: str = "acquire.sys", fence: str = "") -> Scenario:
    """Rank 0 pushes 5 into the buffer of rank 1 and tells so by the word; rank 1 polls and reads."""

    def scenario(world: World) -> None:
        buffers, words = symmetric(world, 64, 2)
        out = zeros()
        world.fabrics[0].main().launch(push, (1,), buffers[1], words[1], 5, *arguments)
        options = {"ORDER": order, "FENCE": fence}
        world.fabrics[1].main().launch(kernels.await_and_read, (1,), buffers[1], words[1], 5, out, **options)
        world.run()
        assert out[:4].tolist() == [5] * 4

    return scenario


FENCE = "fence.acq_rel.sys;"


@pytest.mark.parametrize(
    "scenario",
    [
        exchange(kernels.publish, "release"),
        exchange(kernels.push_and_tell, FENCE, True, "relaxed"),
        exchange(kernels.push_and_tell, "", True, "release"),
        exchange(kernels.count_and_tell),
        exchange(kernels.count_and_tell, order="relaxed.sys", fence=FENCE),
        exchange(kernels.count_and_tell, order="volatile", fence="membar.sys;"),
    ],
)
def test_orders_of_loads_stores_and_fences(scenario: Scenario) -> None:
    clean(scenario)


@pytest.mark.parametrize(
    ("scenario", "rules"),
    [
        (exchange(kernels.publish, "relaxed"), "semantics"),
        (exchange(kernels.push_and_tell, "", True, "relaxed"), "semantics"),
        (exchange(kernels.push_and_tell, FENCE, False, "relaxed"), "cta_barriers"),
        (exchange(kernels.push_and_tell, "fence.acq_rel.gpu;", True, "relaxed"), "semantics scopes"),
        (exchange(kernels.count_and_tell, order="relaxed.sys"), "semantics"),
        (exchange(kernels.count_and_tell, order="relaxed.sys", fence="fence.acq_rel.gpu;"), "semantics scopes"),
    ],
)
def test_orders_that_are_missing(scenario: Scenario, rules: str) -> None:
    racy(scenario, *rules.split())


@pytest.mark.parametrize("num_warps", [1, 4])
def test_what_every_thread_does_happens_as_often(num_warps: int) -> None:
    word = zeros(1)
    world = World(1)
    world.fabrics[0].main().launch(kernels.add_by_all, (3,), word, num_warps=num_warps)
    world.run()
    assert word.item() == 3 * 32 * num_warps


@pytest.mark.parametrize("count", [64, 8])
def test_threads_with_places_of_their_own(count: int) -> None:
    x, out = torch.arange(64, dtype=INT), torch.full((64,), -1, dtype=INT)
    world = World(1)
    world.fabrics[0].main().launch(kernels.copy_by_threads, (1,), x, out, COUNT=count, num_warps=2)
    world.run()
    assert out.tolist() == [*range(count), *[-1] * (64 - count)]


def test_multimem() -> None:
    world = World(3, multicast=True)
    outs = []
    for rank, fabric in enumerate(world.fabrics):
        symm = symmetric_memory(fabric)
        x = symm.empty(32, dtype=torch.bfloat16)
        handle = symm.rendezvous(x)
        x.copy_(torch.arange(32) + rank)
        outs.append(torch.empty(16, dtype=torch.int32))
        with symm.launches():
            kernels.sum_by_switch[(1,)](handle.multicast_ptr, outs[-1], COUNT=16)
    # host code of all ranks fills the buffers before any kernel runs
    world.run()
    wanted = (3 * torch.arange(32) + 3).to(torch.bfloat16)
    assert all(torch.equal(out.view(torch.bfloat16), wanted) for out in outs)


def test_what_the_first_thread_does() -> None:
    out = zeros(3)
    world = World(1)
    world.fabrics[0].main().launch(kernels.by_first_thread, (1,), out)
    world.run()
    assert out.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("else", "it has an `else`"),
        ("while", "differs between threads"),
        ("assignment", "last is set in it"),
        ("block", "is given another one in each thread"),
        ("scalar", "is given other operands in each thread"),
        ("barrier", "in a branch that some threads take only"),
        ("block in a branch", "in a branch that some threads take only"),
        ("atomic", "in a branch without thread 0"),
        ("bar.sync", "is reached by some threads only"),
        ("elements", "tells threads apart"),
    ],
)
def test_what_has_no_meaning_for_a_program_that_is_run_as_one(what: str, reason: str) -> None:
    world = World(1)
    world.fabrics[0].main().launch(kernels.misuse, (1,), zeros(), zeros(), WHAT=what)
    with pytest.raises(ThreadsDiffer, match=reason):
        world.run()
