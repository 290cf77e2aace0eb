"""Folds over a share of a rank's tokens, for every length at once: what splits of a tile of heads have is what the rank has.

    for block < n: keys = k[...]; values = v[...]; state = attend(state, queries, keys, values, ...)
    ->   state = own_share(queries, split)

That is so where the tokens that splits of the same heads go over are those that the query sees, each once, whatever the lengths
of sequences are. Indices are steps in the number of tokens, which change where a tile of keys begins or ends. So all lengths at
these places are looked at, with one more and one less; of very long sequences some, drawn with a seed of their own. What pages
hold is where a table says: row t % page of the page that it has for number t // page.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tilelink.ir.placement import Partial
from tilelink.ir.spec import BoundNode, BoundSpec, BoundValue, DecodeAttention, Merged
from tilelink.proof.bug_class import BugClass
from tilelink.proof.contents.orders import LogsOfShares, MeansOfShares
from tilelink.proof.findings import Finding
from tilelink.proof.happens_before.lanes import Lanes
from tilelink.schedule.index import Index, Ints, Number, names_in, replaced, subindices
from tilelink.schedule.memory import Region
from tilelink.schedule.printing import in_a_line
from tilelink.schedule.roles import Phase, Role, Schedule
from tilelink.schedule.steps import FOLDS, Compute, For, Load, Step
from tilelink.schedule.walk import indices, mapped, steps_in

OWN_SHARE = "own_share"
_LENGTH, _ENTRY = Index("the length"), Index("the entry")  # names for entries of tables
_MOST_ROUNDS = 1_500_000  # of all lengths together
_SEED = 20261127


def with_shares_of_tokens(schedule: Schedule, spec: BoundSpec) -> tuple[Schedule, BoundSpec, list[Finding]]:
    """Schedule and spec without folds over tokens, and what is wrong with these. `schedule` has numbers for its dims."""
    nodes = [node for node in spec.nodes if isinstance(node.operation, Merged)]
    nodes = [node for node in nodes if isinstance(node.operation.how, DecodeAttention)]  # type: ignore[union-attr]
    if not nodes:
        return schedule, spec, []
    wrong, splits = list[Finding](), dict[str, int]()
    launches = []
    for number, launch in enumerate(schedule.launches):
        roles = []
        for role in launch.roles:
            phases = tuple(
                _without(schedule, f"launch {number}", role, one, nodes, splits, wrong) for one in role.phases
            )
            roles.append(replace(role, phases=phases))
        launches.append(replace(launch, roles=tuple(roles)))
    more = tuple(one for node in nodes for one in _values_of(node, splits.get(node.output.name, 1)))
    return replace(schedule, launches=tuple(launches), tables=()), replace(spec, nodes=(*more, *spec.nodes)), wrong


def means_of(out: str) -> str:
    """The states of all shares, as a value of a rank."""
    return f"means of shares of {out}"


def logs_of(out: str) -> str:
    return f"logarithms of shares of {out}"


def _values_of(node: BoundNode, splits: int) -> Iterator[BoundNode]:
    assert isinstance(node.operation, Merged)
    shape = node.operation.shape
    means, logs = (splits, *shape), (splits, *shape[:2])
    name = node.output.name
    for operation, called, one in ((MeansOfShares(), means_of(name), means), (LogsOfShares(), logs_of(name), logs)):
        yield BoundNode(operation, node.inputs, BoundValue(called, one, one, Partial(), "fp32"), node.line)  # type: ignore[arg-type]


def _without(
    schedule: Schedule,
    launch: str,
    role: Role,
    phase: Phase,
    nodes: list[BoundNode],
    splits: dict[str, int],
    wrong: list[Finding],
) -> Phase:
    """The phase without its folds over keys of `nodes`."""
    queries = {one.result: one for one in steps_in(phase.body) if isinstance(one, Load)}

    def changed(step: Step) -> tuple[Step, ...]:
        match step:
            case For(body=(Load(_, keys), Load(), Compute(results, op, operands))) if op in FOLDS:
                node = next((one for one in nodes if _named(one)["k"] == keys.buffer), None)
                load = queries.get(str(operands[3]))
                if node is None or load is None:
                    return (step,)
                fold = Fold(schedule, role, phase, node, load.region, step)
                reason = fold.why_not()
                if reason:
                    wrong.append(Finding(BugClass.WRONG_PLACE, f"{launch}, {role.name}, {in_a_line(step)}", reason))
                splits[node.output.name] = fold.splits
                return (Compute(results, OWN_SHARE, (str(operands[3]), node.output.name, fold.split)),)
        return (step,)

    body = mapped(phase.body, changed)
    if body == phase.body:
        return phase
    used = frozenset[str]().union(*(names_in(one) for step in steps_in(body) for one in indices(step)))
    let = list[tuple[str, Number]]()  # names that depend on lengths are gone with the loops
    for name, index in reversed(phase.let):
        if name in used:
            let.insert(0, (name, index))
            used |= names_in(index)
    return replace(phase, body=body, let=tuple(let))


def _named(node: BoundNode) -> dict[str, str]:
    assert isinstance(node.operation, Merged)
    assert isinstance(node.operation.how, DecodeAttention)
    return node.operation.how.named(node.inputs)


@dataclass(frozen=True)
class Fold:
    """The loop of a phase over keys and values of `node`, for heads that `queries` are of."""

    schedule: Schedule
    role: Role
    phase: Phase
    node: BoundNode
    queries: Region
    loop: For

    @property
    def merged(self) -> Merged:
        assert isinstance(self.node.operation, Merged)
        return self.node.operation

    @property
    def how(self) -> DecodeAttention:
        assert isinstance(self.merged.how, DecodeAttention)
        return self.merged.how

    @property
    def split(self) -> Index | int:
        """The number of a share: the name of it."""
        inner = [self.loop.count, *(index for _, index in self.loop.let)]
        used = frozenset[str]().union(*map(names_in, inner))
        let = dict(self.phase.let)
        while more := {name for one in used & let.keys() for name in names_in(let[one])} - used:
            used |= more
        cuts = [name for name, index in self.phase.let if name in used and isinstance(index, Index) and index.op == "%"]
        return Index(cuts[0]) if cuts and self.splits > 1 else 0

    @property
    def splits(self) -> int:
        """Shares of the same heads."""
        lanes = self._lanes(np.zeros(1, np.int64), ranks=1)
        places = np.stack([lanes.value(self._plain(one), {}) for one in self.queries.start[:2]], 1)
        _, counts = np.unique(places, axis=0, return_counts=True)
        return int(counts.max())

    # ---- what is wrong ----
    def why_not(self) -> str:
        """Why splits do not have the tokens of a rank, or nothing."""
        scale, cap = self._operands()[6:8]
        if (scale, cap) != (self.how.scale, self.how.soft_cap):
            return f"scores of {self.node.output.name} are scaled by {self.how.scale} and capped at {self.how.soft_cap}"
        if self.loop.body[1].region.buffer != _named(self.node)["v"]:  # type: ignore[union-attr]
            return f"it takes values of {self.loop.body[1].region.buffer}"  # type: ignore[union-attr]
        few = np.array([0, 1, self._whole // 2 + 1, self._whole] if self.how.lengths else [self._whole], np.int64)
        return self._wrong(few, None) or self._wrong(self._lengths(), 0)

    def _operands(self) -> tuple[object, ...]:
        compute = self.loop.body[2]
        assert isinstance(compute, Compute)
        return compute.operands

    @property
    def _whole(self) -> int:
        """Tokens of a sequence, at most."""
        return self.merged.tokens * self.schedule.num_ranks

    def _lengths(self) -> Ints:
        """Those at which an index may change."""
        if not self.how.lengths:
            return np.array([self._whole], np.int64)
        extent = self.loop.body[0].region.extent[0]  # type: ignore[union-attr]
        block = (
            extent if isinstance(extent, int) else max((one for one in extent.args if isinstance(one, int)), default=1)
        )
        borders = np.arange(0, self._whole + block, block)
        found = np.unique([borders + by + back for by in (-1, 0, 1) for back in (0, self.how.window)])
        found = found[(found >= 0) & (found <= self._whole)]
        most = max(32, _MOST_ROUNDS * block // max(1, self._whole))
        if len(found) > most:
            drawn = np.random.default_rng(_SEED).choice(found, most, replace=False)
            found = np.unique([*found[:16], *found[-16:], *drawn])
        return found.astype(np.int64)

    def _lanes(self, lengths: Ints, ranks: int) -> Lanes:
        """(rank, length, position), names of the phase with them."""
        assert isinstance(self.phase.count, int), "it has numbers"
        shape = ranks, len(lengths), self.phase.count
        rank, length, tile = (one.ravel() for one in np.indices(shape))
        names: dict[str, int | Ints] = {
            "rank": rank,
            "tile": tile + int(str(self.phase.first)),
            "call": 2,
            "program": 0,
        }
        lanes = Lanes({**names, _LENGTH.op: lengths[length]}, tile, tile)
        let = tuple((name, self._plain(index)) for name, index in self.phase.let)
        return lanes.with_let(let, {})

    def _plain(self, index: Number) -> Number:
        """`index` with a name for what a table says."""
        if isinstance(index, int) or index.is_name:
            return index
        args = tuple(self._plain(one) for one in index.args)
        if index.is_lookup:
            return _LENGTH if index.op == _named(self.node).get("lengths") else _ENTRY
        return replaced(Index(index.op, args), {})

    def _lookups(self, index: Number, table: str) -> list[Index]:
        return [one for one in subindices(index) if one.is_lookup and one.op == table]

    def _wrong(self, lengths: Ints, heads: int | None) -> str:
        """Of sequences that are so long; of all heads, or of those of one tile."""
        lanes = self._lanes(lengths, self.schedule.num_ranks)
        sequence, head = (lanes.value(self._plain(one), {}) for one in self.queries.start[:2])
        if heads is not None:
            lanes = lanes.at((sequence == sequence[0]) & (head == head[0]))
            sequence, head = (lanes.value(self._plain(one), {}) for one in self.queries.start[:2])
        many = lanes.value(self._plain(self.queries.extent[1]), {})
        shared = self.merged.shape[1] // self.merged.keys
        if (head // shared != (head + many - 1) // shared).any():
            return "heads of a tile share no keys"
        for table in set(_named(self.node).values()) & {one.name for one in self.schedule.tables}:
            for entry in self._entries(table):
                if (lanes.value(self._plain(entry.args[0]), {}) != sequence).any():
                    return f"it looks up {table} of another sequence"
        split = lanes.value(self.split, {})
        counts = np.maximum(lanes.value(self._plain(self.loop.count), {}), 0)
        where = np.arange(len(lanes))
        rounds, number = lanes.repeated(counts)
        which = np.repeat(where, counts)
        rounds = rounds.having(**{self.loop.variable: number})
        rounds = rounds.with_let(tuple((name, self._plain(index)) for name, index in self.loop.let), {})
        loads = [step.region for step in self.loop.body if isinstance(step, Load)]
        begin, end, reason = self._seen(loads, rounds, sequence[which], head[which] // shared)
        if reason:
            return reason
        some = end > begin
        rank, length = (lanes.value(one, {}) for one in (Index("rank"), _LENGTH))
        shares = np.stack([rank, length, sequence, head, split], 1)
        if len(np.unique(shares, axis=0)) < len(shares) or ((split < 0) | (split >= self.splits)).any():
            return "shares of the same heads have no number each"
        return _partition(
            (rank, length, sequence, head),
            (which[some], begin[some], end[some]),
            (self.merged.tokens, self.how.window),
        )

    def _entries(self, table: str) -> Iterator[Index]:
        steps = [*self.loop.body, self.loop]
        found = [
            index for step in steps if isinstance(step, Load) for index in (*step.region.start, *step.region.extent)
        ]
        found += [self.loop.count, *(index for _, index in self.loop.let), *(index for _, index in self.phase.let)]
        found += [one for one in self._operands() if isinstance(one, Index)]
        for index in found:
            yield from self._lookups(index, table)

    def _seen(self, loads: list[Region], rounds: Lanes, sequence: Ints, keys_head: Ints) -> tuple[Ints, Ints, str]:
        """Tokens that rounds take, from the first own one on: (first, end), and what is wrong with where they lie."""
        nothing = np.zeros(0, np.int64)
        width = self.merged.shape[2]
        tile = _tile_rows(loads[0])
        token, reason = self._token(loads[0], rounds, sequence, tile)
        for region in loads:
            other, why = self._token(region, rounds, sequence, tile)
            reason = reason or why or ("" if (other == token).all() else "other rows of values than of keys")
            column, cols = (rounds.value(self._plain(one[1]), {}) for one in (region.start, region.extent))
            if (column != keys_head * width).any() or (cols != width).any():
                reason = reason or "keys or values of another head"
            if region.at != Index("rank"):
                reason = reason or "keys or values of another rank"
        if reason:
            return nothing, nothing, reason
        here = np.minimum.reduce([rounds.value(self._plain(one.extent[0]), {}) for one in loads])
        operands = self._operands()
        if len(operands) == 8:  # it masks nothing
            if any(not isinstance(one.extent[0], int) for one in loads):
                return nothing, nothing, "rows that do not exist count as keys"
            return token, token + here, ""
        first, end = (rounds.value(self._plain(one), {}) for one in operands[8:10])  # type: ignore[arg-type]
        first, end = np.maximum(first, 0), np.minimum(end, tile)
        if ((end > here) & (end > first)).any():
            return nothing, nothing, "rows that do not exist count as keys"
        return token + first, token + np.maximum(end, first), ""

    def _token(self, region: Region, rounds: Lanes, sequence: Ints, tile: int) -> tuple[Ints, str]:
        """The token of the first row of a region, and what is wrong with its rows."""
        row = region.start[0]
        if not self.how.pages:
            return rounds.value(self._plain(row), {}) - sequence * self.merged.tokens, ""
        table, page = _named(self.node)["pages"], self.merged.page
        entries = self._lookups(row, table)
        if len(set(entries)) != 1:
            return sequence, f"its rows are not those of one page of {table} each"
        first = np.zeros(0, np.int64)
        steps = range(tile) if "lane" in names_in(row) else (0,)
        for lane in steps:
            at = rounds.having(lane=lane)
            number = at.value(self._plain(entries[0].args[1]), {})
            inside = at.having(**{_ENTRY.op: 0}).value(self._plain(row), {})
            by = at.having(**{_ENTRY.op: 1}).value(self._plain(row), {}) - inside
            token = number * page + inside - lane
            first = token if lane == 0 else first
            if (by != page).any() or (token != first).any() or ((inside < 0) | (inside >= page)).any():
                return first, f"its rows are not those that {table} says"
        if len(steps) == 1 and ((first % page) + tile > page).any():
            return first, f"its rows are of more than one page of {table}"
        return first, ""


def _tile_rows(region: Region) -> int:
    """Of the tile of a region, those that are masked too."""
    extent = region.extent[0]
    if isinstance(extent, int):
        return extent
    return max((one for one in extent.args if isinstance(one, int)), default=1)


def _partition(of: tuple[Ints, ...], taken: tuple[Ints, Ints, Ints], size: tuple[int, int]) -> str:
    """Whether the tokens that splits of the same heads take are those that the query sees, each once."""
    rank, length, sequence, head = of
    which, begin, end = taken
    tokens, window = size
    keys = np.stack([rank, length, sequence, head], 1)
    _, group = np.unique(keys, axis=0, return_inverse=True)
    group = group.ravel()
    groups = int(group.max()) + 1
    low, high = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
    own = length - rank * tokens
    low[group] = np.clip(own - window, 0, tokens) if window else 0
    high[group] = np.clip(own, 0, tokens)
    of_round = group[which]
    order = np.lexsort((begin, of_round))
    of_round, begin, end = of_round[order], begin[order], end[order]
    first = np.ones(len(of_round), bool)
    first[1:] = of_round[1:] != of_round[:-1]
    before = np.where(first, low[of_round], np.concatenate([[0], end[:-1]]))
    if (begin < before).any():
        return "some tokens are taken twice, or are not seen"
    if (begin > before).any():
        return "not all tokens that are seen are taken"
    reached = low.copy()
    reached[of_round] = end  # of the last round
    if (reached < high).any():
        return "not all tokens that are seen are taken"
    if (reached > np.maximum(high, low)).any():
        return "some tokens are taken that are not seen"
    return ""
