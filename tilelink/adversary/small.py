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
from tilelink.errors import NoLegalSchedule
from tilelink.ir.nodes import CommSms, CopyEngine, Exchange, Transfer
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import Spec, bind
from tilelink.ir.steps import SMALLEST_DOT, in_pieces
from tilelink.planner.plan import plan
from tilelink.proof.contract import flat
from topologies.errors import UserError
from topologies.topology import Topology

_MOST_CHUNKS = 2
_MOST_ITEMS, _MOST_SLOTS = 7, 3  # no multiple of each other
_MOST_ITEM_ROWS = 2
_GROUP_TILE = 64  # rows that one instruction of a warpgroup multiplies, and columns for two slices of a tile
_SMS = 4  # few, so that programs go through several tiles, and compete
_TURN_SMS = 3  # where warpgroups take turns: a program is four tasks, in Gluon, whose runs take five times as long
_MORE_SMS = (*range(9), 64)  # until some tiles are left for the last round, and few enough to be halved; or all are


def small_form(spec: Spec, schedule: Schedule, topology: Topology) -> Schedule:
    """A schedule of `spec` with the choices of `schedule`, for fewer SMs, smaller tiles and smaller sizes.

    Raises NoLegalSchedule if the choices go together at no small size that was tried.
    """
    halved = {
        name.rpartition(".")[0] for name, value in schedule.choices if name.endswith(".tail") and value == "halves"
    }
    wide = halved | _in_slices(schedule)
    pins = {name: _small_pin(name, value, wide) for name, value in schedule.choices}
    pins |= _small_queues(schedule)
    failure: UserError | None = None
    for sizes, more in product(_sizes(schedule, pins), _MORE_SMS if halved else (0,)):
        try:
            few = _few_sms(topology, schedule, more)
            some = in_proportion(spec, sizes, dict(schedule.spec.sizes))
            return plan(bind(spec, some, schedule.num_ranks, schedule.spec.inputs[0].dtype), few, pins)
        except UserError as error:
            failure = failure or error
    assert failure is not None
    raise NoLegalSchedule(
        function=spec.name,
        topology=topology.name,
        num_ranks=schedule.num_ranks,
        pins=", ".join(f"{name}={value}" for name, value in pins.items()),
        reason=f"no small size goes with these choices: {failure}",
    )


def _few_sms(topology: Topology, schedule: Schedule, more: int) -> Topology:
    """As many SMs as two compute programs and all that spins beside them need, a few, and `more`."""
    turns = any(kernel.compute is not None and kernel.compute.warpgroups > 1 for kernel in schedule.kernels())
    beside = sum(not turns or _spins(exchange, topology) for exchange in schedule.exchanges)
    few = (_TURN_SMS if turns else _SMS) + more + (schedule.num_ranks - 1) * beside
    return replace(topology, gpu=replace(topology.gpu, num_sms=few))


def _spins(exchange: Exchange, topology: Topology) -> bool:
    """Whether something may hold SMs while it waits to move bytes."""
    by_copy = isinstance(exchange.mover, CopyEngine)
    if isinstance(exchange.mover, CommSms) or (by_copy and exchange.transfer is Transfer.PULL):
        return True
    return by_copy and not topology.gpu.stream_wait_value


def _in_slices(schedule: Schedule) -> set[str]:
    """Roles whose tiles leave in pieces, slice by slice of their columns: one slice is not there to overwrite another."""
    roles = [kernel.compute for kernel in schedule.kernels() if kernel.compute is not None]
    return {role.name for role in roles if any(map(in_pieces, flat(role.body)))}


def _small_pin(name: str, value: str, wide: Collection[str]) -> str:
    made, _, field = name.rpartition(".")
    match field:
        case "tile":
            if "x" not in value:
                return value
            if value.endswith("g"):
                return f"{_GROUP_TILE}x{_GROUP_TILE << (made in wide)}x{SMALLEST_DOT}/4w2s2g"
            return f"{SMALLEST_DOT}x{SMALLEST_DOT << (made in wide)}x{0 if 'x0/' in value else SMALLEST_DOT}/4w1s"
        case "chunks":
            return str(min(int(value), _MOST_CHUNKS))
        case "group":
            return value if not value.isdigit() else str(min(int(value), 2))
        case "mover":
            return "CommSms(2)" if value.startswith("CommSms") else value
    return value


def _small_queues(schedule: Schedule) -> dict[str, str]:
    """Few items through fewer slots, or through as many slots if there are enough for all of them; few consumers."""
    pins: dict[str, str] = {}
    for exchange in schedule.exchanges:
        if exchange.slots:
            items = min(exchange.chunks, _MOST_ITEMS)
            slots = items if exchange.slots >= exchange.chunks else min(exchange.slots, items - 1, _MOST_SLOTS)
            pins |= {f"{exchange.name}.chunks": str(items), f"{exchange.name}.slots": str(slots)}
            consumers = dict(schedule.choices)[f"{exchange.name}.consumers"]
            few = consumers if not consumers.isdigit() else str(min(int(consumers), 2))
            pins[f"{exchange.name}.consumers"] = few
    return pins


def _rows_of_items(schedule: Schedule) -> dict[int, int]:
    """Rows of a rank in items of the schedule -> rows in the items of its small form; the last item is as ragged."""
    found = {}
    for exchange in schedule.exchanges:
        if exchange.slots:
            items, rows = min(exchange.chunks, _MOST_ITEMS), min(exchange.chunk_rows, _MOST_ITEM_ROWS)
            ragged = rows > 1 and exchange.rows % exchange.chunk_rows > 0
            found[exchange.rows] = items * rows - ragged
    return found


def _sizes(schedule: Schedule, pins: Mapping[str, str]) -> Iterator[dict[str, int]]:
    """Sizes to try, ragged like those of the schedule first. Rows come in parts of whole chunks of two tiles each."""
    chunks = max([int(value) for name, value in pins.items() if name.endswith(".chunks")], default=1)
    ranks, rows, shared = schedule.num_ranks, _rows(schedule), _shared(schedule)
    turns = [value for name, value in pins.items() if name.endswith(".tile") and value.endswith("g")]
    smallest = _GROUP_TILE if turns else SMALLEST_DOT
    cols = max([smallest, *(int(value.split("x")[1]) for value in turns)])
    queued = _rows_of_items(schedule)
    kept = {
        name: few * (size // rows)
        for name, size in schedule.spec.sizes
        for rows, few in queued.items()
        if size in (rows, rows * ranks)
    }
    for ragged in (_ragged(schedule), set(), {name for name, _ in schedule.spec.sizes}):
        # a tile that is wide takes an emulation long: two chunks of one are enough
        for tiles in (1, 2, 4) if cols > smallest and chunks > 1 else (2, 1, 4):
            part = smallest * tiles * chunks
            found = {
                name: _size(name in rows, name in shared, name in ragged, ranks, part, smallest, cols)
                for name, _ in schedule.spec.sizes
            }
            yield found | kept


def _size(rows: bool, shared: bool, ragged: bool, ranks: int, part: int, smallest: int, cols: int) -> int:
    """Rows: `part` a rank. Other sizes: two tiles of `cols`, or one on each rank; ragged by half a tile or less."""
    if rows:
        return ranks * (part + (4 if ragged else 0))
    # two steps of k, of which one may be ragged, where groups take turns: with one they never come to one place of the ring
    steps = 2 if smallest > SMALLEST_DOT and not ragged else 1
    each = steps * SMALLEST_DOT + (8 if ragged else 0)
    return ranks * each if shared else 2 * cols + (8 if ragged else 0)


def _shared(schedule: Schedule) -> set[str]:
    """Sizes that are divided among the ranks somewhere: those whose extent on a rank differs from the global one."""
    extents = {
        shape
        for value in (*schedule.spec.inputs, *(node.output for node in schedule.spec.nodes))
        for shape, local in zip(value.shape, value.local, strict=True)
        if shape != local
    }
    return {name for name, size in schedule.spec.sizes if size in extents}


def _rows(schedule: Schedule) -> set[str]:
    """Sizes along which some exchange has its rows: the first dimension of what is gathered or scattered."""
    whole = {exchange.rows * factor for exchange in schedule.exchanges for factor in (1, schedule.num_ranks)}
    found = {name for name, size in schedule.spec.sizes if size in whole}
    return found or {schedule.spec.sizes[0][0]}


def _ragged(schedule: Schedule) -> set[str]:
    """Sizes that the tiles of the schedule do not divide."""
    tiles = {axis.tile for kernel in schedule.kernels() if kernel.compute for axis in kernel.compute.axes if axis.tile}
    largest = max(tiles, default=1)
    return {name for name, size in schedule.spec.sizes if (size // schedule.num_ranks) % largest}
