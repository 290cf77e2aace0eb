"""Any number of calls, from a few of them.

`call_period`: after how many calls P the text says the same on the same memory, with values that grow evenly. Then 2 P + 1 calls
are walked, and `steady` checks: (1) waits and sets of every word grow by one amount over P calls, and a count is added to so
often; (2) no wait is answered by a later call; (3) what the first P calls add is awaited within these calls.

Induction. By (1) the raise that answers a wait of call n + P is that of call n, moved by P: for counts, the set of first adders
moved by P and those of calls 1..P, which all later ones know (`Words.counted`, by (3)). So edges are the same in every window
of calls. By (2) no edge goes back in calls, hence a path between calls n and n + P stays within this window, and happens-before
there is that of one of the windows 1..P + 1, ..., P + 1..2 P + 1, all of which were walked. Each cell is touched again P calls
later, so neighbours in the chain of a cell lie in one window, and all other pairs follow. The edges of a circle lie in one call
by (2), so it would have been walked. How far ranks lie apart in time is used nowhere. Not covered: words that wrap at 2^32.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilelink.proof.happens_before.refuted import Refuted, Wrong
from tilelink.proof.happens_before.rows import Kind
from tilelink.proof.happens_before.walk import Walk
from tilelink.schedule.index import Number, spelled
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import For, If, Let, Step, Wait
from tilelink.schedule.walk import notifies, phases, read, written

VARIES = None  # by the same in every call, but not the same for every position
Growth = Mapping[str, int | None]
LONGEST = 8  # calls that a period may have


class Unlike(Exception):
    """A later call does not do the same, as far as this can see."""


def grows(index: Number, env: Growth, period: int) -> int | None:
    """By how much an index grows over `period` calls. Raises Unlike if that depends on the call."""
    if isinstance(index, int):
        return 0
    if index.is_name:
        return period if index.op == "call" else env.get(index.op, 0)
    by = [grows(one, env, period) for one in index.args]
    if all(one == 0 for one in by):
        return 0
    if not index.is_lookup:
        (left, right), (a, b) = index.args, by
        match index.op:
            case "+" | "-":
                return VARIES if a is None or b is None else a + b if index.op == "+" else a - b
            case "*" if 0 in by:
                other, more = (left, b) if a == 0 else (right, a)
                return other * more if isinstance(other, int) and more is not None else VARIES
            case "//" | "%" if isinstance(right, int) and right and a is not None and a % right == 0:
                return a // right if index.op == "//" else 0
    raise Unlike(spelled(index))


def call_period(schedule: Schedule) -> int:
    """After how many calls `schedule`, whose dims are numbers, does the same with values that grow evenly; 0: not found."""
    for period in range(1, LONGEST + 1):
        try:
            for _, _, phase in phases(schedule):
                _still(period, {}, phase.first)
                _still(period, {}, phase.count)
                _same(phase.body, _let(phase.let, {}, period), period)
            return period
        except Unlike:
            continue
    return 0


def _let(let: Let, env: Growth, period: int) -> Growth:
    found = dict(env)
    for name, index in let:
        found[name] = grows(index, found, period)
    return found


def _still(period: int, env: Growth, *indices: Number) -> None:
    for index in indices:
        if grows(index, env, period) != 0:
            raise Unlike(spelled(index))


def _same(body: tuple[Step, ...], env: Growth, period: int) -> None:
    for step in body:
        for region in (*read(step), *written(step)):
            _still(period, env, *region.start, *region.extent, region.at)
        for notify in notifies(step):
            _still(period, env, *notify.index, notify.at, notify.last_of)
            grows(0 if notify.to is None else notify.to, env, period)
        match step:
            case Wait(_, index, until):
                _still(period, env, *index)
                grows(until, env, period)
            case For(variable, count, inner, let):
                _still(period, env, count)
                _same(inner, _let(let, {**env, variable: 0}, period), period)
            case If(left, right, inner, others):
                _still(period, env, left - right)
                _same(inner, env, period)
                _same(others, env, period)


def steady(walk: Walk, period: int) -> None:
    """Words grow as fast as they are awaited, and no call waits for a later one. Raises Refuted."""
    events, calls = walk.events, walk.calls
    if not walk.forward:
        raise Refuted(Wrong.UNLIKE, detail="a call waits for what a later call does")
    at = np.flatnonzero(events.kind <= Kind.SET)
    run, key, value, kind = events.run[at], events.key[at], events.value[at], events.kind[at]
    early, late = run % calls < calls - period, run % calls >= period
    if not np.array_equal(key[early], key[late]):
        raise Refuted(Wrong.UNLIKE, detail="later calls use other words")
    valued = kind != Kind.ADD
    words, by, where = key[early & valued], value[late & valued] - value[early & valued], at[early & valued]
    low, high = np.full(events.keys, np.iinfo(np.int64).max), np.full(events.keys, np.iinfo(np.int64).min)
    np.minimum.at(low, words, by)
    np.maximum.at(high, words, by)
    adds = np.bincount(key[(kind == Kind.ADD) & (run % calls < period)], minlength=events.keys)
    for word, event in dict(zip(words.tolist(), where.tolist(), strict=True)).items():
        known = walk.words.of_key(word)
        grown = int(high[word])
        if adds[word] and known:
            grown = int((walk.operations.call[known.raises] <= period).sum())
        if low[word] != high[word] or high[word] != grown:
            detail = f"by {low[word]} to {high[word]} in {period} calls, and it is raised by {grown}"
            raise Refuted(Wrong.UNEVEN, events.place(event), detail=detail)
        if adds[word] and max(known.awaited if known else {0}, default=0) < grown:
            raise Refuted(Wrong.UNLIKE, events.place(event), detail=f"awaited too late for {calls} calls to tell")
