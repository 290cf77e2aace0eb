"""Steps of a tile: what the body of a compute role means."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from tilelink.elaborate import signals
from tilelink.elaborate.attention import attended
from tilelink.elaborate.packets import sum_packets
from tilelink.elaborate.positions import rank_at, segment_name
from tilelink.elaborate.rail_sums import Parts, parts_to_add
from tilelink.elaborate.regions import Tiles, own_experts, own_region, region
from tilelink.elaborate.slices import in_slices
from tilelink.elaborate.stores import PEER, STEP, every_peer, places_of, store
from tilelink.elaborate.user_body import user_body
from tilelink.ir import steps as ir
from tilelink.ir.counting import chunk_arrivals, in_one_chunk, other_tiles, row_pieces
from tilelink.ir.dtype import DTYPES
from tilelink.ir.nodes import ComputeRole, Exchange, Kind
from tilelink.ir.order import Cut
from tilelink.ir.steps import AttendBody, CombineBody, MatmulBody, Operand, Place, SumPackets, SumParts, UserBody
from tilelink.schedule.index import Index, Number, call, least, rank, replaced
from tilelink.schedule.steps import Compute, For, If, Load, Notify, Step, Wait
from tilelink.schedule.walk import mapped

_WGMMA_ROWS = 64
_MOST_AT_ONCE = 8  # parts that are loaded without a loop: registers hold no more

CHOICE = Index("choice")
K_SHARE = Index("k_share")  # of a tile, whose reduction several programs share
CHUNK, SLOT, USE = Index("chunk"), Index("slot"), Index("use")  # of an item: names of its phase


def body(tiles: Tiles, steps: Iterable[ir.Step]) -> tuple[Step, ...]:
    """All of `steps`, in order."""
    return tuple(step for one in steps for step in _steps(tiles, one))


def _steps(tiles: Tiles, step: ir.Step) -> tuple[Step, ...]:
    match step:
        case ir.Wait():
            return wait(tiles, step)
        case MatmulBody():
            return () if step.beside else _matmuls(tiles, step)
        case UserBody():
            return user_body(tiles, step)
        case CombineBody():
            return _combined(tiles, step)
        case AttendBody():
            return attended(tiles, step, lambda *where: _keys_wait(tiles, *where))
        case SumParts():
            return _sum_parts(tiles, step)
        case SumPackets():
            return sum_packets(tiles, step)
        case ir.Load():
            return _loaded(tiles, step.result, step.operand)
        case ir.Apply():
            operands = tuple(one if isinstance(one, float) else str(one) for one in step.operands)
            return (Compute((step.result,), step.function, operands),)
        case ir.Store():
            return store(tiles, step)
        case ir.Notify():
            return _notify(tiles, step)
        case ir.IfOwn():
            own = own_body(tiles.in_own(step.axis), step)
            segment = tiles.segment(step.axis)
            if not isinstance(segment, Index) or segment == rank:
                return own
            return (If(segment, rank, own, body(tiles, step.others)),)
        case ir.SlotWait():
            target = tiles.schedule.exchange(step.exchange).target
            return (Wait(signals.arrived(step.exchange), (SLOT,), USE + 1, (target,)),)
        case ir.SlotNotify():
            exchange = tiles.schedule.exchange(step.exchange)
            sender = (rank - exchange.by) % tiles.schedule.num_ranks
            return (Notify(signals.free(step.exchange), (SLOT,), sender, USE + 1),)
        case ir.AwaitPlaces():
            ranks = tiles.schedule.num_ranks
            word = signals.place(step.exchange)
            told = Wait(word, ((rank + STEP) % ranks,), call, (places_of(step.exchange),))
            return (For("step", ranks, (told,)),)


def own_body(tiles: Tiles, branch: ir.IfOwn) -> tuple[Step, ...]:
    """What tiles of the own segment do: all at once, or all waits, then slice by slice of the columns, then what is told of the
    whole tile. Ping-pong has slices of its own."""
    sums = next((step for step in branch.own if isinstance(step, SumParts)), None)
    if sums is None or branch.slices == 1 or tiles.role.warpgroups > 1:
        return body(tiles, branch.own)
    waits = _every_wait(tiles, sums.wait) if sums.wait is not None else ()
    waits += body(tiles, (step for step in branch.own if isinstance(step, ir.AwaitPlaces)))
    told = body(tiles, (step for step in branch.own if isinstance(step, ir.Notify)))
    work = [step for step in branch.own if not isinstance(step, ir.AwaitPlaces | ir.Notify)]

    def of_slice(cut: Tiles, name: str) -> tuple[Step, ...]:
        return body(cut, (replace(one, onto=name, wait=None) if one is sums else one for one in work))

    return (*waits, *in_slices(tiles, sums.onto, branch.slices, of_slice), *told)


def item_lets(exchange: Exchange, item: Number) -> tuple[tuple[str, Number], ...]:
    """The slot of an item, and the number of this use of it, from 0 on through all calls."""
    uses = (exchange.chunks - SLOT + exchange.slots - 1) // exchange.slots
    return (SLOT.op, item % exchange.slots), (USE.op, (call - 1) * uses + item // exchange.slots)


# ---- waits and notifies ------------------------------------------------------------------------------------------------


def wait(tiles: Tiles, step: ir.Wait) -> tuple[Step, ...]:
    """The chunks of the tile's part, or of the parts of all ranks. The own part is not waited for, unless `own`."""
    return _every_wait(tiles, step) if step.every else _not_own(tiles, step, tiles.segment(step.slot))


def _every_wait(tiles: Tiles, step: ir.Wait) -> tuple[Step, ...]:
    """Chunk by chunk, so that the words of all ranks stand together."""
    every = parts_to_add(tiles.schedule, tiles.schedule.exchange(step.exchange), own=step.own)
    return tuple(one for parts in every for one in _chunks_of(tiles, step, parts, lambda made: (_each(step, made),)))


def _of_all(tiles: Tiles, step: ir.Wait, chunk: Number) -> tuple[Step, ...]:
    """The wait for a chunk of every part, but for the own one, unless `own`."""
    every = parts_to_add(tiles.schedule, tiles.schedule.exchange(step.exchange), own=step.own)
    return tuple(_each(step, (parts, _told(tiles, step, parts, chunk))) for parts in every)


def _each(step: ir.Wait, made: tuple[Parts, Wait]) -> For:
    parts, wait = made
    return For("step", parts.many, (wait,), ((segment_name(step.slot), parts.part),))


def _told(tiles: Tiles, step: ir.Wait, parts: Parts, chunk: Number) -> Wait:
    """The wait for a chunk of the part that a loop is at."""
    assert parts.exchange is not None, "it has words"
    segment, (word, until) = Index(segment_name(step.slot)), signals.awaited(tiles.schedule, parts.exchange)
    covered, word = parts.landing or (parts.exchange.target or parts.exchange.source, word)
    return Wait(word, (segment, chunk), until, (covered,))


def _chunks_of(
    tiles: Tiles, step: ir.Wait, parts: Parts, made: Callable[[tuple[Parts, Wait]], tuple[Step, ...]]
) -> tuple[Step, ...]:
    assert parts.exchange is not None, "it has words"
    return _chunks(
        tiles, parts.exchange, step.rows, step.slot, lambda chunk: made((parts, _told(tiles, step, parts, chunk)))
    )


def _not_own(tiles: Tiles, step: ir.Wait, segment: Number) -> tuple[Step, ...]:
    waits = _part_wait(tiles, step, segment)
    if step.own:
        return waits
    return () if segment == rank or not isinstance(segment, Index) else (If(segment, rank, (), waits),)


def _part_wait(tiles: Tiles, step: ir.Wait, segment: Number) -> tuple[Step, ...]:
    exchange = tiles.schedule.exchange(step.exchange)
    return _chunks(tiles, exchange, step.rows, step.slot, _waiting(tiles, step, segment))


def _keys_wait(tiles: Tiles, step: ir.Wait, segment: Number, column: Number) -> tuple[Step, ...]:
    """The chunk of columns in which the head at `column` is, or all chunks of rows."""
    exchange = tiles.schedule.exchange(step.exchange)
    if exchange.cut is Cut.COLUMNS:
        return _waiting(tiles, step, segment)(column // exchange.chunk_cols)
    return _part_wait(tiles, step, segment)


def _waiting(tiles: Tiles, step: ir.Wait, segment: Number) -> Callable[[Number], tuple[Step, ...]]:
    """The wait for a chunk of the part of `segment`."""
    exchange = tiles.schedule.exchange(step.exchange)
    word, until = signals.awaited(tiles.schedule, exchange)
    covered = exchange.target or exchange.source
    return lambda chunk: (Wait(word, (segment, chunk), until, (covered,)),)


def _chunks(
    tiles: Tiles, exchange: Exchange, rows: str, slot: str, made: Callable[[Number], tuple[Step, ...]]
) -> tuple[Step, ...]:
    """`made` for each chunk that the tile touches along `rows`; for all chunks without `rows`."""
    if exchange.chunks == 1:
        return made(0)
    if not rows:
        return (For("chunk", exchange.chunks, made(CHUNK)),)
    axis, size = tiles.axis(rows), exchange.chunk_rows
    local = rows == slot or rows in tiles.own
    first, count = tiles.span(rows)
    first = first if local else tiles.segment(rows) * axis.extent + first
    starts_even = local or axis.segments == 1 or axis.extent % size == 0 or size % axis.extent == 0
    empty = tiles.halves and rows == tiles.role.order.minor and axis.extent % axis.tile != 0  # a half may be
    inwards = axis.inwards and not tiles.new  # the last tile may have rows of two
    if size % tiles.width(rows) == 0 and starts_even and not empty and not inwards:
        return made(first // size)
    chunks = (first + count - 1) // size - first // size + 1
    return (For("number", chunks, made(CHUNK), (("chunk", first // size + Index("number")),)),)


def _notify(tiles: Tiles, step: ir.Notify) -> tuple[Step, ...]:
    tiles = replace(tiles, new=True)  # as what is stored
    exchange = tiles.schedule.exchange(step.exchange)
    number = tiles.segment(step.slot) if step.slot else 0
    told = signals.raised(exchange)

    def one(chunk: Number) -> tuple[Step, ...]:
        if told is None:
            return (Notify(signals.counted(exchange.name), (number, chunk), rank),)
        last = arrivals(tiles, step, exchange, chunk)
        if step.place is Place.PEER:
            return (Notify(told, (rank, chunk), number, call, last),)
        to_peer = Notify(told, (rank, chunk), PEER, call, last)
        return (For("step", tiles.schedule.num_ranks, (to_peer,), every_peer(tiles)),)

    return _chunks(tiles, exchange, step.rows, step.slot, one)


def arrivals(tiles: Tiles, step: ir.Notify, exchange: Exchange, chunk: Number) -> Number:
    """How many tiles touch the chunk, as `tilelink.ir.counting.chunk_arrivals` counts them."""
    role = tiles.role.in_halves() if tiles.halves else tiles.role
    found = chunk_arrivals(role, step, exchange, tiles.own)
    if len(set(found)) == 1:
        return in_tiles(role, step, exchange, tiles.own, found[0])
    extent, per_segment = row_pieces(role, step, exchange, tiles.own)
    width = role.axis(step.rows).tile
    others = other_tiles(role, step, tiles.own)
    first, size = chunk * exchange.chunk_rows, exchange.chunk_rows
    last = first + size - 1 if exchange.rows % size == 0 else least(first + size, exchange.rows) - 1
    low = first // extent * per_segment + first % extent // width
    high = last // extent * per_segment + last % extent // width
    return (high - low + 1) * others


def in_tiles(role: ComputeRole, step: ir.Notify, exchange: Exchange, own: tuple[str, ...], count: int) -> int:
    """`count` tiles that complete a chunk: as those along its rows and along the other axes, where that is the number. A number
    without names stands for sizes and choices that then are as they are."""
    axis, local = role.axis(step.rows), step.rows == step.slot or step.rows in own
    along = axis.tiles if local else axis.segments * axis.tiles
    if exchange.chunks > 1:
        along = exchange.chunk_rows // axis.tile
    plain = along * other_tiles(role, step, own)
    return plain if plain == count and in_one_chunk(axis, exchange, local=local) else int(count)


# ---- what tiles load and compute ---------------------------------------------------------------------------------------


def _loaded(tiles: Tiles, result: str, operand: Operand) -> tuple[Step, ...]:
    there = Load(result, region(tiles, operand))
    segment = tiles.segment(operand.slot) if operand.slot else 0
    if not operand.own or (any(operand.along) and not tiles.own_rows):
        return (there,)
    own = Load(result, own_region(tiles, operand))
    if not isinstance(segment, Index) or segment == rank:
        return (own,)
    return (If(segment, rank, (own,), (there,)),)


def _matmuls(tiles: Tiles, first: MatmulBody) -> tuple[Step, ...]:
    """The matmul, and those in its loop over k; with parts along k, part by part as they arrive. A *turned* one computes its
    transpose, and turns that at the end."""
    beside = [step for step in tiles.role.body if isinstance(step, MatmulBody) and step.beside == first.result]
    every = [first, *beside]
    axis = tiles.axis(first.axis)
    turned, by_columns = _turned(tiles, first), axis.segments == 1 and bool(first.waits)
    shape = tuple(tiles.width(one.name) for one in tiles.written)[:: -1 if turned else 1]
    # where tiles without rows go through the loop, but not on behind it, a value keeps its shape
    made = {one.result: share_of(one.result) if tiles.split else one.result for one in every}
    sums = {one: f"{name}_turned" if turned and (by_columns or tiles.split) else name for one, name in made.items()}
    zeros = [Compute((one,), "zeros", shape=shape) for one in sums.values()]
    left = (*_loaded(tiles, "left", first.left), *((_trans("left"),) if turned else ()))
    rounds: list[Step] = []
    for number, one in enumerate(every):
        right = f"right{number or ''}"
        second = (*_loaded(tiles, right, one.right), *((_trans(right),) if one.transposed != turned else ()))
        # in the order in which the product takes them
        both = (*second, *left) if turned else (*left, *second)
        rounds += second if number else both
        operands = (right, "left") if turned else ("left", right)
        rounds.append(Compute((sums[one.result],), "dot", (*operands, sums[one.result])))
    back = tuple(Compute((made[one],), "trans", (total,)) for one, total in sums.items()) if turned else ()
    k = Index(first.axis)
    step = Index(f"{first.axis}_tile")
    loop = For(step.op, axis.tiles, tuple(rounds), ((k.op, step * axis.tile),))
    if tiles.split:
        begin, end = (axis.tiles * number // tiles.role.splits for number in (K_SHARE, K_SHARE + 1))
        loop = replace(loop, count=end - begin, let=((k.op, (begin + step) * axis.tile),))
    if by_columns:  # for columns, chunk by chunk of all ranks
        (wait,) = first.waits
        exchange = tiles.schedule.exchange(wait.exchange)
        cols = exchange.chunk_cols
        loop = replace(loop, count=cols // axis.tile, let=((k.op, CHUNK * cols + step * axis.tile),))
        loop = For(CHUNK.op, exchange.chunks, (*_of_all(tiles, wait, CHUNK), loop))
    if axis.segments == 1:
        return (*zeros, loop, *back)
    place = Index(f"{first.axis}_place")
    let = ((segment_name(first.axis), rank_at(tiles.role.order.minor_ranks, place)),)
    return (*zeros, For(place.op, axis.segments, (*body(tiles, first.waits), loop), let), *back)


def share_of(value: str) -> str:
    """What one of several programs has of a sum."""
    return f"{value}_share"


def _combined(tiles: Tiles, step: CombineBody) -> tuple[Step, ...]:
    """Choice by choice; rows without an expert may hold anything. Of remote rows, those of each rank's experts."""
    shape, choices = tuple(tiles.width(one.name) for one in tiles.written), step.routed.choices
    remote, ranks = step.rows.remote, tiles.schedule.num_ranks
    tokens = tiles.axis(step.rows.index[0])

    def loaded(name: str, operand: Operand) -> tuple[Step, ...]:
        return mapped(_loaded(tiles, name, operand), lambda one: (of_choice(one, operand),))

    def of_choice(one: Step, operand: Operand) -> Step:
        if not isinstance(one, Load):
            return one
        found = one.region
        if operand is not step.rows:
            start, extent = (*found.start[:-1], CHOICE), (*found.extent[:-1], 1)
            return replace(one, region=replace(found, start=start, extent=extent))
        names: dict[str, Number] = {"choices": choices, "choice": CHOICE}
        if choices == 1:  # rows of tokens follow each other
            names |= {"choice": 0, "lane": 0}
        if remote:  # among those of all ranks
            names |= {tokens.name: rank * (tokens.extent * tokens.segments) + Index(tokens.name)}
        start = tuple(replaced(index, names) for index in found.start)
        return replace(one, region=replace(found, start=start, at=PEER if remote else found.at))

    first, many = own_experts(step.routed)
    if remote:
        first, many = (replaced(number, {"rank": PEER}) for number in (first, many))
    rows: tuple[Step, ...] = (
        *loaded("one_row", step.rows),
        Compute((step.result,), "combined", (step.result, "one_row", "weight", "expert", many, first)),
    )
    if remote:
        rows = (For("step", ranks, rows, every_peer(tiles), unrolled=ranks <= _MOST_AT_ONCE),)
    rounds = (*loaded("expert", step.ids), *loaded("weight", step.weights), *rows)
    loop = For(CHOICE.op, choices, rounds, unrolled=choices <= _MOST_AT_ONCE)
    return Compute((step.result,), "zeros", shape=shape), loop


def _turned(tiles: Tiles, matmul: MatmulBody) -> bool:
    """Whether columns of the product become rows of what is computed: Hopper's tensor cores read operands in shared memory for
    no fewer than 64 rows."""
    m, n = (one.tile for one in tiles.written)
    hopper = tiles.schedule.machine.arch.startswith("sm_9")
    return hopper and m < _WGMMA_ROWS <= n and DTYPES[tiles.schedule.buffer(matmul.left.buffer).dtype].tensor_cores


def _trans(value: str) -> Compute:
    return Compute((value,), "trans", (value,))


def _sum_parts(tiles: Tiles, step: SumParts) -> tuple[Step, ...]:
    """The parts of all ranks; on top of an own summand those of the peers, each as it arrives."""
    ranks, tile = tiles.schedule.num_ranks, f"{step.operand.buffer}_tile"
    exchange = next((one for one in tiles.schedule.exchanges if step.operand.buffer in (one.target, one.source)), None)
    adding = Compute((step.result,), "add", (step.result, tile))
    axis, waited = segment_name(step.operand.slot), step.wait

    def added(parts: Parts, *, late: bool, unrolled: bool) -> For:
        """`late`: each behind the wait for it."""
        waits = _chunks_of(tiles, waited, parts, lambda made: (made[1],)) if late and waited is not None else ()
        loaded = Load(
            tile,
            region(tiles, replace(step.operand, buffer=parts.landing[0] if parts.landing else step.operand.buffer)),
        )
        return For("step", parts.many, (*waits, loaded, adding), ((axis, parts.part),), unrolled=unrolled)

    others = parts_to_add(tiles.schedule, exchange, own=False)
    if step.onto:
        copy = () if step.onto == step.result else (Compute((step.result,), "copy", (step.onto,)),)
        own = _part_wait(tiles, step.wait, rank) if step.wait is not None and step.wait.own else ()
        return (*copy, *own, *(added(parts, late=True, unrolled=tiles.role.prefetch) for parts in others))
    shape = tuple(tiles.width(one.name) for one in tiles.written)
    before = wait(tiles, step.wait) if step.wait is not None else ()
    zero = Compute((step.result,), "zeros", shape=shape)
    if exchange is not None and exchange.relayed:
        mine = Load(tile, own_region(tiles, step.operand))
        return (zero, *before, mine, adding, *(added(parts, late=False, unrolled=False) for parts in others))
    loaded = _loaded(tiles, tile, step.operand)
    alone = step.wait is not None and exchange is not None and exchange.kind is Kind.SCATTER
    first = rank if alone else _number_of(tiles)
    order = ((segment_name(step.operand.slot), (first + STEP) % ranks),)
    rounds = For("step", ranks, (*loaded, adding), order, unrolled=ranks <= _MOST_AT_ONCE or tiles.role.prefetch)
    return (zero, *before, rounds)


def _number_of(tiles: Tiles) -> Number:
    """A number that differs between tiles, and is the same on all ranks: so are sums that begin with that part."""
    found: Number = 0
    for axis in tiles.written:
        found = found + Index(axis.name) // (axis.tile or axis.extent)
    return found
