"""A small form of a schedule: the same choices at sizes that an emulation runs in a second.

The proof is of the schedule at its full size. Runs look at the source that lowering prints for it, whose structure does
not depend on the size but on the choices and on what divides what; so the small form keeps the choices, whether chunks
are whole tiles, whether the last tile and the last chunk are ragged, and makes each program go through several tiles.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import product

from tilelink.adversary.cuts import in_proportion
from tilelink.adversary.sizes import choices_of_tokens, head_width, heads, queues, uneven, uses
from tilelink.adversary.states import sizes_of_states, small_collective
from tilelink.errors import NoLegalSchedule
from tilelink.ir.choices import Choices, ExchangeChoice, TritonLoop
from tilelink.ir.enums import Tail
from tilelink.ir.movers import Issuer, Transfer
from tilelink.ir.nodes import Exchange, TileShape
from tilelink.ir.order import Cut
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import Spec, bind
from tilelink.ir.steps import SMALLEST_DOT, AttendBody, in_pieces
from tilelink.ir.walk import flat
from tilelink.ir.warpgroups import GROUP_WARPS, SHARED_ROWS
from tilelink.planner.choices import ITEM_TILE
from tilelink.planner.decisions import pins_of
from tilelink.planner.fallback import pins_text
from tilelink.planner.plan import plan_with
from topologies.errors import UserError
from topologies.topology import Topology

_MOST_CHUNKS = 2
_MOST_ITEMS, _MOST_SLOTS = 7, 3  # no multiple of each other
_MOST_ITEM_ROWS = 2
_GROUP_TILE = 64  # rows that one instruction of a warpgroup multiplies, and columns for two slices of a tile
_SHARED_KEYS = 64  # tokens of keys in a tile whose rows two warpgroups share
_SMS = 4  # few, so that programs go through several tiles, and compete
_TURN_SMS = 3  # where warpgroups take turns: a program is four tasks, in Gluon, whose runs take five times as long
_MORE_SMS = (*range(9), 64)  # until some tiles are left for the last round, and few enough to be halved; or all are


def small_form(spec: Spec, schedule: Schedule, topology: Topology) -> Schedule:
    """A schedule of `spec` with the choices of `schedule`, for fewer SMs, smaller tiles and smaller sizes.

    Raises NoLegalSchedule if the choices go together at no small size that was tried.
    """
    halved = {name for name, loop in _loops(schedule.decided) if loop.tail is not Tail.WHOLE}
    choices = _small(schedule.decided, _wide(schedule, halved), _cooperative(schedule))
    pins = pins_of(schedule.spec, topology, choices)
    failure: UserError | None = None
    for sizes, more in product(_sizes(spec, schedule, choices, halved), _MORE_SMS if halved else (0,)):
        try:
            few = _few_sms(topology, schedule, more)
            some = in_proportion(spec, sizes, dict(schedule.spec.sizes))
            return plan_with(bind(spec, some, schedule.num_ranks, schedule.spec.inputs[0].dtype), few, pins)
        except UserError as error:
            failure = failure or error
    assert failure is not None
    raise NoLegalSchedule(
        function=spec.name,
        topology=topology.name,
        num_ranks=schedule.num_ranks,
        pins=pins_text(pins),
        reason=f"no small size goes with these choices: {failure}",
        legal="",
    )


def _few_sms(topology: Topology, schedule: Schedule, more: int) -> Topology:
    """As many SMs as two compute programs and all that spins beside them need, a few, and `more`."""
    computed = [kernel.compute for kernel in schedule.kernels() if kernel.compute is not None]
    turns = any(role.warpgroups > 1 or role.cooperative for role in computed)
    beside = sum(not turns or _spins(exchange, topology) for exchange in schedule.exchanges)
    few = (_TURN_SMS if turns else _SMS) + more + (schedule.num_ranks - 1) * beside
    return replace(topology, gpu=replace(topology.gpu, num_sms=few))


def _spins(exchange: Exchange, topology: Topology) -> bool:
    """Whether something may hold SMs while it waits to move bytes."""
    by_copy = exchange.mover.issuer is Issuer.STREAMS
    if exchange.mover.sms or (by_copy and exchange.transfer is Transfer.PULL):
        return True
    return by_copy and not topology.gpu.stream_wait_value


def _wide(schedule: Schedule, halved: Collection[str]) -> dict[str, str]:
    """Loops whose tiles must be twice as large along rows ("m") or columns ("n"): where halves of them are cut off, and where
    they leave in slices of columns, because one slice is not there to overwrite another."""
    found = {}
    for role in (kernel.compute for kernel in schedule.kernels() if kernel.compute is not None):
        written = [axis.name for axis in role.axes if not axis.reduction]
        if role.name in halved:
            found[role.name] = "m" if role.order.minor == written[0] else "n"
        elif any(map(in_pieces, flat(role.body))):
            found[role.name] = "n"
    return found


def _cooperative(schedule: Schedule) -> dict[str, int]:
    """Loops of attention whose tiles two warpgroups share, with tokens of keys in a small tile: as many as of queries where a
    mask cuts ragged tiles."""
    found = {}
    for role in (kernel.compute for kernel in schedule.kernels()):
        if role is not None and role.cooperative:
            fold = next(step for step in flat(role.body) if isinstance(step, AttendBody))
            ragged = any(axis.extent % axis.tile for axis in role.axes if axis.tile)
            found[role.name] = SHARED_ROWS if ragged and fold.how.causal else _SHARED_KEYS
    return found


def _small(choices: Choices, wide: Mapping[str, str], shared: Mapping[str, int]) -> Choices:
    """The same choices with smaller numbers."""
    computes = {
        name: replace(
            choices.compute(name), loop=_small_loop(loop, wide.get(name, ""), head_width(choices), shared.get(name, 0))
        )
        for name, loop in _loops(choices)
    }
    return replace(
        choices,
        collectives=tuple((name, small_collective(how)) for name, how in choices.collectives),
        exchanges=tuple((name, _small_exchange(one)) for name, one in choices.exchanges),
        computes=tuple((name, computes.get(name, one)) for name, one in choices.computes),
    )


def _loops(choices: Choices) -> Iterator[tuple[str, TritonLoop]]:
    """Those that have tiles of their own."""
    for name, one in choices.computes:
        if isinstance(one.loop, TritonLoop) and one.loop.tile != ITEM_TILE:
            yield name, one.loop


def _small_loop(loop: TritonLoop, wide: str, head: int, keys: int) -> TritonLoop:
    """`keys`: tokens of them, each of `head` elements, where two warpgroups share tiles of attention; else 0."""
    if keys:
        tile = TileShape(SHARED_ROWS, head, keys, GROUP_WARPS, 2, warpgroups=2)
        return replace(loop, tile=tile, group=min(loop.group, 2))
    turns = loop.tile.warpgroups > 1
    least = _GROUP_TILE if turns else SMALLEST_DOT
    rows, cols = (least << (wide == axis) for axis in ("m", "n"))
    warps = GROUP_WARPS if turns else 1  # few packets of a small tile are for few threads
    tile = TileShape(rows, cols, min(loop.tile.k, SMALLEST_DOT), warps, 1 + turns, warpgroups=1 + turns)
    return replace(loop, tile=tile, group=min(loop.group, 2))


def _small_exchange(choice: ExchangeChoice) -> ExchangeChoice:
    """Few chunks. Of a queue few items through fewer slots, or through as many slots if there are enough for all of them; few
    consumers."""
    if not choice.slots:
        return replace(choice, mover=choice.mover.small, chunks=min(choice.chunks, _MOST_CHUNKS))
    items = min(choice.chunks, _MOST_ITEMS)
    slots = items if choice.slots >= choice.chunks else min(choice.slots, items - 1, _MOST_SLOTS)
    consumers = min(choice.consumers, 2)
    return replace(choice, mover=choice.mover.small, chunks=items, slots=slots, consumers=consumers)


def _rows_of_items(spec: Spec, schedule: Schedule) -> dict[str, int]:
    """Sizes along which items of queues lie -> as many rows as few small items have; the last item is as ragged."""
    found: dict[str, int] = {}
    for node, symbol in queues(spec):
        exchange = next(x for x in schedule.exchanges if x.name == f"{node.output.name}_queue")
        items, rows = min(exchange.chunks, _MOST_ITEMS), min(exchange.chunk_rows, _MOST_ITEM_ROWS)
        ragged = rows > 1 and exchange.rows % exchange.chunk_rows > 0
        whole = schedule.spec.value(node.inputs[0]).shape[0]
        found[symbol] = (items * rows - ragged) * (whole // exchange.rows)
    return found


def _sizes(spec: Spec, schedule: Schedule, choices: Choices, halved: Collection[str]) -> Iterator[dict[str, int]]:
    """Sizes to try, ragged like those of the schedule first. Rows come in parts of whole chunks of two tiles each; where tiles
    are to be left for the last round, more of them are tried at the end."""
    by_heads = bool(_cooperative(schedule))
    counts = (one.chunks for _, one in choices.exchanges if not (by_heads and one.cut is Cut.COLUMNS))
    chunks = max(counts, default=1)
    ranks, used = schedule.num_ranks, uses(spec, schedule)
    tiles_of = {name: loop.tile for name, loop in _loops(choices)}
    turns = any(tile.warpgroups > 1 for tile in tiles_of.values())
    smallest = SHARED_ROWS if by_heads else _GROUP_TILE if turns else SMALLEST_DOT
    widths = {  # columns of the widest tile
        name: max([SMALLEST_DOT, *(tiles_of[loop].n for loop in loops if loop in tiles_of)])
        for name, loops in used.columns.items()
    }
    kept = _rows_of_items(spec, schedule) | choices_of_tokens(spec, schedule) | uneven(spec, schedule)
    kept |= heads(spec, schedule, choices) | sizes_of_states(spec, schedule, choices)
    names = [name for name, _ in schedule.spec.sizes]
    for factor in (1, 2, 3, 5) if halved else (1,):
        for ragged in (used.ragged, frozenset[str](), frozenset(names)):
            # a tile that is wide takes an emulation long: two chunks of one are enough
            for tiles in (1, 2, 4) if max(widths.values(), default=0) > smallest and chunks > 1 else (2, 1, 4):
                found: dict[str, int] = {}
                for name in names:
                    extra = name in ragged
                    if name in used.rows:
                        # rows that are not divided are few where groups take turns, whose runs take long
                        parts = ranks if name in used.shared or not turns else 1
                        found[name] = parts * (smallest * tiles * chunks + (4 if extra else 0))
                    else:
                        width = widths.get(name, SMALLEST_DOT)
                        found[name] = _other(width * factor, ranks if name in used.shared else 1, extra, turns=turns)
                yield found | kept


def _other(width: int, ranks: int, ragged: bool, *, turns: bool) -> int:
    """A size that is no rows: one tile of `width` on each of the `ranks` that share it, two if it is whole; ragged by half a
    tile or less."""
    extra = 8 if ragged else 0
    if ranks == 1:
        return 2 * width + extra
    # two steps of k, of which one may be ragged, where groups take turns: with one they never come to one place of the ring
    steps = 2 if turns and not ragged else 1
    return ranks * (max(width, steps * SMALLEST_DOT) + extra)
