"""Folds over keys and values: what a state has taken, and whether that is all that its queries see, each key once.

out[i] = the softmax of q[i] . k[j] times v[j], over the keys j that i sees: 0 <= i - j < window with a causal mask, else all.
Exponentials and sums of any order have the same meaning, so it suffices to know which keys were taken, and seen by which rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from tilelink.ir.ops.attention import Attend
from tilelink.ir.spec import BoundNode, LogWeights
from tilelink.proof.contents.tile import LEAST_SCORE, Flags, Folded, Full, Held, Nothing, Round, Term, Tile, Zero
from tilelink.proof.contents.trace import Done
from tilelink.proof.contents.values import Mismatch, Part, Values, first_made
from tilelink.schedule.index import Ints


def folded(done: Done, held: Mapping[str, Held], ranks: Ints) -> tuple[Held, ...]:
    """The state with one more round. Raises Mismatch."""
    *names, scale, cap = done.operands[:8]
    state, tiles = (
        [held.get(str(one), Nothing(f"{one} is no tile")) for one in some] for some in (names[:3], names[3:])
    )
    for one in (*state, *tiles):
        if isinstance(one, Nothing):
            return (one,) * 3
    queries, keys, values = tiles
    if not (isinstance(queries, Tile) and isinstance(keys, Tile) and isinstance(values, Tile)):
        raise Mismatch("it folds what is no value of the spec")
    numbers = float(str(scale)), float(str(cap))
    before = _rounds(state, queries, numbers)
    plain = len(done.operands) == 8
    ahead, here = (_column(one, ranks) for one in (done.operands[8:10] or (0, 0)))
    window = _column(0 if plain else done.operands[10], ranks)
    if plain:
        here = keys.extent[0]
    every = np.ones(len(ranks), bool)
    more = Round(every, keys, values, ahead, here, every & plain, window)
    return tuple(Folded(which, queries, numbers, (*before, more)) for which in range(3))


def _rounds(state: Sequence[Held], queries: Tile, numbers: tuple[float, ...]) -> tuple[Round, ...]:
    top, weight, total = state
    if isinstance(top, Full):
        if top.number != LEAST_SCORE or not isinstance(weight, Zero) or not isinstance(total, Zero):
            raise Mismatch("a fold begins with no weights, no sums, and a score below all others")
        return ()
    for which, one in enumerate(state):
        if not isinstance(one, Folded) or one.which != which or one.numbers != numbers:
            raise Mismatch("it is not the state of this fold")
        if not same_tile(one.queries, queries, one.begun) or not _alike(one.rounds, state[0].rounds):  # type: ignore[union-attr]
            raise Mismatch("parts of the state are of different folds")
    assert isinstance(top, Folded)
    return top.rounds


def _alike(one: tuple[Round, ...], other: tuple[Round, ...]) -> bool:
    """Whether the same has been taken: tiles of a step are the same objects, but for those behind a branch."""
    return len(one) == len(other) and all(
        a is b or (bool((a.done == b.done).all()) and same_tile(a.keys, b.keys) and same_tile(a.values, b.values))
        for a, b in zip(one, other, strict=True)
    )


def same_tile(one: Tile, other: Tile, where: Flags | None = None) -> bool:
    """Whether both are the same elements, in the lanes of `where` or in all."""
    if one is other:
        return True
    columns = [(one.owner, other.owner), (one.known, other.known)]
    for name in ("start", "extent", "skip"):
        columns += zip(getattr(one, name), getattr(other, name), strict=True)
    return (one.term, one.axes) == (other.term, other.axes) and all(
        bool(((a == b) | (False if where is None else ~where)).all()) for a, b in columns
    )


def attended(values: Values, state: Sequence[Held], ranks: Ints) -> Held:
    """The attention that a state is of. Raises Mismatch."""
    return _taken_all(values, state, (2, 1), ranks)


def logs_attended(values: Values, state: Sequence[Held], ranks: Ints) -> Held:
    """The logarithms, of base 2, of the sums of weights of the attention that a state is of. Raises Mismatch."""
    found = _taken_all(values, state, (0, 1), ranks)
    if not isinstance(found, Tile):
        return found
    how = values.makers[found.term.name].operation
    assert isinstance(how, Attend), "it is the attention of a state"
    one = found.extent[1] * 0 + 1
    start, extent = (found.start[0], found.start[1] // how.width), (found.extent[0], one)
    term = logs_of_means(values, found.term.name, base2=True)
    shape = (found.shape[0], 1) if found.shape else None
    return replace(found, term=term, start=start, extent=extent, skip=(found.skip[0], one * 0), shape=shape)


def logs_of_means(values: Values, means: str, base2: bool) -> Term:
    """The logarithms of the sums of weights that belong to `means`. Raises Mismatch if nobody needs them."""
    first = values.first
    for node in values.spec.nodes:
        wanted = isinstance(node.operation, LogWeights) and node.operation.base2 == base2
        if wanted and first[node.inputs[0]] == first[means]:
            return values.term(node)
    raise Mismatch(f"nobody needs {'' if base2 else 'natural '}logarithms of {means}")


def _taken_all(values: Values, state: Sequence[Held], which: tuple[int, int], ranks: Ints) -> Held:
    """What two tiles of a state are of, if they have taken all that their queries see. Raises Mismatch."""
    total, weight = state
    for one in state:
        if isinstance(one, Nothing):
            return one
    if not (isinstance(total, Folded) and isinstance(weight, Folded)) or (total.which, weight.which) != which:
        raise Mismatch("it is not the state of a fold")
    if (wrong := total.queries.some & ~total.begun).any():
        raise Mismatch("nothing has been taken", wrong)
    if not same_tile(total.queries, weight.queries) or not _alike(total.rounds, weight.rounds):
        raise Mismatch("parts of the state are of different folds")
    made = [(node, op) for node in values.spec.nodes if isinstance(op := node.operation, Attend)]
    return first_made(partial(_attention, values, total, ranks), made, "the spec has no attention")


def _attention(values: Values, folded: Folded, ranks: Ints, node: BoundNode, how: Attend) -> Tile:
    if folded.numbers != (how.scale, how.soft_cap):
        raise Mismatch(f"scores of {node.output.name} are scaled by {how.scale} and capped at {how.soft_cap}")
    queries, name = _part(values, folded.queries, node.inputs[0], ranks), node.output.name
    known, head = folded.queries.known.copy(), queries.start[1] // how.width
    rows = values.shapes[node.inputs[0]][0] // how.sequences
    sequence, begins = queries.start[0] // rows, queries.start[0] % rows
    if (wrong := folded.queries.some & (begins + queries.extent[0] > rows)).any():
        raise Mismatch(f"a tile of {name} is of one sequence", wrong)
    begins = _token(name, how, begins, queries.extent[0], rows, ranks, folded.queries.some)
    of_one_head = (queries.start[1] % how.width == 0) & (queries.extent[1] == how.width) & (queries.skip[1] == 0)
    some = folded.queries.some
    if (wrong := some & ~of_one_head).any():
        raise Mismatch(f"a tile of {name} is of one head", wrong)
    first, last = begins + queries.skip[0], begins + queries.extent[0]  # rows of queries
    taken = list[tuple[Ints, Ints]]()
    for one in folded.rounds:
        known &= ~one.done | (one.keys.known & one.values.known)
        here = some & one.done
        keys, beside = (
            _part(values, tile, given, ranks, here)
            for tile, given in ((one.keys, node.inputs[1]), (one.values, node.inputs[2]))
        )
        _check_heads(name, how, head, (keys, beside), here)
        size = values.shapes[node.inputs[1]][0]
        keys, beside = (_of_sequence(name, how, part, sequence, size, one.here, here) for part in (keys, beside))
        wrong = here & (
            (keys.start[0] != beside.start[0]) | (beside.extent[0] < one.here) | (keys.extent[0] < one.here)
        )
        if wrong.any():
            raise Mismatch(f"{name}: other rows of values than of keys", wrong)
        for start, many, offset in _pieces(how, keys.start[0], one.here, size // how.sequences):
            some_here = here & (many > 0)
            _check_seen(name, how, one, (start, many, offset), (begins, first, last), some_here)
            taken.append((np.where(some_here, start, -1), np.where(some_here, start + many, -1)))
    _check_covered(node, how, taken, (first, last), values.shapes[node.inputs[1]][0] // how.sequences, some & known)
    term, tile = values.term(node), folded.queries
    return Tile(term, (0, 1), ranks, queries.start, queries.extent, queries.skip, known, shape=tile.shape)


def _of_sequence(name: str, how: Attend, part: Part, sequence: Ints, size: int, many: Ints, here: Flags) -> Part:
    """`many` rows of keys or values, of `size` in all, counted from the first one of their sequence."""
    if how.sequences == 1:
        return part
    tokens = size // (how.sequences * how.parts)  # of a sequence in a part
    place, row = np.divmod(part.start[0], tokens * how.sequences)
    wrong = here & ((row // tokens != sequence) | (row % tokens + many > tokens))
    if wrong.any():
        raise Mismatch(f"{name}: keys or values of another sequence", wrong)
    return replace(part, start=(place * tokens + row % tokens, part.start[1]))


def _part(values: Values, tile: Tile, name: str, ranks: Ints, here: Flags | None = None) -> Part:
    if tile.axes != (0, 1):
        raise Mismatch(f"rows and columns of {tile.term} are not where attention needs them")
    part = values.part(tile, name)
    if (wrong := tile.some & (True if here is None else here) & ~part.on(ranks)).any():
        raise Mismatch(f"it is {name} of another rank", wrong)
    return part


def _check_heads(name: str, how: Attend, head: Ints, parts: tuple[Part, ...], here: Flags) -> None:
    for part in parts:
        wrong = here & ((part.start[1] != head // how.shared * how.width) | (part.extent[1] != how.width))
        wrong |= here & ((part.skip[0] > 0) | (part.skip[1] > 0))
        if wrong.any():
            raise Mismatch(f"{name}: keys or values of another head", wrong)


def _token(name: str, how: Attend, row: Ints, many: Ints, rows: int, ranks: Ints, where: Flags) -> Ints:
    """The token of the first of `many` rows of queries of a sequence, of which a rank has `rows`."""
    if not how.apart:
        return row
    if not how.zigzag:
        return row + ranks * rows
    half, inside = np.divmod(row, rows // 2)
    if (wrong := where & (inside + many > rows // 2)).any():
        raise Mismatch(f"a tile of {name} is of one block of tokens", wrong)
    found: Ints = np.where(half > 0, 2 * how.parts - 1 - ranks, ranks) * (rows // 2) + inside
    return found


def _pieces(how: Attend, start: Ints, many: Ints, tokens: int) -> list[tuple[Ints, Ints, Ints]]:
    """Of `many` keys of a sequence of so many `tokens`, which follow each other in memory, those whose tokens do: the first
    token, how many, and how far they lie from the first key."""
    if not how.zigzag:
        return [(start, many, start * 0)]
    block = tokens // (2 * how.parts)
    found = list[tuple[Ints, Ints, Ints]]()
    place, row = np.divmod(start, 2 * block)
    for half in (0, 1):
        low, high = np.maximum(row, half * block), np.minimum(row + many, (half + 1) * block)
        number = 2 * how.parts - 1 - place if half else place
        found.append((number * block + low - half * block, np.maximum(high - low, 0), low - row))
    past = np.maximum(row + many - 2 * block, 0)  # of another part: nobody should
    return [*found, (start * 0 - 1, past, start * 0)]


def _check_seen(
    name: str,
    how: Attend,
    one: Round,
    keys: tuple[Ints, Ints, Ints],
    queries: tuple[Ints, Ints, Ints],
    here: Flags,
) -> None:
    """Each row sees of these keys those that it is to see, and none that do not exist."""
    (start, many, offset), (begins, first, last) = keys, queries
    end, ahead = start + many, one.ahead - offset
    each = one.plain.copy()  # whether all rows see all keys, and whether they should
    each |= (first - begins + ahead >= many - 1) & ((one.window == 0) | (last - 1 - begins + ahead < one.window))
    should = each | True
    if how.causal:
        should &= end - 1 <= first
    if how.window:
        should &= last - 1 - start < how.window
    exactly = ~one.plain & (ahead == begins - start) & (one.window == how.window) & how.causal
    wrong = here & ((start < 0) | ~(exactly | (each & should)))
    if wrong.any():
        raise Mismatch(f"{name}: queries see other keys than they should", wrong)


def _check_covered(
    node: BoundNode,
    how: Attend,
    taken: Sequence[tuple[Ints, Ints]],
    queries: tuple[Ints, Ints],
    size: int,
    where: Flags,
) -> None:
    """All keys that any row sees have been taken, none of them twice."""
    first, last = queries
    low = np.maximum(first - how.window + 1, 0) if how.window else first * 0
    high = np.minimum(last, size) if how.causal else first * 0 + size
    reached, name = low.copy(), node.output.name
    if taken:
        starts, ends = (np.stack(one) for one in zip(*taken, strict=True))
        order = np.argsort(starts, axis=0, kind="stable")
        starts, ends = (np.take_along_axis(one, order, axis=0) for one in (starts, ends))
        before = np.full(len(first), -1, np.int64)  # where the tile before ends
        for start, end in zip(starts, ends, strict=True):
            some = end > start
            if (wrong := where & some & (start < before)).any():
                raise Mismatch(f"{name}: some keys are taken twice", wrong)
            if (wrong := where & some & (start > reached) & (reached < high)).any():
                raise Mismatch(f"{name}: not all keys are taken", wrong)
            before = np.where(some, end, before)
            reached = np.where(some, np.maximum(reached, end), reached)
    if (wrong := where & (reached < high)).any():
        raise Mismatch(f"{name}: not all keys are taken", wrong)


def _column(number: str | float | Ints, ranks: Ints) -> Ints:
    if isinstance(number, str):
        raise Mismatch(f"{number} is no number")
    return np.broadcast_to(np.asarray(number, np.int64), ranks.shape)
