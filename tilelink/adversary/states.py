"""Small forms of merges of states: short sequences of few heads, as many as splits, ranks and packets need."""

from __future__ import annotations

from dataclasses import replace
from math import lcm

import sympy

from tilelink.ir.choices import Choices
from tilelink.ir.collective import Collective
from tilelink.ir.nodes import TileShape
from tilelink.ir.ops.user_fold import UserFold
from tilelink.ir.placement import Shard
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import DecodeAttention, MergeStates, Node, ReduceScatter, Spec
from tilelink.ir.steps import SMALLEST_DOT

_MOST_SPLITS = 3
_MOST_SEQUENCES, _MOST_KEYS = 2, 2
_ROWS, _BLOCK, _MOST_FOLD_SPLITS = 4, 8, 2  # of folds of the user's
_HEADS_OF_RANK, _GIVEN_HEADS_OF_RANK = 4, 8  # so that each thread of a warp has a packet


def small_collective(how: Collective) -> Collective:
    """The same with small tiles and few splits, where states are merged."""
    if how.tile is None:
        return how
    if how.tile.k == 1:  # of a fold of the user's
        return replace(how, tile=TileShape(_ROWS, _BLOCK, 1, 1, 1), splits=min(how.splits, _MOST_FOLD_SPLITS))
    if not how.tile.k:
        return replace(how, tile=TileShape(SMALLEST_DOT, SMALLEST_DOT, 0, 1, 1))
    tile = TileShape(SMALLEST_DOT, SMALLEST_DOT, SMALLEST_DOT, 1, 2)
    return replace(how, tile=tile, splits=min(how.splits, _MOST_SPLITS))


def sizes_of_states(spec: Spec, schedule: Schedule, choices: Choices) -> dict[str, int]:
    """Sizes of what makes states, by their symbols: a tile of tokens more than splits, ragged if they are."""
    found, values = dict[str, int](), {value.name: value for value in spec.inputs}
    splits = max((how.splits for _, how in choices.collectives), default=1)
    chunks = max((one.chunks for _, one in choices.exchanges), default=0)  # of rows behind a projection: sequences

    def put(extent: sympy.Expr, size: int) -> None:
        found.update(dict.fromkeys((str(symbol) for symbol in extent.free_symbols), size))

    for node in spec.nodes:
        ranks = schedule.num_ranks
        dims = _dims(spec, node)
        sequences = max(ranks * chunks, ranks if 0 in dims else _MOST_SEQUENCES)
        if isinstance(node.operation, UserFold):
            for extent, size in _sizes_of_fold(spec, schedule, node, splits).items():
                put(extent, size)
        if isinstance(node.operation, MergeStates):
            heads = _GIVEN_HEADS_OF_RANK * (ranks if 1 in dims else 1)
            for extent, size in zip(values[node.inputs[0]].shape, (sequences, heads, SMALLEST_DOT), strict=True):
                put(extent, size)
        if not isinstance(node.operation, DecodeAttention):
            continue
        named = node.operation.named(node.inputs)
        queries, keys = (values[named[one]].shape for one in ("q", "k"))
        groups = min(schedule.spec.value(named["k"]).shape[2], _MOST_KEYS)
        heads = lcm(groups, _HEADS_OF_RANK * (ranks if 1 in dims else 1))
        for extent, size in zip(queries, (sequences, heads, SMALLEST_DOT), strict=True):
            put(extent, size)
        put(keys[2], groups)
        columns = splits + 1  # tiles of tokens of a rank
        if node.operation.pages:
            put(keys[0], ranks * (sequences * columns + 1))
            put(keys[1], SMALLEST_DOT)
            put(values[named["pages"]].shape[1], ranks * columns)
        else:
            put(keys[1], ranks * (SMALLEST_DOT * columns - 5 * _is_ragged(schedule, named["k"])))
    return found


def _sizes_of_fold(spec: Spec, schedule: Schedule, node: Node, splits: int) -> dict[sympy.Expr, int]:
    """Extents of inputs that a fold of the user's reads: a block more than splits, two tiles of rows, ragged if they are."""
    fold, inputs = node.operation, {value.name: value for value in spec.inputs}
    assert isinstance(fold, UserFold), "asked for"
    found, ranks = dict[sympy.Expr, int](), schedule.num_ranks
    tile = next((how.tile for _, how in schedule.decided.collectives if how.tile is not None and how.tile.k == 1), None)
    for name, (_, index) in zip(node.inputs, fold.block.reads, strict=True):
        for dim, axis in enumerate(index if name in inputs else ()):
            whole, cut = schedule.spec.value(name), inputs[name].placement == Shard(dim)
            scattered = axis == fold.row and 0 in _dims(spec, node)
            own = whole.local[dim] // (ranks if scattered else 1)
            ragged = tile is not None and own % (tile.m if axis == fold.row else tile.n) > 0
            size = 2 * _ROWS + ragged if axis == fold.row else _BLOCK * (splits + 1) - 3 * ragged
            found[inputs[name].shape[dim]] = size * (ranks if cut or scattered else 1)
    return found


def _dims(spec: Spec, node: Node) -> set[int]:
    """Along which dimensions the states of a node are scattered."""
    readers = (one.operation for one in spec.nodes if node.output.name in one.inputs)
    return {one.dim for one in readers if isinstance(one, ReduceScatter)}


def _is_ragged(schedule: Schedule, keys: str) -> bool:
    """Whether the tokens of a rank are no whole tiles."""
    tokens = schedule.spec.value(keys).local[1]
    return any(how.tile is not None and how.tile.k and tokens % how.tile.n for _, how in schedule.decided.collectives)
