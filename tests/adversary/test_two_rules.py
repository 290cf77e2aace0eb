"""Two or three rules of the memory model broken at once, on either side of a signal: all that must be mended are named, and no
reason is given that is not true."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tests.adversary.bugs import edited, verdict

SOURCE = (Path(__file__).parent / "exchange.py").read_text()
RAISE = 'tl.atomic_add(there, 1, sem="release", scope="sys")'
POLL = 'tl.atomic_add(signals, 0, sem="acquire", scope="sys")'
STORE = "            tl.store(target + half * HALF + offsets, tl.load(x + half * HALF + offsets))\n"
BARRIER = f"{STORE}            tl.debug_barrier()\n"
DESCRIPTOR = "tl.make_tensor_descriptor({}, [2, HALF], [HALF, 1], [1, HALF])"
LOAD = "tl.load(inbox + half * HALF + offsets)"

SCOPE, ORDERING, CTA_BARRIER, ASYNC_STORE = 1, 3, 4, 5
EDITS = {  # what is broken: its class, and where
    "relaxed raise": (ORDERING, (RAISE, RAISE.replace("release", "relaxed"))),
    "no CTA barrier": (CTA_BARRIER, (BARRIER, STORE)),
    "asynchronous store": (
        ASYNC_STORE,
        (
            STORE,
            f"            there_desc = {DESCRIPTOR.format('target')}\n"
            "            there_desc.store([half, 0], tl.load(x + half * HALF + offsets)[None, :])\n",
        ),
    ),
    "relaxed poll": (ORDERING, (POLL, POLL.replace("acquire", "relaxed"))),
    "volatile poll": (ORDERING, (POLL, "tl.load(signals, volatile=True)")),
    "no proxy fence": (ASYNC_STORE, (LOAD, f"{DESCRIPTOR.format('inbox')}.load([half, 0]).reshape((HALF,))")),
}
WRITER = ("relaxed raise", "asynchronous store", "no CTA barrier")
READER = ("volatile poll", "relaxed poll", "no proxy fence")
BROKEN = [
    ("volatile poll", "no proxy fence"),  # a published kernel: class 16 at an innocent line of the host
    *product(WRITER, READER),
    ("relaxed poll", "no proxy fence"),
    ("relaxed raise", "no CTA barrier"),
    ("relaxed raise", "no CTA barrier", "no proxy fence"),
    ("asynchronous store", "volatile poll", "no proxy fence"),
    ("no CTA barrier", "relaxed poll", "no proxy fence"),
    ("relaxed raise", "asynchronous store", "relaxed poll", "no proxy fence"),
]


@pytest.mark.quick(2)
@pytest.mark.parametrize("broken", BROKEN, ids=" and ".join)
def test_all_that_is_broken_is_named(broken: tuple[str, ...]) -> None:
    found = verdict(edited(SOURCE, *(EDITS[name][1] for name in broken))).counterexample
    assert found is not None
    text = "\n".join(found.lines())
    classes = {EDITS[name][0] for name in broken}
    named = {found.number, *(int(other.split(":")[0].removeprefix("class ")) for other in found.also)}
    assert named == classes, text
    assert found.to_json()["also"] == list(found.also)
    if len(classes) > 1:
        assert found.number == min(classes), text  # the signal itself comes first
        assert "are wrong at once" in found.why, text


@pytest.mark.quick(1)
@pytest.mark.parametrize("beside", [*WRITER, "no proxy fence"])
@pytest.mark.parametrize("missing", ["wait", "scope of the raise", "scope of the poll"])
def test_what_hides_the_rest_is_named_first(missing: str, beside: str) -> None:
    """Without a wait no rule helps; atomics that are none to each other are found before what they order."""
    edits = {
        "wait": (ORDERING, (POLL, "2 * call + half")),
        "scope of the raise": (SCOPE, ('there, 1, sem="release", scope="sys"', 'there, 1, sem="release", scope="gpu"')),
        "scope of the poll": (SCOPE, (POLL, POLL.replace("sys", "gpu"))),
    }
    bug, edit = edits[missing]
    source = edited(SOURCE, EDITS[beside][1])
    if missing == "scope of the raise" and beside == "relaxed raise":
        edit = (edit[0].replace("release", "relaxed"), edit[1].replace("release", "relaxed"))
    found = verdict(edited(source, edit)).counterexample
    assert found is not None
    assert found.number == bug, "\n".join(found.lines())
    if missing == "wait":
        assert "no signal is waited for before the read" in found.why
