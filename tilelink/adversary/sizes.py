"""What the sizes of a spec are for, by their symbols: rows of exchanges, axes that ranks share, columns of tiles.

Two sizes may have one value, so that values tell nothing: at M = K = N = 4096 everything looks like rows of an exchange.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import sympy

from tilelink.ir.choices import Choices
from tilelink.ir.collective import Collective
from tilelink.ir.movers import Issuer
from tilelink.ir.nodes import TURN_SLICE_BYTES, Axis, ComputeRole
from tilelink.ir.ops.attention import BATCH, HEADS, TOKENS, WIDTH
from tilelink.ir.order import Cut
from tilelink.ir.placement import Shard
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import Attention, Matmul, Node, Route, SendRecv, Spec, Value
from tilelink.ir.steps import SMALLEST_DOT, MatmulBody
from tilelink.ir.walk import flat

_MOST_EXPERTS = 16  # on a rank of a small form


@dataclass(frozen=True, slots=True)
class Uses:
    """Of each symbol of a spec what it is for.

    `rows`: an exchange has its rows along it. `shared`: it is divided among the ranks, in a placement or while a sum is made.
    `ragged`: the tiles of the schedule do not divide it. `columns`: the names of the loops that have their columns along it.
    """

    rows: frozenset[str]
    shared: frozenset[str]
    ragged: frozenset[str]
    columns: Mapping[str, frozenset[str]]


def uses(spec: Spec, schedule: Schedule) -> Uses:
    """What each size of `spec` is for in `schedule`."""
    values = {value.name: value for value in (*spec.inputs, *(node.output for node in spec.nodes))}
    shared = {
        symbol
        for value in values.values()
        if isinstance(value.placement, Shard)
        for symbol in _symbols(value.shape[value.placement.dim])
    }
    ragged: set[str] = set()
    columns: dict[str, set[str]] = {}
    for kernel in schedule.kernels():
        if kernel.compute is not None:
            for axis, extent in _extents(spec, values, kernel.compute):
                if axis.tile and axis.extent % axis.tile:
                    ragged |= _symbols(extent)
            for symbol in _columns(values, kernel.compute.name):
                columns.setdefault(symbol, set()).add(kernel.compute.name)
    chosen = [*_rows(spec, values, dict(schedule.decided.collectives))]
    rows = {symbol for _, symbol in chosen} | _tokens(spec, values) or {schedule.spec.sizes[0][0]}
    shared |= {symbol for how, symbol in chosen if how.shots > 1}  # each rank adds its share of the rows
    found = {symbol: frozenset(names) for symbol, names in columns.items()}
    return Uses(frozenset(rows), frozenset(shared), frozenset(ragged), found)


def queues(spec: Spec) -> Iterator[tuple[Node, str]]:
    """Each node that sends items through slots, with the symbol of the rows that it sends."""
    values = {value.name: value for value in (*spec.inputs, *(node.output for node in spec.nodes))}
    for node in spec.nodes:
        if isinstance(node.operation, SendRecv):
            for symbol in _symbols(values[node.inputs[0]].shape[0]):
                yield node, symbol


def uneven(spec: Spec, schedule: Schedule) -> dict[str, int]:
    """Numbers of experts that ranks share unevenly: few on a rank, of which as many are missing on the last ranks."""
    ranks, found = schedule.num_ranks, {}
    for value, given in zip(spec.inputs, schedule.spec.inputs, strict=True):
        if value.placement == Shard(0) and given.shape[0] % ranks and value.shape[0].is_Symbol:
            missing = given.local[0] * ranks - given.shape[0]
            found[str(value.shape[0])] = min(given.local[0], _MOST_EXPERTS) * ranks - missing
    return found


def choices_of_tokens(spec: Spec, schedule: Schedule) -> dict[str, int]:
    """Numbers of experts of a token, as they are: they are few, and rows by assignment are a multiple of them."""
    sizes, values = dict(schedule.spec.sizes), {value.name: value for value in spec.inputs}
    ids = (values[node.inputs[0]] for node in spec.nodes if isinstance(node.operation, Route))
    return {symbol: sizes[symbol] for value in ids for symbol in _symbols(value.shape[1])}


def head_by_head(choices: Choices) -> bool:
    """Whether warps push heads of keys, each as a chunk."""
    return any(one.mover.issuer is Issuer.WARPS for _, one in choices.exchanges)


def head_width(choices: Choices) -> int:
    """Elements of a small head: warps push whole rows of pieces, of 2 bytes an element."""
    return TURN_SLICE_BYTES // 2 if head_by_head(choices) else SMALLEST_DOT


def heads(spec: Spec, schedule: Schedule, choices: Choices) -> dict[str, int]:
    """Sizes of attention but for tokens: one sequence, small heads; of keys as many as chunks and ranks that share them, and of
    queries as many times as there are."""
    values, found = (
        {value.name: value for value in (*spec.inputs, *(node.output for node in spec.nodes))},
        dict[str, int](),
    )
    for node in spec.nodes:
        if isinstance(node.operation, Attention):
            queries, keys = (schedule.spec.value(name).shape for name in node.inputs[:2])
            chunks = max((one.chunks for _, one in choices.exchanges if one.cut is Cut.COLUMNS), default=1)
            many = max(chunks, 1 if head_by_head(choices) else 2) * (
                schedule.num_ranks if values[node.inputs[1]].placement == Shard(HEADS) else 1
            )
            shared = queries[HEADS] // keys[HEADS]
            sizes = {BATCH: 1, WIDTH: head_width(choices)}
            for name, heads_of in zip(node.inputs[:2], (many * shared, many), strict=True):
                for dim, size in (sizes | {HEADS: heads_of}).items():
                    found |= dict.fromkeys(_symbols(values[name].shape[dim]), size)
    return found


def _tokens(spec: Spec, values: Mapping[str, Value]) -> set[str]:
    """Sizes of attention along which queries and keys lie: rows of its tiles, whoever brings the keys."""
    attended = (node.inputs[:2] for node in spec.nodes if isinstance(node.operation, Attention))
    return {symbol for names in attended for name in names for symbol in _symbols(values[name].shape[TOKENS])}


def _rows(
    spec: Spec, values: Mapping[str, Value], collectives: Mapping[str, Collective]
) -> Iterator[tuple[Collective, str]]:
    """Each collective that exchanges carry out, with the sizes of the first dimension of what it takes: chunks are rows
    of that."""
    for node in spec.nodes:
        how = collectives.get(node.output.name)
        if how is not None and how.by_chunks:
            shape = values[node.inputs[0]].shape
            yield from ((how, symbol) for symbol in _symbols(shape[TOKENS if len(shape) == 4 else 0]))


def _extents(spec: Spec, values: Mapping[str, Value], role: ComputeRole) -> Iterator[tuple[Axis, sympy.Expr]]:
    """Each axis of a role with the symbolic size along it: those that are written, and the contracted one."""
    made = values.get(role.name)
    written = [axis for axis in role.axes if not axis.reduction]
    if made is not None and len(made.shape) == 4:  # heads are whole tiles
        yield written[0], made.shape[TOKENS]
    elif made is not None:
        yield from zip(written, made.shape, strict=False)
    for node in spec.nodes:
        if isinstance(node.operation, Attention) and node.output.name == role.name:
            yield from ((axis, values[node.inputs[1]].shape[TOKENS]) for axis in role.axes if axis.name == "k")
    matmuls = {step.result for step in flat(role.body) if isinstance(step, MatmulBody)}
    for node in spec.nodes:
        if isinstance(node.operation, Matmul) and node.output.name in matmuls:
            yield from ((axis, values[node.inputs[0]].shape[1]) for axis in role.axes if axis.reduction)


def _columns(values: Mapping[str, Value], role: str) -> set[str]:
    made = values.get(role)
    return _symbols(made.shape[-1]) if made is not None and 1 < len(made.shape) < 4 else set()


def _symbols(extent: sympy.Expr) -> set[str]:
    return {str(symbol) for symbol in extent.free_symbols}
