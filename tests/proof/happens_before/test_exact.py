"""Waits that compare for equality: no word passes what somebody still waits for."""

from __future__ import annotations

import topologies
from tests.pipeline.workloads import load
from tests.schedule.operators import moe
from tests.schedule.small import two_engines
from tests.schedule.variants import waiting_one_by_one
from tilelink.elaborate.schedule import elaborated
from tilelink.proof.happens_before.exact import exact_signals
from tilelink.schedule.index import Number, call
from tilelink.schedule.memory import Signal
from tilelink.schedule.roles import Launch, MeshAxis, Phase, Role, Schedule, Sms
from tilelink.schedule.steps import Notify, Step, Wait

SMALL = {"M": 64, "K": 64, "N": 128}
COPIES = {"algorithm": "direct", "compute": "triton", "mover": "CopyEngine()", "transfer": "push"}


def one_rank(*roles: tuple[Step, ...]) -> Schedule:
    """Roles of one program each, which are resident at once, with a word `w` and a word `seen`."""
    names = tuple(Role(f"role_{number}", Sms(1), (Phase(1, body),)) for number, body in enumerate(roles))
    signals = (Signal("w", (1,)), Signal("seen", (1,)))
    return Schedule("words", (MeshAxis("ranks", 1),), (), signals, (Launch("main", names),))


def w(until: Number) -> Wait:
    return Wait("w", (0,), until)


SEEN, AWAIT_SEEN = Notify("seen", (0,), 0, call), Wait("seen", (0,), call)
ADD = Notify("w", (0,), 0)


def test_a_count_that_goes_on_before_it_was_seen() -> None:
    early = one_rank((ADD, ADD, AWAIT_SEEN), (w(call * 2 - 1), SEEN))
    assert exact_signals(early) == {"seen"}
    late = one_rank((ADD, AWAIT_SEEN, ADD), (w(call * 2 - 1), SEEN))
    assert exact_signals(late) == {"w", "seen"}


def test_a_word_that_is_set_further_before_it_was_seen() -> None:
    first, second = Notify("w", (0,), 0, call * 2 - 1), Notify("w", (0,), 0, call * 2)
    assert exact_signals(one_rank((first, second, AWAIT_SEEN), (w(call * 2 - 1), SEEN))) == {"seen"}
    assert exact_signals(one_rank((first, AWAIT_SEEN, second), (w(call * 2 - 1), SEEN))) == {"w", "seen"}


def test_a_value_that_a_word_never_has() -> None:
    jump = one_rank((Notify("w", (0,), 0, call * 3), AWAIT_SEEN), (w(call * 3 - 1), SEEN))
    assert exact_signals(jump) == {"seen"}


def test_schedules_of_which_nothing_is_shown() -> None:
    assert not exact_signals(moe().schedule)  # tables
    refuted = one_rank((w(call),))
    assert not exact_signals(refuted)
    assert exact_signals(two_engines().schedule) == {"arrived", "free"}


def test_streams_that_wait_for_one_word() -> None:
    """A peer ends its next call when it has what one stream sends: another stream may not have looked at the word yet."""
    machine, operator = topologies.load("laptop-switch", 4), load("02_ag_gemm.py:ag_gemm")
    one, each = (
        elaborated(operator.plan_for(machine, SMALL, "bf16", {**COPIES, "streams": streams}))
        for streams in ("one", "peer")
    )
    found = [exact_signals(schedule) for schedule in (one, each, waiting_one_by_one(each))]
    assert ["done" in exact for exact in found] == [True, True, False]
    assert all("x_full_arrived" in exact for exact in found)
