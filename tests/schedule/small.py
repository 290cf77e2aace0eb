"""Small schedules for what the ten operators do not use: values that streams copy, roles of two engines at once, libraries,
sizes with names."""

from __future__ import annotations

from tests.schedule.operators import Operator, matrix
from tests.schedule.references import Tensors
from tilelink.schedule.index import Index, Number, call, rank
from tilelink.schedule.memory import Buffer, Dim, Memory, Region, Signal
from tilelink.schedule.roles import CopyEngine, Host, Launch, MeshAxis, Phase, Role, Schedule, Sms, Who
from tilelink.schedule.steps import Call, Compute, For, Load, Move, Notify, Store, Wait

SIZE, ROWS = 2, 16
tile, m, n = Index("tile"), Index("m"), Index("n")
PEER: Number = (rank + 1) % SIZE
RANKS = (MeshAxis("ranks", SIZE),)
PART = Region("x", (0, 0), (ROWS, ROWS))
THERE = Region("there", (0, 0), (ROWS, ROWS), PEER)
HERE = Region("there", (0, 0), (ROWS, ROWS))
BUFFERS = (matrix("x", Memory.INPUT, ROWS, ROWS), matrix("there", Memory.SYMMETRIC, ROWS, ROWS))
OUT = matrix("out", Memory.OUTPUT, ROWS, ROWS)


def shifted(x: Tensors) -> Tensors:
    return [x[r - 1] for r in range(SIZE)]


def taken() -> Phase:
    """What has arrived goes to the caller, and its sender is told."""
    body = (
        Wait("arrived", (0,), call * 2, ("there",)),
        Load("item", HERE),
        Store("item", Region("out", (0, 0), (ROWS, ROWS))),
        Notify("free", (0,), PEER, call),
    )
    return Phase(1, body)


def two_engines(stream_to: Number = call * 2) -> Operator:
    """A copy engine sends while SMs take: both roles are in one launch, so that a launch of its own ends the call."""
    send = (Wait("free", (0,), call - 1), Move((PART,), (THERE,), Notify("arrived", (0,), PEER, stream_to)))
    roles = (Role("send", CopyEngine(), (Phase(1, send),)), Role("take", Sms(1), (taken(),)))
    signals = (Signal("arrived", (1,)), Signal("free", (1,)))
    return Operator(Schedule("two_engines", RANKS, (*BUFFERS, OUT), signals, (Launch("main", roles),)), shifted)


def by_library() -> Operator:
    """A product by a library between two copies."""
    square = Region("product", (0, 0), (ROWS, ROWS))
    product_of = Call("matmul", (square,), (PART, PART))
    back = Move((square,), (Region("out", (0, 0), (ROWS, ROWS)),))
    roles = (
        Launch("main", (Role("multiply", Host(), (Phase(1, (product_of,)),)),)),
        Launch("main", (Role("copy_out", CopyEngine(), (Phase(1, (back,)),)),)),
    )
    local = matrix("product", Memory.LOCAL, ROWS, ROWS)
    schedule = Schedule("by_library", RANKS, (BUFFERS[0], local, OUT), (), roles)
    return Operator(schedule, lambda x: [one @ one for one in x])


def first_and_named(size: int = 2) -> Operator:
    """Sizes have names, a phase is the first program's, and columns are ragged at both ends of a region."""
    rows, cols, tile_m = Index("ROWS"), Index("COLS"), Index("TILE_M")
    dims = (Dim("ROWS", 48), Dim("COLS", 24), Dim("TILE_M", 16))
    region = Region("x", (tile * tile_m, -4), (tile_m, 32))
    body = (
        Load("a", region, fill=7.0),
        Compute(("a",), "add", ("a", "a")),
        Store("a", Region("out", region.start, region.extent)),
    )
    first = Phase(
        1, (Load("b", Region("x", (0, 0), (1, 16))), Store("b", Region("mark", (0, 0), (1, 16)))), who=Who.FIRST
    )
    role = Role("double", Sms(2), (first, Phase(3, body)))
    buffers = (
        Buffer("x", Memory.INPUT, (rows, cols), "float32"),
        Buffer("mark", Memory.LOCAL, (1, 16), "float32"),
        Buffer("out", Memory.OUTPUT, (rows, cols), "float32"),
    )
    schedule = Schedule("named", (MeshAxis("ranks", size),), buffers, (), (Launch("main", (role,)),), dims)
    return Operator(schedule, lambda x: [2 * one for one in x])


def in_place_rounds(size: int = 2) -> Operator:
    """Each round of a loop adds to what the round before has stored: a barrier a round."""
    r = Index("r")
    body = (
        Load("old", Region("sums", (0, 0), (16, 16))),
        Load("more", Region("x", (r * 16, 0), (16, 16))),
        Compute(("old",), "add", ("old", "more")),
        Store("old", Region("sums", (0, 0), (16, 16))),
    )
    zero = (Compute(("zero",), "zeros", shape=(16, 16)), Store("zero", Region("sums", (0, 0), (16, 16))))
    out = (Load("all", Region("sums", (0, 0), (16, 16))), Store("all", Region("out", (0, 0), (16, 16))))
    role = Role("add_up", Sms(1), (Phase(1, (*zero, For("r", 4, body), *out)),))
    buffers = (matrix("x", Memory.INPUT, 64, 16), matrix("sums", Memory.LOCAL, 16, 16), OUT)
    schedule = Schedule("in_place", (MeshAxis("ranks", size),), buffers, (), (Launch("main", (role,)),))
    return Operator(schedule, lambda x: [one.view(4, 16, 16).sum(0) for one in x])


SMALL = {one.__name__: one for one in (two_engines, by_library, first_and_named, in_place_rounds)}
