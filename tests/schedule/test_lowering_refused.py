"""What has no printed form is refused by name, with what is legal instead."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lowering.steps import errors
from lowering.steps.errors import (
    EngineCannot,
    NameTaken,
    NotContiguousCopy,
    NotPrinted,
    ReservedName,
    SizeKnownOnCall,
    TileOfManyDimensions,
    UnboundedExtent,
    UnknownName,
    UnknownOpOfSteps,
    ValueChangesInLoop,
)
from lowering.steps.file import lower
from tests.schedule.operators import matrix, moe
from tests.schedule.small import HERE, PART, PEER, THERE, two_engines
from tilelink.errors import TileLinkError
from tilelink.ir.enums import Protocol
from tilelink.schedule.index import Index, Number, call, rank
from tilelink.schedule.memory import Access, Buffer, Dim, Memory, Region, Signal, Table
from tilelink.schedule.roles import (
    CopyEngine,
    Engine,
    Host,
    Launch,
    MeshAxis,
    Phase,
    PingPong,
    Role,
    Schedule,
    Sms,
    Who,
)
from tilelink.schedule.steps import Call, Compute, For, Load, Move, Notify, Step, Store

BUFFERS = (
    matrix("x", Memory.INPUT, 16, 16),
    matrix("there", Memory.SYMMETRIC, 16, 16),
    matrix("out", Memory.OUTPUT, 16, 16, 4),
)
tile = Index("tile")
SMS = Sms(2)


def schedule(*body: Step, engine: Engine = SMS, name: str = "work", count: Number = 1, **more: object) -> Schedule:
    role = Role(name, engine, (Phase(count, body),))
    tables = (Table("places", (4,), 4),)
    launches = (Launch("main", (role,)),)
    made = Schedule("s", (MeshAxis("ranks", 2),), BUFFERS, (Signal("word", (4,)),), launches, tables=tables)
    return replace(made, **more)  # type: ignore[arg-type]


LOAD = Load("v", PART)
NOTIFY = Notify("word", (0,), PEER, call)
REFUSED: dict[str, tuple[type[TileLinkError], Schedule]] = {
    "a value with the name of a buffer": (NameTaken, schedule(Load("x", PART))),
    "a role with the name of a buffer": (NameTaken, schedule(LOAD, name="x")),
    "two buffers of one name": (NameTaken, schedule(LOAD, buffers=(*BUFFERS, BUFFERS[0]))),
    "a loop that hides another": (NameTaken, schedule(For("k", 2, (For("k", 2, (LOAD,)),)))),
    "a table with a companion's name": (NameTaken, schedule(LOAD, tables=(Table("x_peers", (4,), 4),))),
    "a helper": (ReservedName, schedule(Load("rows_from", PART))),
    "a keyword": (ReservedName, schedule(LOAD, name="for")),
    "a parameter": (ReservedName, schedule(Load("epoch", PART))),
    "a user's function like a helper": (
        ReservedName,
        schedule(LOAD, functions="@triton.jit\ndef absent(x):\n    return x\n"),
    ),
    "an index that nothing binds": (UnknownName, schedule(Load("v", Region("x", (Index("chunk"), 0), (1, 16))))),
    "an op that nobody has": (UnknownOpOfSteps, schedule(LOAD, Compute(("v",), "squar", ("v",)))),
    "an addition by a copy engine": (EngineCannot, schedule(replace(NOTIFY, to=None), engine=CopyEngine())),
    "a sum by a copy engine": (EngineCannot, schedule(LOAD, engine=CopyEngine())),
    "a table for a copy engine": (
        EngineCannot,
        schedule(Move((Region("x", (Index("places", (tile,)), 0), (1, 16)),), (THERE,)), engine=CopyEngine()),
    ),
    "a library on SMs": (EngineCannot, schedule(Call("matmul", (HERE,), (PART, PART)))),
    "an unknown call": (EngineCannot, schedule(Call("solve", (HERE,), (PART,)), engine=Host())),
    "a box of three dimensions by a copy engine": (
        NotContiguousCopy,
        schedule(
            Move((Region("out", (0, 0, 0), (2, 16, 8)),), (Region("out", (0, 0, 8), (2, 16, 8)),)), engine=CopyEngine()
        ),
    ),
    "a value that changes with the tile": (
        ValueChangesInLoop,
        schedule(replace(NOTIFY, to=call + tile), engine=CopyEngine(), count=4),
    ),
    "a tile of three dimensions": (TileOfManyDimensions, schedule(Load("v", Region("out", (0, 0, 0), (2, 16, 16))))),
    "a tile of no size": (UnboundedExtent, schedule(Load("v", Region("x", (0, 0), (call, 16))))),
    "a size that is known on the call": (SizeKnownOnCall, schedule(LOAD, dims=(Dim("M", 64, on_call=True),))),
    "a part of a packet": (
        NotPrinted,
        schedule(
            Load("v", Region("packets", (0, 1), (16, 8))),
            buffers=(*BUFFERS, Buffer("packets", Memory.SYMMETRIC, (16, 16), "float32", Protocol.LAMPORT)),
        ),
    ),
    "a number in the place of packets": (
        NotPrinted,
        schedule(
            Load("v", Region("packets", (0, 0), (16, 16)), 1.0),
            buffers=(*BUFFERS, Buffer("packets", Memory.SYMMETRIC, (16, 16), "float32", Protocol.LAMPORT)),
        ),
    ),
    "paced stores": (NotPrinted, schedule(LOAD, Store("v", replace(PART, access=Access.PACED)))),
    "a descriptor of a peer": (NotPrinted, schedule(LOAD, Store("v", replace(THERE, access=Access.DESCRIPTOR)))),
    "a descriptor of odd rows": (
        NotPrinted,
        schedule(
            Load("v", Region("odd", (0, 0), (16, 16), access=Access.DESCRIPTOR)),
            buffers=(*BUFFERS, matrix("odd", Memory.INPUT, 16, 27)),
        ),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused(case: str) -> None:
    kind, refused = REFUSED[case]
    with pytest.raises(kind) as caught:
        lower(refused)
    assert type(caught.value) is kind
    assert "Legal" in str(caught.value)


def test_ping_pong_without_a_product_is_refused() -> None:
    one = schedule(LOAD)
    phase = replace(one.launches[0].roles[0].phases[0], pipelining=PingPong(4, 3))
    with pytest.raises(NotPrinted, match="ping-pong without a product"):
        lower(replace(one, launches=(Launch("main", (Role("work", SMS, (phase,)),)),)))


def test_a_last_program_beside_a_copy_engine_is_refused() -> None:
    one = two_engines().schedule
    send, take = one.launches[0].roles
    last = replace(take, phases=(*take.phases, Phase(1, (NOTIFY,), who=Who.LAST)))
    signals = (*one.signals, Signal("word", (1,)))
    with pytest.raises(EngineCannot, match="ends last"):
        lower(replace(one, launches=(Launch("main", (send, last)),), signals=signals))


def test_each_class_is_raised_in_some_test() -> None:
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type) and kind is not TileLinkError}
    elsewhere = {errors.LastNotAtEnd, errors.OverlappingMove, errors.NotOneByOne, errors.NothingToPut}
    elsewhere |= {errors.NoMulticastInTarget}
    assert kinds == {kind for kind, _ in REFUSED.values()} | elsewhere


def test_names_may_be_used_again_behind_their_loop() -> None:
    twice = (For("k", 2, (LOAD,)), For("k", 2, (LOAD,)))
    assert "for k in" in lower(schedule(*twice, Store("v", Region("out", (rank, 0, 0), (1, 16, 16)))))
    assert "token_of_i" in lower(moe().schedule)
