"""Which launches write what peers may still use: the wait for peers comes before them."""

from __future__ import annotations

from tilelink.ir.calls import CollectiveCall, LibraryOp, ListPlaces, ListRows, SortRows, StateMerge
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
from tilelink.ir.steps import Store
from tilelink.ir.walk import flat


def writes(launch: Launch, symmetric: set[str]) -> bool:
    """Whether the launch writes to peers, or what peers read or write here, or tells them something."""
    match launch:
        case Kernel(comm=comm, compute=role):
            steps = flat(role.body) if role is not None else []
            stored = any(isinstance(step, Store) and step.operand.buffer in symmetric for step in steps)
            return bool(comm) or stored
        case Publish() | TellPlace() | MoveRows() | Finish():
            return True
        case LibraryOp(out=out):
            return out.buffer in symmetric
        case CollectiveCall(out=target) | StateMerge(out=target):
            return target in symmetric
        case Begin() | AwaitPeers() | CopyProgram() | CopyOwn() | SortRows() | ListRows() | ListPlaces():
            return False
