"""Keys that no query of a rank sees do not travel to it: causal masks and windows leave parts out, and waits with them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import lowering
import topologies
from tests.pipeline.attention_specs import How, spec_of
from tilelink.ir.schedule import Schedule
from tilelink.proof.verify import verify
from tilelink.runtime.emulated import EmulatedRun
from tilelink.runtime.run import run_emulated

RANKS, PART = 4, 40
MOVERS = {
    "push": {"mover": "CopyEngine()"},
    "pull": {"mover": "CopyEngine()", "transfer": "pull"},
    "a stream a peer": {"mover": "CopyEngine()", "streams": "peer", "chunks": "2"},
    "by heads": {"mover": "CopyEngine()", "cut": "columns", "chunks": "2"},
    "programs": {"mover": "CommSms(2)", "chunks": "2"},
    "programs that pull": {"mover": "CommSms(2)", "transfer": "pull"},
}


def planned(window: int, mover: str, *, sequences: int = 1, tokens: int = PART, causal: bool = True) -> Schedule:
    sizes = {"B": sequences, "S": RANKS * tokens, "Q": 4, "G": 2, "D": 16}
    pins = {"tile": "32x16x16/4w2s", **MOVERS[mover]}
    how = How(causal=causal, window=window)
    return spec_of("gathered", how).plan_for(topologies.load("h100-nvswitch", RANKS), sizes, "bf16", pins)


def sees(rank: int, owner: int, window: int) -> bool:
    """Whether a query of `rank` sees a key of `owner`, by definition."""
    queries, keys = (range(one * PART, (one + 1) * PART) for one in (rank, owner))
    return any(key <= query and (not window or query - key < window) for query in queries for key in keys)


@pytest.mark.quick(2)
@pytest.mark.parametrize("mover", MOVERS)
@pytest.mark.parametrize("window", [0, 20, 41, 42, 81, 82, 1000])
def test_what_nobody_sees_is_not_sent(window: int, mover: str) -> None:
    """Landing buffers hold nan before the call, and afterwards where nothing has come."""
    schedule = planned(window, mover)
    run = EmulatedRun(schedule, lowering.emit(schedule), 3)
    run.call()
    run.finish()
    for rank, operator in enumerate(run.operators):
        for name in ("keys", "values"):
            memory = getattr(operator, name)
            parts = getattr(memory, "local", memory).view(RANKS, -1).float()  # who pulls has it to itself
            came = [owner for owner in range(RANKS) if owner != rank and not parts[owner].isnan().any()]
            some = [owner for owner in range(RANKS) if owner != rank and not parts[owner].isnan().all()]
            wanted = [owner for owner in range(RANKS) if owner != rank and sees(rank, owner, window)]
            assert came == some == wanted


@pytest.mark.parametrize("mover", ["push", "programs"])
def test_without_a_mask_all_is_sent(mover: str) -> None:
    schedule = planned(0, mover, causal=False)
    assert all(exchange.reach is None for exchange in schedule.exchanges)


@pytest.mark.quick(2)
@pytest.mark.parametrize("mover", MOVERS)
@pytest.mark.parametrize(
    ("window", "sequences", "tokens"), [(0, 1, 40), (30, 2, 24), (50, 3, 17), (1, 1, 16), (60, 1, 23)]
)
def test_it_is_right_call_after_call(window: int, sequences: int, tokens: int, mover: str) -> None:
    if mover == "by heads" and sequences > 1:
        pytest.skip("chunks are heads of one sequence")
    schedule = planned(window, mover, sequences=sequences, tokens=tokens)
    assert verify(schedule).proved
    for target in ("triton", "triton-distributed") if "program" in mover else ("triton",):
        assert run_emulated(schedule, lowering.emit(schedule, target), calls=3).equal


@pytest.mark.parametrize("mover", ["push", "pull", "programs"])
@pytest.mark.parametrize("window", [0, 60])
def test_a_part_that_is_sent_too_near_is_missed(window: int, mover: str) -> None:
    schedule = planned(window, mover)
    for at, exchange in enumerate(schedule.exchanges):
        assert exchange.reach is not None and exchange.reach > 1
        less = (*schedule.exchanges[:at], replace(exchange, reach=exchange.reach - 1), *schedule.exchanges[at + 1 :])
        assert verify(replace(schedule, exchanges=less)).findings
        more = (*schedule.exchanges[:at], replace(exchange, reach=None), *schedule.exchanges[at + 1 :])
        assert verify(replace(schedule, exchanges=more)).proved


def test_windows_make_calls_shorter() -> None:
    machine = topologies.load("h200-nvswitch", 8)
    sizes = {"B": 1, "S": 32768, "Q": 32, "G": 8, "D": 128}
    times = [
        spec_of("gathered", How(causal=True, window=window)).plan_for(machine, sizes, "bf16", {}).predicted_us
        for window in (0, 4096, 1024)
    ]
    assert times[0] > 3 * times[1] > 6 * times[2] * 0.9


def test_the_definition_has_no_hidden_keys() -> None:
    """What `sees` says of a window of one part: the rank before, and none further."""
    assert [owner for owner in range(RANKS) if sees(3, owner, PART + 1)] == [2, 3]
    assert torch.tensor([sees(rank, owner, 0) for rank in range(2) for owner in range(2)]).tolist() == [
        True,
        False,
        True,
        True,
    ]
