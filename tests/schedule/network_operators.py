"""Operators over two levels, written by hand: loads and stores inside of a node, puts with signals between equal ranks of nodes.

Words between nodes are set to the number of the call, never added to. `free[g]` on a rank: node g has read what this rank has put
there in so many calls. A node's own `done` counts its ranks only.
"""

from __future__ import annotations

import torch

from tests.schedule.operators import IN, OUT, SYM, B, Operator, box, group, matrix, mine, node, other, peer, step, tile
from tests.schedule.references import total
from tilelink.schedule.index import Index, Number, call, rank
from tilelink.schedule.memory import Memory, Signal
from tilelink.schedule.network import Transport
from tilelink.schedule.roles import Launch, MeshAxis, Network, Phase, Role, Schedule, Sms, Who
from tilelink.schedule.steps import Compute, For, If, Load, Move, Notify, Order, Step, Store, Sync, Wait

DONE = Signal("done", (1,))
QUIET = Sync(Order.QUIET)


def mesh(nodes: int, local: int, transport: Transport) -> tuple[MeshAxis, ...]:
    return MeshAxis("nodes", nodes, transport), MeshAxis("local", local)


def lets(local: int) -> tuple[tuple[str, Number], ...]:
    return ("node", rank // local), ("mine", rank % local)


def begun(local: int) -> Phase:
    """The ranks of the node have ended the call before."""
    return Phase(1, (Wait("done", (0,), (call - 1) * (local - 1)),), every=True)


def ended(local: int) -> Phase:
    near = node * local + (mine + 1 + step) % local
    return Phase(1, (For("step", local - 1, (Notify("done", (0,), near),)),), lets(local), who=Who.LAST)


def reduce_scatter(nodes: int, local: int, transport: Transport) -> Operator:
    """Rows for a node are added inside of it, one after the other in one place, and put to the rank of that rail; the own node
    comes last, with what the others have put."""
    size = nodes * local
    zero = Compute(("acc",), "zeros", shape=(B, B))
    add = Compute(("acc",), "add", ("acc", "part"))
    near: tuple[Step, ...] = (
        Wait("near", (group,), call * local, ("in_node",)),
        zero,
        For("other", local, (Load("part", box("in_node", other, group, 0, 0)), add)),
    )
    order = (
        *lets(local),
        ("group", (node + 1 + tile // local) % nodes),
        ("peer", node * local + (mine + tile) % local),
    )
    to = group * local + (mine + tile) % local
    scattered: tuple[Step, ...] = (
        Load("y_tile", box("y", to, 0)),
        Store("y_tile", box("in_node", mine, group, 0, 0, at=peer)),
        Notify("near", (group,), peer),
    )
    scatter = Role("scatter", Sms(2), (begun(local), Phase(size, scattered, order)))
    there = group * local + mine
    put = Move((box("sums", 0, 0),), (box("in_net", node, 0, 0, at=there),), Notify("far", (node,), there, call))
    summed = (*near, Store("acc", box("sums", 0, 0)), Wait("free", (group,), call - 1), put, QUIET)
    away = (*lets(local), ("group", (node + 1 + tile) % nodes))
    between = Role("between", Network(), (Phase(nodes - 1, summed, away),))
    far_node = (node + 1 + step) % nodes
    far = (Wait("far", (far_node,), call, ("in_net",)), Load("part", box("in_net", far_node, 0, 0)), add)
    freed = Notify("free", (node,), far_node * local + mine, call)
    own = (*near, For("step", nodes - 1, far), Store("acc", box("out", 0, 0)), For("step", nodes - 1, (freed,)))
    last = Role("add", Network(), (Phase(1, own, (*lets(local), ("group", node))), ended(local)))
    buffers = (
        matrix("y", IN, size * B, B),
        matrix("in_node", SYM, B, B, local, nodes),
        matrix("sums", Memory.LOCAL, B, B),
        matrix("in_net", SYM, B, B, nodes),
        matrix("out", OUT, B, B),
    )
    signals = (DONE, *(Signal(name, (nodes,)) for name in ("near", "far", "free")))
    launch = Launch("main", (scatter, between, last))
    schedule = Schedule("reduce_scatter", mesh(nodes, local, transport), buffers, signals, (launch,))
    return Operator(schedule, lambda y: list(total(y).chunk(size)))


def all_gather(nodes: int, local: int, transport: Transport) -> Operator:
    """Rail first: a part goes to the same rank of each node, and from there to the ranks of that node. A part is two puts, the
    second of which tells of itself alone: each has its word."""
    size = nodes * local
    there = group * local + mine
    puts = tuple(
        Move(
            (box("x", half, 0),), (box("x_all", rank, half, 0, at=there),), Notify("arrived", (rank, half), there, call)
        )
        for half in (0, 1)
    )
    away = (*lets(local), ("group", (node + 1 + tile) % nodes))
    rails = Role("rails", Network(), (Phase(nodes - 1, (Wait("free", (group,), call - 1), *puts), away),))
    source = group * local + mine  # whose part this rank hands on
    half = Index("half")
    near = node * local + (mine + 1 + step) % local
    handed: tuple[Step, ...] = (
        Store("part", box("x_all", source, half, 0, at=near)),
        Notify("arrived", (source, half), near, call),
    )
    of_rail: tuple[Step, ...] = (
        If(
            group,
            node,
            (Load("part", box("x", half, 0)),),
            (Wait("arrived", (source, half), call, ("x_all",)), Load("part", box("x_all", source, half, 0))),
        ),
        Store("part", box("out", source * 2 + half, 0)),
        For("step", local - 1, handed),
    )
    freed = If(group, node, (), (Notify("free", (node,), source, call),))
    rail = (For("half", 2, of_rail), freed)
    hand = Role(
        "hand", Network(2), (begun(local), Phase(nodes, rail, (*lets(local), ("group", (node + tile) % nodes))))
    )
    theirs = group * local + (mine + 1 + tile // nodes) % local
    others: tuple[Step, ...] = (
        For(
            "half",
            2,
            (
                Wait("arrived", (theirs, half), call, ("x_all",)),
                Load("part", box("x_all", theirs, half, 0)),
                Store("part", box("out", theirs * 2 + half, 0)),
            ),
        ),
    )
    take = Role(
        "take",
        Sms(2),
        (Phase(nodes * (local - 1), others, (*lets(local), ("group", (node + tile) % nodes))), ended(local)),
    )
    buffers = (
        matrix("x", IN, 2 * B, B),
        matrix("x_all", SYM, 2 * B, B, size),
        matrix("out", OUT, 2 * size * B, B),
    )
    signals = (DONE, Signal("arrived", (size, 2)), Signal("free", (nodes,)))
    launch = Launch("main", (rails, hand, take))
    schedule = Schedule("all_gather", mesh(nodes, local, transport), buffers, signals, (launch,))
    return Operator(schedule, lambda x: [torch.cat(x)] * size)


OPERATORS = {"reduce_scatter": reduce_scatter, "all_gather": all_gather}
