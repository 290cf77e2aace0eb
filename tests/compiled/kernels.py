"""Kernels with an order that nobody sees, and with one that somebody may see."""

import triton
import triton.language as tl


@triton.jit
def place(ids, table, other, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(table + tl.load(ids + at), at)


@triton.jit
def filled_in_loop(ids, table, other, BLOCK: tl.constexpr):
    for first in range(0, 4 * BLOCK, BLOCK):
        at = first + tl.arange(0, BLOCK)
        tl.store(table + at, tl.load(ids + at))


@triton.jit
def filled_from_where_data_say(ids, table, other, BLOCK: tl.constexpr):
    for first in range(tl.load(ids), 4 * BLOCK, BLOCK):
        tl.store(table + first + tl.arange(0, BLOCK), first)


@triton.jit
def by_branch(ids, table, other, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    if tl.program_id(0) == 0:
        there = tl.load(ids + at)
        tl.store(other + there, there + at)
    else:
        for number in range(4):
            there = at + number * BLOCK
            tl.store(table + there, there + at)


@triton.jit
def counted_in_loop(ids, table, other, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    for _ in range(4):
        tl.atomic_add(table, tl.sum(tl.load(ids + at)))


@triton.jit
def place_in_loop(ids, table, other, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    ahead = table
    for _ in range(4):
        tl.store(ahead + tl.load(ids + at), at)
        ahead += BLOCK


@triton.jit
def counted(ids, table, other, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.atomic_add(table, tl.sum(tl.load(ids + at)))


@triton.jit
def stored_by(table, at):
    tl.store(table + at, at)


@triton.jit
def place_elsewhere(ids, table, other, BLOCK: tl.constexpr):
    stored_by(table, tl.load(ids + tl.arange(0, BLOCK)))


@triton.jit
def place_elsewhere_in_loop(ids, table, other, BLOCK: tl.constexpr):
    for number in range(4):
        stored_by(table, tl.load(ids + number + tl.arange(0, BLOCK)))


@triton.jit
def read_back(ids, table, other, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(table + tl.load(ids + at), at)
    tl.store(other + at, tl.load(table + at))


@triton.jit
def read_back_elsewhere(ids, table, other, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    stored_by(table, tl.load(ids + at))
    tl.store(other + at, tl.load(table + at))


@triton.jit
def stored_twice(ids, table, other, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(table + at, tl.zeros((BLOCK,), tl.int32))
    tl.store(table + tl.load(ids + at), at)


@triton.jit
def counted_and_stored(ids, table, other, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(table + tl.load(ids + at), at)
    tl.atomic_add(table, 1)


@triton.jit
def numbered(ids, table, other, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    number = tl.atomic_add(table, 1)
    tl.store(other + tl.load(ids + at), at + number)


@triton.jit
def by_address(ids, table, other, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(tl.load(ids).to(tl.int64).to(tl.pointer_type(tl.int32)) + at, at)


@triton.jit
def either(ids, table, other, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    into = table
    if tl.load(ids) > 0:
        into = other
    tl.store(into + at, tl.load(other + at))
