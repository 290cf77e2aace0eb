"""What tile loops and launches do, in the few words that a term of a predicted time is called by."""

from __future__ import annotations

from tilelink.ir.calls import (
    LibraryCollective,
    LibraryOp,
    ListPlaces,
    ListRows,
    PacketCollective,
    SortRows,
    StateMerge,
)
from tilelink.ir.nodes import (
    AwaitPeers,
    Begin,
    CopyOwn,
    CopyProgram,
    Finish,
    Kernel,
    Launch,
    MoveRows,
    Publish,
    TellPlace,
)
from tilelink.ir.steps import AttendBody, CombineBody, MatmulBody, SumParts, UserBody
from tilelink.ir.walk import flat
from tilelink.planner.tile_run import TileLoop

_WORK = (
    (MatmulBody, "matmul of"),
    (SumParts, "sum of parts of"),
    (AttendBody, "attention of"),
    (CombineBody, "weighted rows of"),
    (UserBody, "tiles of"),
)


def work_of(loop: TileLoop) -> str:
    """What a tile loop does, in a few words: the first of its steps that have any."""
    body, name = flat(loop.role.body), loop.role.name
    found = (what for kind, what in _WORK if any(isinstance(step, kind) for step in body))
    return f"{next(found, 'loads and stores of')} {name}"


def name_of(launch: Launch) -> str:
    """Of launches that are one term."""
    match launch:
        case Begin():
            return "beginning of the call, at which all ranks meet"
        case AwaitPeers():
            return "wait until peers have ended the last call"
        case TellPlace(exchange=name):
            return f"telling peers the place of {name}"
        case CopyOwn(exchange=name):
            return f"copy of the own part of {name}"
        case MoveRows(exchange=name):
            return f"start of rows of {name} that ranks need"
        case Publish(exchange=name):
            return f"publication of {name}"
        case LibraryCollective(function, out, _):
            return f"{function} of {out} by the library"
        case PacketCollective(out=out):
            return f"packets of {out} to and from peers"
        case StateMerge(out=out):
            return f"states of {out}, and their merge"
        case SortRows(routed):
            return f"rows of each expert of {routed.name}"
        case ListRows(sent):
            return f"rows of {sent.name} that ranks need"
        case ListPlaces(placed):
            return f"places of rows of {placed.name} at ranks"
        case CopyProgram(exchange=name):
            return f"start of copies of {name}"
        case Finish() | Kernel() | LibraryOp():
            raise AssertionError("these are several terms")
