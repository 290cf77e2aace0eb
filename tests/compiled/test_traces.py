"""Traces by hand: which pairs may change places, and which accesses need something between them."""

from __future__ import annotations

import numpy as np
import pytest

from tilelink.compiled.events import STORAGE_BITS, Box, Event, Kind
from tilelink.compiled.guards import Regions, unguarded
from tilelink.compiled.mlir import parse, split
from tilelink.compiled.order import matched, misplaced
from tilelink.compiled.ptx import parse_ptx
from tilelink.compiled.ptx_values import EXPRESSIONS, compare, width

WORD, DATA, OUT = 1 << STORAGE_BITS, 2 << STORAGE_BITS, 3 << STORAGE_BITS
SHARED = Regions(frozenset((1, 2)), frozenset((1, 2)))


def event(kind: Kind, where: int | None = None, descriptor: bool = False) -> Event:
    return Event(kind, kind.value, None if where is None else np.asarray(where), descriptor)


WAIT, LOAD, STORE, RAISE = (
    event(Kind.WAIT, WORD),
    event(Kind.LOAD, DATA),
    event(Kind.STORE, OUT),
    event(Kind.RAISE, WORD),
)
BARRIER, FENCE, DRAIN = event(Kind.BARRIER), event(Kind.FENCE), event(Kind.DRAIN)
BULK_LOAD, BULK_STORE = event(Kind.LOAD, DATA, True), event(Kind.STORE, DATA, True)


@pytest.mark.parametrize(
    ("source", "compiled", "wrong"),
    [
        ([WAIT, LOAD], [LOAD, WAIT], 1),
        ([WAIT, STORE], [STORE, WAIT], 1),
        ([STORE, RAISE], [RAISE, STORE], 1),
        ([LOAD, RAISE], [RAISE, LOAD], 1),
        ([WAIT, FENCE, BULK_LOAD], [WAIT, BULK_LOAD, FENCE], 1),
        ([BULK_STORE, DRAIN, RAISE], [BULK_STORE, RAISE, DRAIN], 1),
        ([RAISE, WAIT], [WAIT, RAISE], 0),  # a tile may wait before the one in front of it is counted
        ([LOAD, STORE], [STORE, LOAD], 0),
        ([WAIT, LOAD, LOAD], [WAIT, LOAD], 0),  # a load whose result nobody needs
        ([STORE, RAISE], [STORE], 1),
    ],
)
def test_order(source: list[Event], compiled: list[Event], wrong: int) -> None:
    found = list(misplaced(source, compiled, waits_ahead=True, complete=True, whole=True))
    assert len(found) == wrong


def test_waits_in_front_of_notifies_make_circles() -> None:
    found = list(misplaced([RAISE, WAIT], [WAIT, RAISE], waits_ahead=False, complete=True, whole=True))
    assert "in a circle" in found[0].rule


@pytest.mark.parametrize(
    ("trace", "wrong"),
    [
        ([STORE, BARRIER, RAISE], ""),
        ([STORE, RAISE], "no barrier stands between a store"),
        ([WAIT, BARRIER, LOAD], ""),
        ([WAIT, LOAD], "no barrier stands between a wait"),
        ([WAIT, BARRIER, FENCE, BULK_LOAD], ""),
        ([WAIT, BARRIER, BULK_LOAD], "no proxy fence"),
        ([BULK_STORE, DRAIN, BARRIER, RAISE], ""),
        ([BULK_STORE, BARRIER, RAISE], "is not waited for"),
        ([BULK_STORE, DRAIN, RAISE], "no barrier stands between a store"),
    ],
)
def test_guards(trace: list[Event], wrong: str) -> None:
    found = [one.rule for one in unguarded(trace, SHARED, assembly=True)]
    assert len(found) == bool(wrong) and all(wrong in rule for rule in found)


def test_a_box_covers_what_lies_in_it() -> None:
    box = Box(DATA, 512, 2, 4, 16, 8, 32)
    inside, left, below = DATA + 5 * 512 + 2 * 20, DATA + 5 * 512, DATA + 12 * 512 + 2 * 20
    assert box.covers(np.sort([inside, left, below])).tolist() == [inside]
    one = Event(Kind.LOAD, "tile", box, True)
    assert matched([one], [event(Kind.LOAD, inside, True)], complete=True) == [0]


def test_regions_of_ir() -> None:
    text = """
    module {
      tt.func public @k(%a: !tt.ptr<i32> {tt.divisibility = 16 : i32} loc("a"(#l)), %n: i32) {
        %c0 = arith.constant 0 : i32 loc(#loc1)
        %r:2 = scf.for %i = %c0 to %n step %c0 iter_args(%x = %c0, %y = %n) -> (i32, i32)  : i32 {
          %z = arith.addi %x, %y : i32
          scf.yield %z, %y : i32, i32
        } {tt.flatten}
        scf.if %c0 {
          tt.store %a, %r#1 : !tt.ptr<i32>
        } else {
        }
        tt.return
      }
    }
    """
    function = parse(text)["k"]
    assert function.parameters == [("%a", "!tt.ptr<i32>"), ("%n", "i32")]
    loop, branch, _ = function.body.blocks[0].ops[-3:]
    assert loop.results == ["%r#0", "%r#1"] and loop.regions[0].blocks[0].ops[-1].operands == ["%z", "%y"]
    assert [len(region.blocks[0].ops) for region in branch.regions] == [1, 0]
    assert split("a, tensor<2x3, #b<{c = 1}>>, (d) -> (e, f)") == ["a", "tensor<2x3, #b<{c = 1}>>", "(d) -> (e, f)"]


def test_labels_of_assembly_are_its_own() -> None:
    loop = "{ .reg .pred p; again: mbarrier.try_wait.b64 p, [%r1]; @!p bra.uni again; }"
    text = f".entry kernel(.param .u32 a) .reqntid 128 {{ mov.u32 %r1, {{%r2, %r3}}; {loop} {loop} ret; }}"
    kernel = parse_ptx(text)
    assert kernel.threads == 128 and len(set(kernel.labels)) == 2
    targets = [kernel.labels[str(one.operands[0])] for one in kernel.instructions if one.opcode.startswith("bra")]
    assert targets == [1, 3]
    assert kernel.instructions[0].operands == ("%r1", ("%r2", "%r3"))


@pytest.mark.parametrize(
    ("opcode", "given", "result"),
    [
        ("sub.s32", (3, 5), 0xFFFFFFFE),
        ("shr.s32", (0xFFFFFFFE, 1), 0xFFFFFFFF),
        ("shr.u32", (0xFFFFFFFE, 1), 0x7FFFFFFF),
        ("mul.wide.u16", (40000, 3), 120000),
        ("mul.hi.u32", (1 << 31, 6), 3),
        ("rem.s32", (0xFFFFFFF9, 3), 0xFFFFFFFF),
        ("bfe.s32", (0b110, 1, 2), 0xFFFFFFFF),
        ("cvt.s32.s16", (0xFFFF,), 0xFFFFFFFF),
        ("lop3.b32", (0b1100, 0b1010, 0b0110, 0x96), 0b0000),
        ("prmt.b32", (0x03020100, 0x07060504, 0x5410), 0x05040100),
    ],
)
def test_integers(opcode: str, given: tuple[int, ...], result: int) -> None:
    found = EXPRESSIONS[opcode.partition(".")[0]](opcode, *given)
    assert found is not None and width(opcode, found) == result


def test_comparisons() -> None:
    assert compare("setp.lt.s32", [0xFFFFFFFF, 0]) == 1
    assert compare("setp.lt.u32", [0xFFFFFFFF, 0]) == 0
    assert compare("setp.ne.and.b32", [1, 2, 0]) == 0
    assert compare("setp.lt.f32", [1, 2]) is None and compare("setp.eq.b32", [None, 2]) is None
