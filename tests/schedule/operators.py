"""Nine operators in the language of steps, and a tenth with ragged tiles: schedules, and torch on whole tensors beside each.

Tiles are 16 x 16, a part has `T` tiles of rows, results have `S` tiles of columns, sums run over `K` tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from tests.schedule.references import FOLD, SOFTMAX, Tensors, attention, routes, summed_product, total
from tilelink.ir.enums import Protocol
from tilelink.schedule.index import Index, Number, call, least, rank
from tilelink.schedule.memory import Buffer, Law, Memory, Region, Signal, Table
from tilelink.schedule.roles import CopyEngine, Launch, MeshAxis, Network, Phase, Role, Schedule, Sms, Who
from tilelink.schedule.steps import Compute, For, If, Load, Move, Notify, Step, Store, Wait

B, T, S, K = 16, 2, 2, 2
IN, OUT, SYM = Memory.INPUT, Memory.OUTPUT, Memory.SYMMETRIC
DONE = Signal("done", (1,))
tile, segment, m, n, k, chunk = map(Index, ("tile", "segment", "m", "n", "k", "chunk"))
peer, step, slot, use, source, i = map(Index, ("peer", "step", "slot", "use", "source", "i"))
group, other, node, mine, lane = map(Index, ("group", "other", "node", "mine", "lane"))


@dataclass(frozen=True)
class Operator:
    schedule: Schedule
    reference: Callable[..., Tensors]  # inputs by name -> the output of each rank
    tables: Callable[[], dict[str, torch.Tensor]] = dict
    replicated: tuple[str, ...] = ()  # inputs that are equal on all ranks


def ranks(size: int) -> tuple[MeshAxis, ...]:
    return (MeshAxis("ranks", size),)


def peer_after(size: int) -> Number:
    return (rank + 1 + step) % size


def box(buffer: str, *start: Number, at: Number = rank, rows: Number = B, cols: Number = B) -> Region:
    """A tile: the last two of `start` count in tiles of 16, those before select."""
    *lead, row, col = start
    return Region(buffer, (*lead, row * B, col * B), (*(1 for _ in lead), rows, cols), at)


def matrix(name: str, memory: Memory, rows: int, cols: int, *lead: int, dtype: str = "float32", **more: bool) -> Buffer:
    """`rows` x `cols` elements, behind the dimensions of `lead`."""
    return Buffer(name, memory, (*lead, rows, cols), dtype, **more)  # type: ignore[arg-type]


def finished(size: int) -> Phase:
    """Nobody begins before all peers have ended the call before."""
    return Phase(1, (Wait("done", (0,), (call - 1) * (size - 1)),), every=True)


def finish(size: int) -> Phase:
    return Phase(1, (For("step", size - 1, (Notify("done", (0,), peer_after(size)),)),), who=Who.LAST)


def product(*left: Step) -> tuple[Step, ...]:
    """acc = the tile (m, n) of `a @ w`, where `left` loads `a` for the step k."""
    dot = Compute(("acc",), "dot", ("a", "b", "acc"))
    return (Compute(("acc",), "zeros", shape=(B, B)), For("k", K, (*left, Load("b", box("w", k, n)), dot)))


W = matrix("w", IN, K * B, S * B)


def ag_gemm(size: int = 3) -> Operator:
    """AllGather + GEMM: a copy engine pushes chunks, tiles wait for theirs. `w` has no whole number of tiles of columns."""
    cols = S * B - 5
    part = Region("x", (chunk * B, 0), (B, K * B))
    there = Region("x_full", (rank, chunk * B, 0), (1, B, K * B), peer)
    arrived = Notify("x_arrived", (rank, chunk), peer, call)
    let = (("peer", (rank - 1 - tile // T) % size), ("chunk", tile % T))
    push = Role("push", CopyEngine(), (finished(size), Phase((size - 1) * T, (Move((part,), (there,)), arrived), let)))
    order = (("segment", (rank + tile // (T * S)) % size), ("m", tile // S % T), ("n", tile % S))
    wait = Wait("x_arrived", (segment, m), call, ("x_full",))
    left = If(segment, rank, (Load("a", box("x", m, k)),), (Load("a", box("x_full", segment, m, k)),))
    body = (If(segment, rank, (), (wait,)), *product(left), Store("acc", box("out", segment * T + m, n)))
    gemm = Role("gemm", Sms(2), (Phase(size * T * S, body, order),))
    buffers = (
        matrix("x", IN, T * B, K * B),
        matrix("w", IN, K * B, cols),
        matrix("x_full", SYM, T * B, K * B, size),
        matrix("out", OUT, size * T * B, cols),
    )
    launches = (
        Launch("copies", (push,)),
        Launch("main", (gemm,)),
        Launch("main", (Role("finish", Sms(1), (finish(size),)),), ("copies",)),
    )
    signals = (DONE, Signal("x_arrived", (size, T)))
    schedule = Schedule("ag_gemm", ranks(size), buffers, signals, launches)
    return Operator(schedule, lambda x, w: [torch.cat(x) @ one for one in w])


def sum_of_parts(size: int) -> For:
    wait = Wait("arrived", (peer_after(size),), call, ("parts",))
    part = Load("part", box("parts", peer_after(size), m, n))
    return For("step", size - 1, (wait, part, Compute(("acc",), "add", ("acc", "part"))))


def _rs_body(size: int, own: tuple[Step, ...]) -> tuple[Step, ...]:
    others = (Store("acc", box("parts", rank, m, n, at=segment)), Notify("arrived", (rank,), segment, call, T * S))
    return (*product(Load("a", box("x", segment * T + m, k))), If(segment, rank, own, others))


def _rs(
    size: int, name: str, own: tuple[Step, ...], out: Buffer, before: tuple[Phase, ...], behind: tuple[Phase, ...]
) -> Schedule:
    order = (("segment", (rank + 1 + tile // (T * S)) % size), ("m", tile // S % T), ("n", tile % S))
    gemm = Role("gemm", Sms(2), (*before, Phase(size * T * S, _rs_body(size, own), order), *behind))
    buffers = (matrix("x", IN, size * T * B, K * B), W, matrix("parts", SYM, T * B, S * B, size), out)
    return Schedule(name, ranks(size), buffers, (DONE, Signal("arrived", (size,))), (Launch("main", (gemm,)),))


def gemm_rs(size: int = 3) -> Operator:
    """GEMM + ReduceScatter in one kernel: tiles are stored at their rank, own tiles add what has come."""
    own = (sum_of_parts(size), Store("acc", box("out", m, n)))
    out = matrix("out", OUT, T * B, S * B)
    schedule = _rs(size, "gemm_rs", own, out, (finished(size),), (finish(size),))
    return Operator(schedule, lambda x, w: list(summed_product(x, w).chunk(size)))


def gemm_ar_in_place(size: int = 3) -> Operator:
    """GEMM + AllReduce: sums go to every rank, straight to where the caller reads them; calls end together."""
    everywhere = For("step", size, (Store("acc", box("out", rank, m, n, at=(rank + step) % size)),))
    out = matrix("out", SYM, T * B, S * B, size, for_caller=True)
    together = Phase(1, (*finish(size).body, Wait("done", (0,), call * (size - 1), ("out",))), who=Who.LAST)
    schedule = _rs(size, "gemm_ar", (sum_of_parts(size), everywhere), out, (), (together,))
    return Operator(schedule, lambda x, w: [summed_product(x, w).view(size, T * B, S * B)] * size)


def queue(size: int = 3, slots: int = 2, items: int = 5) -> Operator:
    """Items go to the next rank through a ring of `slots` places; who has taken one gives its place back."""
    uses = (items - slot + slots - 1) // slots
    let = (("slot", tile % slots), ("use", (call - 1) * uses + tile // slots))
    item = Region("x", (tile * B, 0), (B, K * B))
    place = Region("ring", (slot, 0, 0), (1, B, K * B), (rank + 1) % size)
    send = (
        Wait("free", (slot,), use),
        Move((item,), (place,)),
        Notify("arrived", (slot,), (rank + 1) % size, use + 1),
    )
    take = (
        Wait("arrived", (slot,), use + 1, ("ring",)),
        Load("item", Region("ring", (slot, 0, 0), (1, B, K * B))),
        Notify("free", (slot,), (rank - 1) % size, use + 1),
        Store("item", Region("out", (tile * B, 0), (B, K * B))),
    )
    roles = Role("produce", Sms(2), (Phase(items, send, let),)), Role("consume", Sms(2), (Phase(items, take, let),))
    buffers = (
        matrix("x", IN, items * B, K * B),
        matrix("ring", SYM, B, K * B, slots),
        matrix("out", OUT, items * B, K * B),
    )
    signals = (Signal("arrived", (slots,)), Signal("free", (slots,)))
    schedule = Schedule("queue", ranks(size), buffers, signals, (Launch("main", roles),))
    return Operator(schedule, lambda x: [x[r - 1] for r in range(size)])


def all_reduce_ll(size: int = 3, versions: int = 2) -> Operator:
    """AllReduce in one shot, of words that say themselves that they have arrived. No signal at all."""
    turn = call % versions
    words = Region("words", (turn, rank, m * B, n * B), (1, 1, B, B), peer_after(size))
    theirs = Region("words", (turn, peer_after(size), m * B, n * B), (1, 1, B, B))
    send = For("step", size - 1, (Store("acc", words),))
    take = For("step", size - 1, (Load("part", theirs), Compute(("acc",), "add", ("acc", "part"))))
    body = (Load("acc", box("y", m, n)), send, take, Store("acc", box("out", m, n)))
    add = Role("add", Sms(2), (Phase(T * S, body, (("m", tile // S), ("n", tile % S))),))
    packets = Buffer("words", SYM, (versions, size, T * B, S * B), "float32", Protocol.LL)
    buffers = (matrix("y", IN, T * B, S * B), packets, matrix("out", OUT, T * B, S * B))
    schedule = Schedule("all_reduce", ranks(size), buffers, (), (Launch("main", (add,)),))
    return Operator(schedule, lambda y: [total(y)] * size)


H = K * B  # elements of a token


def _token(buffer: str, *start: Number, at: Number = rank) -> Region:
    *lead, row = start
    return Region(buffer, (*lead, row, 0), (*(1 for _ in lead), 1, H), at)


def _moe(name: str, size: int, tokens: int, expert: Role, combine: Role, returned: int, functions: str) -> Operator:
    to, row = Index("to", (rank, tile)), Index("row", (rank, tile))
    sent = (Move((_token("x", tile),), (_token("recv", rank, row, at=to),)), Notify("arrived", (rank,), to))
    dispatch = Role("dispatch", Sms(2), (finished(size), Phase(tokens, sent)))
    buffers = (
        matrix("x", IN, tokens, H),
        matrix("w", IN, H, H),
        matrix("recv", SYM, tokens, H, size),
        matrix("back", SYM, tokens, H),
        matrix("out", OUT, tokens, H),
    )
    tables = (
        Table("to", (size, tokens), size),
        Table("row", (size, tokens), tokens),
        Table("rows", (size, size), tokens + 1, (Law.COUNTS,)),
        Table("token", (size, size, tokens), tokens, (Law.DIFFERS,)),
    )
    signals = (DONE, Signal("arrived", (size,)), Signal("returned", (returned,)))
    launches = (Launch("main", (dispatch, expert, combine)),)
    schedule = Schedule(name, ranks(size), buffers, signals, launches, tables=tables, functions=functions)

    def reference(x: Tensors, w: Tensors) -> Tensors:
        to = routes(size, tokens)["to"]
        rows = [[torch.relu(x[r][t] @ w[int(to[r, t])]) ** 2 + x[r][t] for t in range(tokens)] for r in range(size)]
        return [torch.stack(one) for one in rows]

    return Operator(schedule, reference, lambda: routes(size, tokens))


def _combine(size: int, tokens: int, word: Number) -> Role:
    body = (
        Wait("returned", (word,), call, ("back",)),
        Load("y", _token("back", tile)),
        Load("x0", _token("x", tile)),
        Compute(("y",), "add", ("y", "x0")),
        Store("y", _token("out", tile)),
    )
    return Role("combine", Sms(1), (Phase(tokens, body), finish(size)))


def moe(size: int = 3, tokens: int = 5) -> Operator:
    """Mixture of experts: tokens go where a table says, through an expert, and back to their place."""
    rows, back = Index("rows", (source, rank)), Index("token", (source, rank, i))
    work = (
        Load("a", _token("recv", source, i)),
        Load("w_all", Region("w", (0, 0), (H, H))),
        Compute(("y",), "expert_fold", ("a", "w_all")),
        Store("y", _token("back", back, at=source)),
        Notify("returned", (back,), source, call),
    )
    body = (Wait("arrived", (source,), call * rows, ("recv",)), For("i", rows, work))
    expert = Role("expert", Sms(1), (Phase(size, body, (("source", (rank + tile) % size),)),))
    return _moe("moe", size, tokens, expert, _combine(size, tokens, tile), tokens, FOLD)


def moe_grouped(size: int = 3, tokens: int = 37) -> Operator:
    """The same with tiles of 16 rows, the last one ragged, and one word for all that an expert sends back to a rank."""
    rows, here = Index("rows", (source, rank)), Index("to", (rank, tile))
    left, tiles = least(B, rows - i * B), (rows + B - 1) // B
    back = Region("back", (Index("token", (source, rank, i * B + lane)), 0), (left, H), source)
    work = (
        Load("a", Region("recv", (source, i * B, 0), (1, left, H))),
        Load("w_all", Region("w", (0, 0), (H, H))),
        Compute(("y",), "zeros", shape=(B, H)),
        Compute(("y",), "dot", ("a", "w_all", "y")),
        Compute(("y",), "squared_relu", ("y",)),
        Store("y", back),
        Notify("returned", (rank,), source, call, tiles),
    )
    body = (Wait("arrived", (source,), call * rows, ("recv",)), For("i", tiles, work))
    expert = Role("expert", Sms(2), (Phase(size, body, (("source", (rank + tile) % size),)),))
    fold = "@triton.jit\ndef squared_relu(y):\n    y = tl.maximum(y, 0)\n    return y * y\n"
    return _moe("moe_grouped", size, tokens, expert, _combine(size, tokens, here), size, fold)


def two_level_rs(nodes: int = 2, local: int = 2) -> Operator:
    """ReduceScatter over two levels: added inside of a node, then put with a signal to the same rank of other nodes."""
    size = nodes * local
    let = (("node", rank // local), ("mine", rank % local))
    zero = Compute(("acc",), "zeros", shape=(B, B))
    add = Compute(("acc",), "add", ("acc", "part"))
    near = (
        Wait("near", (group,), call * local, ("in_node",)),
        zero,
        For("other", local, (Load("part", box("in_node", other, group, 0, 0)), add)),
    )
    order = (*let, ("group", (node + tile // local) % nodes), ("peer", node * local + (mine + tile) % local))
    to = group * local + (mine + tile) % local
    scattered = (
        Load("y_tile", box("y", to, 0)),
        Store("y_tile", box("in_node", mine, group, 0, 0, at=peer)),
        Notify("near", (group,), peer),
    )
    scatter = Role("scatter", Sms(2), (finished(size), Phase(size, scattered, order)))
    there = group * local + mine
    put = Move((box("sums", group, 0, 0),), (box("in_net", node, 0, 0, at=there),), Notify("far", (node,), there, call))
    summed = (*near, Store("acc", box("sums", group, 0, 0)), put)
    between = Role("between", Network(), (Phase(nodes - 1, summed, (*let, ("group", (node + 1 + tile) % nodes))),))
    far_node = (node + 1 + step) % nodes
    far = (Wait("far", (far_node,), call, ("in_net",)), Load("part", box("in_net", far_node, 0, 0)), add)
    own = (*near, For("step", nodes - 1, far), Store("acc", box("out", 0, 0)))
    last = Role("add", Sms(1), (Phase(1, own, (*let, ("group", node))), finish(size)))
    buffers = (
        matrix("y", IN, size * B, B),
        matrix("in_node", SYM, B, B, local, nodes),
        matrix("sums", Memory.LOCAL, B, B, nodes),
        matrix("in_net", SYM, B, B, nodes),
        matrix("out", OUT, B, B),
    )
    signals = (DONE, Signal("near", (nodes,)), Signal("far", (nodes,)))
    mesh = (MeshAxis("nodes", nodes), MeshAxis("local", local))
    schedule = Schedule("two_level_rs", mesh, buffers, signals, (Launch("main", (scatter, between, last)),))
    return Operator(schedule, lambda y: list(total(y).chunk(size)))


STATE = ("top", "total", "acc")
WIDTHS = (1, 1, B)
EMPTY = (
    Compute(("top",), "full", (-1e30,), (B, 1)),
    Compute(("total",), "zeros", shape=(B, 1)),
    Compute(("acc",), "zeros", shape=(B, B)),
)
ENDED = (Compute(("acc",), "divided", ("acc", "total")), Store("acc", box("out", m, 0)))
QUERY = Load("q_tile", box("q", m, 0))


def flash_decode(size: int = 3) -> Operator:
    """Keys and values are split over the ranks; every rank sends the state of its softmax to all, and merges."""
    names = [f"p_{name}" for name in STATE]

    def states(start: Number, at: Number = rank) -> list[Region]:
        return [Region(name, (start, m * B, 0), (1, B, width), at) for name, width in zip(names, WIDTHS, strict=True)]

    keys = (
        Load("kt", box("keys", k, 0)),
        Load("vt", box("values", k, 0)),
        Compute(STATE, "softmax_step", (*STATE, "q_tile", "kt", "vt")),
    )
    sent = [Store(name, region) for name, region in zip(STATE, states(rank, peer_after(size)), strict=True)]
    theirs = [Load(f"{name}2", region) for name, region in zip(STATE, states(peer_after(size)), strict=True)]
    merge: tuple[Step, ...] = (
        Wait("arrived", (peer_after(size), m), call, tuple(names)),
        *theirs,
        Compute(STATE, "softmax_merge", (*STATE, *(f"{name}2" for name in STATE))),
    )
    body = (
        QUERY,
        *EMPTY,
        For("k", 4, keys),
        For("step", size - 1, (*sent, Notify("arrived", (rank, m), peer_after(size), call))),
        For("step", size - 1, merge),
        *ENDED,
    )
    decode = Role("decode", Sms(2), (finished(size), Phase(T, body, (("m", tile),)), finish(size)))
    state = [matrix(name, SYM, T * B, width, size) for name, width in zip(names, WIDTHS, strict=True)]
    inputs = matrix("q", IN, T * B, B), matrix("keys", IN, 4 * B, B), matrix("values", IN, 4 * B, B)
    signals = (DONE, Signal("arrived", (size, T)))
    buffers = (*inputs, *state, matrix("out", OUT, T * B, B))
    schedule = Schedule("flash_decode", ranks(size), buffers, signals, (Launch("main", (decode,)),), functions=SOFTMAX)
    return Operator(
        schedule,
        lambda q, keys, values: [attention(one, torch.cat(keys), torch.cat(values)) for one in q],
        replicated=("q",),
    )


def ring_attention(size: int = 3) -> Operator:
    """Keys and values are pulled from one rank after the other, while the state of the softmax is carried on."""
    at = Index("%", (rank + step, size))
    publish = For("step", size - 1, (Notify("ready", (rank,), peer_after(size), call),))
    copies = [Move((box(name, 0, 0),), (box(f"{name}_sym", 0, 0),)) for name in ("keys", "values")]
    stage = Role("stage", Sms(1), (finished(size), Phase(1, (*copies, publish))))
    turn = (
        If(at, rank, (), (Wait("ready", (at,), call, ("keys_sym", "values_sym")),)),
        Load("kt", box("keys_sym", 0, 0, at=at)),
        Load("vt", box("values_sym", 0, 0, at=at)),
        Compute(STATE, "softmax_step", (*STATE, "q_tile", "kt", "vt")),
    )
    body = (QUERY, *EMPTY, For("step", size, turn), *ENDED)
    attend = Role("attend", Sms(2), (Phase(T, body, (("m", tile),)), finish(size)))
    buffers = (
        matrix("q", IN, T * B, B),
        *(matrix(name, IN, B, B) for name in ("keys", "values")),
        *(matrix(f"{name}_sym", SYM, B, B) for name in ("keys", "values")),
        matrix("out", OUT, T * B, B),
    )
    launches = (Launch("main", (stage,)), Launch("main", (attend,)))
    schedule = Schedule(
        "ring_attention", ranks(size), buffers, (DONE, Signal("ready", (size,))), launches, functions=SOFTMAX
    )
    return Operator(schedule, lambda q, keys, values: [attention(one, torch.cat(keys), torch.cat(values)) for one in q])


OPERATORS: dict[str, Callable[..., Operator]] = {
    one.__name__: one
    for one in (
        ag_gemm,
        gemm_rs,
        gemm_ar_in_place,
        queue,
        all_reduce_ll,
        moe,
        moe_grouped,
        two_level_rs,
        flash_decode,
        ring_attention,
    )
}
