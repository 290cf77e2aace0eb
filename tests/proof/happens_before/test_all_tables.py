"""What is proved for all tables holds for each, others in every call; what synchronises by a table is said to do so."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from tests.schedule.mutants import mutants
from tests.schedule.operators import IN, OPERATORS, OUT, SYM, i, matrix, peer, ranks, source, tile
from tilelink.proof.happens_before.all_tables import check_all_tables
from tilelink.proof.happens_before.check import check
from tilelink.proof.happens_before.refuted import Wrong
from tilelink.schedule.index import Index, call, rank
from tilelink.schedule.memory import Law, Region, Signal, Table
from tilelink.schedule.roles import Launch, Phase, Role, Schedule, Sms
from tilelink.schedule.steps import For, Load, Move, Notify, Step, Store, Wait
from tilelink.schedule.walk import mapped, with_bodies

H = 4
t, r = Index("t"), Index("r")


def layer(size: int, tokens: int) -> Schedule:
    """Dispatch, experts and combine with flags per pair of ranks that are raised in every call, with rows or without."""

    def row(buffer: str, *start: Index | int, at: Index | int = rank) -> Region:
        return Region(buffer, (*start, 0), (*(1 for _ in start), H), at)

    token = row("x", Index("token", (rank, peer, i)))
    sent = For("i", Index("rows", (rank, peer)), (Move((token,), (row("recv", rank, i, at=peer),)),))
    dispatch = (sent, Notify("arrived", (rank,), peer, call))
    rows = Index("rows", (source, rank))
    work = For("i", rows, (Load("a", row("recv", source, i)), Store("a", row("back", rank, i, at=source))))
    expert = (Wait("arrived", (source,), call, ("recv",)), work, Notify("returned", (rank,), source, call))
    back = row("back", Index("to", (rank, t)), Index("row", (rank, t)))
    combine = (
        For("r", size, (Wait("returned", ((rank + r) % size,), call, ("back",)),)),
        For("t", tokens, (Load("y", back), Store("y", row("out", t)))),
    )
    roles = (
        Role("dispatch", Sms(2), (Phase(size, dispatch, (("peer", (rank + 1 + tile) % size),)),)),
        Role("expert", Sms(1), (Phase(size, expert, (("source", (rank + tile) % size),)),)),
        Role("combine", Sms(1), (Phase(1, combine),)),
    )
    buffers = (
        matrix("x", IN, tokens, H),
        matrix("recv", SYM, tokens, H, size),
        matrix("back", SYM, tokens, H, size),
        matrix("out", OUT, tokens, H),
    )
    tables = (
        Table("to", (size, tokens), size),
        Table("row", (size, tokens), tokens),
        Table("rows", (size, size), tokens + 1, (Law.COUNTS,)),
        Table("token", (size, size, tokens), tokens, (Law.DIFFERS,)),
    )
    signals = (Signal("arrived", (size,)), Signal("returned", (size,)))
    return Schedule("moe", ranks(size), buffers, signals, (Launch("main", roles),), tables=tables)


def routing(size: int, tokens: int, rng: random.Random) -> dict[str, np.ndarray]:
    found = {
        "to": np.full((size, tokens), -1),
        "row": np.full((size, tokens), -1),
        "rows": np.zeros((size, size), int),
        "token": np.full((size, size, tokens), -1),
    }
    for own in range(size):
        for token in range(tokens):
            to = rng.randrange(size)
            found["to"][own, token], found["row"][own, token] = to, found["rows"][own, to]
            found["token"][own, to, found["rows"][own, to]] = token
            found["rows"][own, to] += 1
    return found


@pytest.mark.parametrize("size", [2, 3, 8])
def test_a_layer_is_proved_for_all_tables_and_any_number_of_calls(size: int) -> None:
    found = check_all_tables(layer(size, 64))
    assert found.proved and found.assumed == ("back",)  # of which a table says what is read


def test_tables_of_each_call_agree() -> None:
    rng = random.Random(1)
    for _ in range(5):
        assert check(layer(3, 4), [routing(3, 4, rng) for _ in range(4)]) is None


@pytest.mark.parametrize("name", ["moe", "moe_grouped"])
def test_counts_by_a_table_are_dynamic(name: str) -> None:
    found = check_all_tables(OPERATORS[name]().schedule)
    assert not found.proved and "arrived" in found.dynamic


@pytest.mark.parametrize("name", ["gemm_rs", "all_reduce_ll", "queue"])
def test_without_tables_it_is_the_same_proof(name: str) -> None:
    found = check_all_tables(OPERATORS[name]().schedule)
    assert found.proved and not found.assumed


def test_an_answer_before_the_last_read_is_refuted_for_some_table() -> None:
    one = layer(2, 2)
    (launch,) = one.launches
    dispatch, expert, combine = launch.roles
    (phase,) = expert.phases
    wait, work, answer = phase.body
    early = replace(expert, phases=(replace(phase, body=(wait, answer, work)),))
    found = check_all_tables(replace(one, launches=(replace(launch, roles=(dispatch, early, combine)),)))
    assert found.refutation is not None and found.refutation.wrong in (Wrong.EARLY_READ, Wrong.OVERWRITTEN)


def test_rows_that_are_read_as_far_as_another_entry_says_are_refuted() -> None:
    one = layer(3, 4)
    own, other = Index("rows", (source, rank)), Index("rows", (rank, source))

    def looks(body: tuple[Step, ...]) -> tuple[Step, ...]:
        return mapped(
            body, lambda step: (replace(step, count=other) if isinstance(step, For) and step.count == own else step,)
        )

    found = check_all_tables(with_bodies(one, looks))
    assert found.refutation is not None and found.refutation.wrong is Wrong.NEVER_WRITTEN


@pytest.mark.slow
def test_what_is_proved_for_all_tables_holds_for_each() -> None:
    """Mutants that are proved for all tables are proved for random ones, up to what is assumed of tables."""
    rng, proved, refuted = random.Random(3), 0, 0
    some = [[routing(2, 2, rng) for _ in range(3)] for _ in range(4)]
    for what, mutant in mutants(layer(2, 2)):
        found = check_all_tables(mutant, calls=3)
        if not found.proved:
            continue
        proved += 1
        for tables in some:
            wrong = check(mutant, tables)
            if (
                wrong is not None
                and wrong.wrong is Wrong.NEVER_WRITTEN
                and wrong.places[0].what.split("[")[0] in found.assumed
            ):
                refuted += 1  # rows that others were sent to: a law was broken, not an order
                continue
            assert wrong is None or wrong.wrong in (Wrong.NO_ENTRY, Wrong.OUTSIDE), f"{what}: {wrong}"
    assert proved > 20
