"""States of a softmax: those of shares of the tokens of a rank, those that are given, and the merge of those of all ranks.

The merge of states, in any order, is the state of all that they have seen. So it suffices to know whose states have been merged:
that of each share of each rank once, of the same heads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilelink.ir.ops.user_fold import UserFold
from tilelink.ir.spec import Attend, BoundNode, BoundSpec, BoundValue, DecodeAttention, LogWeights, Merged, MergeStates
from tilelink.proof.contents.folds import logs_attended, logs_of_means, same_tile
from tilelink.proof.contents.orders import InBase2, base_2_of
from tilelink.proof.contents.shares import OWN_SHARE, logs_of, means_of
from tilelink.proof.contents.tile import LEAST_SCORE, Folded, Full, Held, MergedStates, Nothing, Share, Term, Tile, Zero
from tilelink.proof.contents.trace import Done
from tilelink.proof.contents.values import Mismatch, Values
from tilelink.schedule.index import Ints

OPS = (OWN_SHARE, "log_of_weights", "merge_state", "in_base_2", "in_base_e")


def with_logs_in_base_2(spec: BoundSpec) -> BoundSpec:
    """`spec` with logarithms that are given, or wanted, in the base of the merge. Which are wanted of some means is no matter of
    these means, so that those of the same states are the same."""
    given = tuple(_in_base_2(spec.value(logs), node.line) for node, logs in _logs_given(spec))
    nodes = list[BoundNode]()
    for node in spec.nodes:
        operation, output = node.operation, node.output
        if isinstance(operation, Merged | Attend):
            node = replace(node, operation=replace(operation, logs="", base2=False))
        nodes.append(node)
        if isinstance(operation, LogWeights) and not operation.base2:
            of_2 = replace(operation, base2=True)
            nodes.append(replace(node, operation=of_2, output=replace(output, name=base_2_of(output.name))))
    return replace(spec, nodes=(*given, *nodes))


def _logs_given(spec: BoundSpec) -> Iterator[tuple[BoundNode, str]]:
    for node in spec.nodes:
        if isinstance(node.operation, Merged) and isinstance(node.operation.how, MergeStates):
            yield node, node.inputs[1]


def _in_base_2(logs: BoundValue, line: str) -> BoundNode:
    made = replace(logs, name=base_2_of(logs.name))
    return BoundNode(InBase2(), (logs.name,), made, line)  # type: ignore[arg-type]


def made_of_states(values: Values, done: Done, op: str, held: Mapping[str, Held], ranks: Ints) -> tuple[Held, ...]:
    """What one of `OPS` makes. Raises Mismatch."""
    operands = [held.get(str(one), Nothing(f"{one} is no tile")) for one in done.operands if isinstance(one, str)]
    if op == OWN_SHARE:
        (queries, *_), (_, name, split) = operands, done.operands
        if isinstance(queries, Nothing):
            return (queries,) * 3
        number = np.broadcast_to(np.asarray(split, np.int64), ranks.shape)
        if not isinstance(queries, Tile) or queries.axes != (1, 2):
            raise Mismatch("it folds what are no queries of heads")
        return tuple(Share(which, str(name), _queries(values, str(name), queries, ranks), number) for which in range(3))
    for one in operands:
        if isinstance(one, Nothing):
            return (one,) * (3 if op == "merge_state" else 1)
    if op == "in_base_2":
        return (_based(values, operands[0]),)
    if op == "in_base_e":
        return (_natural(values, operands[0]),)
    if op == "log_of_weights":
        if isinstance(operands[0], MergedStates):
            return (_log_of_all(values, operands, ranks),)
        if isinstance(operands[0], Folded):
            return (logs_attended(values, operands, ranks),)
        return (_log(operands, ranks),)
    return _merged(values, operands, ranks)


def _queries(values: Values, out: str, queries: Tile, ranks: Ints) -> Tile:
    node = values.makers[out]
    part = values.part(queries, node.inputs[0])
    if (wrong := queries.some & ~part.on(ranks)).any():
        raise Mismatch("queries of another rank", wrong)
    assert isinstance(node.operation, Merged)
    width = node.operation.shape[2]
    if (wrong := queries.some & ((part.start[2] != 0) | (part.extent[2] != width))).any():
        raise Mismatch("not all elements of a head", wrong)
    return queries


def _based(values: Values, logs: Held) -> Tile:
    if not isinstance(logs, Tile) or base_2_of(logs.term.name) not in values.makers:
        raise Mismatch("it has no logarithms of given states")
    return replace(logs, term=Term(base_2_of(logs.term.name)))


def _natural(values: Values, logs: Held) -> Tile:
    made = values.makers.get(logs.term.name) if isinstance(logs, Tile) else None
    if (
        not isinstance(logs, Tile)
        or made is None
        or not isinstance(made.operation, LogWeights)
        or not made.operation.base2
    ):
        raise Mismatch("it has no logarithms of base 2")
    return replace(logs, term=logs_of_means(values, made.inputs[0], base2=False))


def _log_of_all(values: Values, operands: Sequence[Held], ranks: Ints) -> Tile:
    """The logarithms of the sums of the weights of all states."""
    top, weight = operands
    if not isinstance(top, MergedStates) or not isinstance(weight, MergedStates) or (top.which, weight.which) != (0, 1):
        raise Mismatch("it is not the state of a merge")
    start, extent, skip, _ = _own_part(values, top, weight, ranks)
    place, term = top.place, logs_of_means(values, top.out, base2=True)
    shape = (place.shape[0], 1) if place.shape else None
    return Tile(term, (1, 0), ranks, start[:2], extent[:2], skip[:2], place.known, shape=shape)


def _log(operands: Sequence[Held], ranks: Ints) -> Tile:
    top, weight = operands
    if not isinstance(top, Share) or not isinstance(weight, Share) or (top.which, weight.which) != (0, 1):
        raise Mismatch("it is not the state of a share")
    if top.out != weight.out or top.queries is not weight.queries:
        raise Mismatch("parts of the state are of different folds")
    q, one = top.queries, np.ones(len(ranks), np.int64)
    start, extent = (top.split, q.start[0], q.start[1]), (one, q.extent[0], q.extent[1])
    shape = (q.shape[0], 1) if q.shape else None
    return Tile(Term(logs_of(top.out)), (2, None), ranks, start, extent, (one * 0, *q.skip[:2]), q.known, shape=shape)


def mean_of_share(total: Share, weight: Held, ranks: Ints) -> Tile:
    """Values by weight, of one share. Raises Mismatch."""
    if not isinstance(weight, Share) or (total.which, weight.which) != (2, 1) or total.queries is not weight.queries:
        raise Mismatch("it is not the state of a share")
    q, one = total.queries, np.ones(len(ranks), np.int64)
    start, extent = (total.split, *q.start), (one, *q.extent)
    return Tile(Term(means_of(total.out)), (2, 3), ranks, start, extent, (one * 0, *q.skip), q.known, shape=q.shape)


def _merged(values: Values, operands: Sequence[Held], ranks: Ints) -> tuple[Held, ...]:
    """The state with one more."""
    top, weight, total, mean, log = operands
    if not isinstance(mean, Tile) or not isinstance(log, Tile):
        raise Mismatch("it merges what is no state")
    node, splits = _node_of(values, mean, log)
    lead = len(mean.start) - 3
    known = mean.known & log.known
    some = mean.some & log.some
    wrong = some & (mean.owner != log.owner)
    for a, b in zip(mean.start[:-1], log.start, strict=True):
        wrong |= some & (a != b)
    wrong |= some & (mean.extent[lead + 1] > log.extent[lead + 1])
    if wrong.any():
        raise Mismatch(f"means and logarithms of {node.output.name} are of different states", wrong)
    number = np.maximum(mean.owner, 0) * splits + (mean.start[0] if lead else 0)
    times = np.zeros((len(ranks), values.ranks * splits), np.int16)
    times[np.arange(len(ranks)), number] = 1
    place = replace(mean, start=mean.start[lead:], extent=mean.extent[lead:], skip=mean.skip[lead:], known=known)
    if isinstance(total, MergedStates):
        before = [one for one in (top, weight, total) if isinstance(one, MergedStates)]
        if [one.which for one in before] != [0, 1, 2] or any(one.times is not total.times for one in before):
            raise Mismatch("it is not the state of this merge")
        both = total.place.some & some
        wrong = np.zeros(len(ranks), bool)
        for a, b in zip(total.place.start, place.start, strict=True):
            wrong |= both & (a != b)
        if total.out != node.output.name or wrong.any():
            raise Mismatch(f"states of other elements of {node.output.name} are merged", wrong)
        times = total.times + times
        place = total.place.within(place)
    elif not (
        isinstance(top, Full) and top.number == LEAST_SCORE and isinstance(weight, Zero) and isinstance(total, Zero)
    ):
        raise Mismatch("a merge begins with no weights, no sums, and a logarithm below all others")
    return tuple(MergedStates(which, node.output.name, place, times) for which in range(3))


def _node_of(values: Values, mean: Tile, log: Tile) -> tuple[BoundNode, int]:
    """What a state is of, and how many a rank has of it."""
    for node in values.spec.nodes:
        if not isinstance(node.operation, Merged) or isinstance(node.operation.how, UserFold):
            continue
        out = node.output.name
        if isinstance(node.operation.how, DecodeAttention):
            if (mean.term, log.term) == (Term(means_of(out)), Term(logs_of(out))):
                return node, values.shapes[means_of(out)][0]
            continue
        means, logs = node.inputs
        logs = logs if node.operation.how.base2 else base_2_of(logs)
        if (mean.term, log.term) == (Term(means), Term(logs)):
            return node, 1
    raise Mismatch(f"{mean.term} with {log.term} is no state")


def mean_of_all(values: Values, total: MergedStates, weight: Held, ranks: Ints) -> Tile:
    """The result of a merge, which has the states of all. Raises Mismatch."""
    if not isinstance(weight, MergedStates) or (total.which, weight.which) != (2, 1):
        raise Mismatch("it is not the state of a merge")
    start, extent, skip, how = _own_part(values, total, weight, ranks)
    place, own = total.place, how.shape
    if not how.flat:
        return replace(place, term=Term(total.out), owner=ranks, start=start, axes=(1, 2))
    if (wrong := place.some & (extent[1] > 1)).any():
        raise Mismatch(f"heads of {total.out} lie side by side", wrong)
    first = (start[0], start[1] * own[2] + start[2])
    long, masked = (extent[0], extent[2]), (skip[0], skip[2])
    return Tile(Term(total.out), (0, 1), ranks, first, long, masked, place.known, shape=place.shape)


Columns = tuple[Ints, ...]


def _own_part(
    values: Values, total: MergedStates, other: MergedStates, ranks: Ints
) -> tuple[Columns, Columns, Columns, Merged]:
    """Where the elements of a merge lie in the part of a rank, (start, extent, skip): the states of all are in it, each once."""
    same = np.array_equal(total.times, other.times) and same_tile(total.place, other.place)
    if total.out != other.out or not same:
        raise Mismatch("it is not the state of a merge")
    place, node = total.place, values.makers[total.out]
    wrong = place.some & (total.times != 1).any(axis=1)
    if wrong.any():
        lane = int(np.flatnonzero(wrong)[0])
        state = int(np.flatnonzero(total.times[lane] != 1)[0])
        rank, split = divmod(state, total.times.shape[1] // values.ranks)
        raise Mismatch(f"share {split} of rank {rank} is merged {total.times[lane][state]} times", wrong)
    assert isinstance(node.operation, Merged)
    start, extent, skip, dim = list(place.start), place.extent, place.skip, node.operation.dim
    own = list(node.operation.shape)
    if dim is not None:
        own[dim] //= values.ranks
        start[dim] = start[dim] - ranks * own[dim]
        if (wrong := place.some & ((start[dim] < 0) | (start[dim] + extent[dim] > own[dim]))).any():
            raise Mismatch(f"it is {node.output.name} of another rank", wrong)
    return tuple(start), extent, skip, node.operation
