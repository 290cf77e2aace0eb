"""Each of the 18 classes of bugs, planted in an otherwise good file: the class, the rank's part and the line come out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.adversary.bugs import edited, emitted, verdict
from tilelink.proof.bug_class import BugClass


def hand_written() -> str:
    return (Path(__file__).parent / "exchange.py").read_text()


RS_FUSED = partial(emitted, "rs", "Fused()", "push")
RS_PUSH = partial(emitted, "rs", "CopyEngine()", "push")
RS_PULL = partial(emitted, "rs", "CopyEngine()", "pull")
AG_PUSH = partial(emitted, "ag", "CopyEngine()", "push")
AG_PULL = partial(emitted, "ag", "CopyEngine()", "pull")
AR_PLACED = partial(emitted, "ar", "Fused()", "push", chunks=1)
RS_PCIE = partial(emitted, "rs", "CopyEngine()", "push", topology="l20-pcie")
AG_WHOLE = partial(emitted, "ag", "CommSms(2)", "push", rows=48, chunks=1)

WORD = """
                        on_peer(signal_peers, m_segment, tl.int32)
                        + Y_PARTS_ARRIVED
                        + rank *"""
NOTIFY = f"""notify({WORD} Y_PARTS_CHUNKS
                        + chunk,
                        call,
                    )
"""
TOO_SMALL = (") == Y_PARTS_ARRIVED_PARTS - 1:", ") == Y_PARTS_ARRIVED_PARTS - 2:")
LOADING = "        with fabric.loading():  # kernels are loaded before one of them spins\n"


@dataclass(frozen=True)
class Case:
    """`edits` plant the bug in `source`; the counterexample names a line that holds `shown`."""

    bug: BugClass
    source: Callable[[], str]
    edits: tuple[tuple[str, str], ...]
    shown: str


CASES = {
    "gpu scope between GPUs": Case(
        BugClass.SCOPE,
        RS_FUSED,
        (('call, sem="release", scope="sys")', 'call, sem="release", scope="gpu")'),),
        "notify(",
    ),
    "count of peers at gpu scope": Case(
        BugClass.SCOPE,
        RS_FUSED,
        (('mask=offsets < WORDS, sem="relaxed", scope="sys"', 'mask=offsets < WORDS, sem="relaxed", scope="gpu"'),),
        "take_off(signals",
    ),
    "gpu scope, hand-written": Case(
        BugClass.SCOPE,
        hand_written,
        (('there, 1, sem="release", scope="sys"', 'there, 1, sem="release", scope="gpu"'),),
        "tl.atomic_add(there",
    ),
    "fewer words than chunks": Case(
        BugClass.SLOTS,
        RS_FUSED,
        (("fabric.symmetric((NUM_SIGNALS.value,)", "fabric.symmetric((3,)"),),
        "wait_until(signals + Y_PARTS_ARRIVED",
    ),
    "relaxed release": Case(
        BugClass.ORDERING,
        RS_FUSED,
        (('tl.atomic_xchg(signal, call, sem="release"', 'tl.atomic_xchg(signal, call, sem="relaxed"'),),
        "y_parts_tile = tl.load(",
    ),
    "a plain store as signal": Case(
        BugClass.ORDERING,
        hand_written,
        (('tl.atomic_xchg(there + 1, call, sem="release", scope="sys")', "tl.store(there + 1, call)"),),
        "signals + 1, 0",
    ),
    "no wait": Case(
        BugClass.ORDERING,
        RS_FUSED,
        (
            (
                "wait_until(signals + Y_PARTS_ARRIVED + part_segment * Y_PARTS_CHUNKS + chunk, call)\n",
                "pass\n",
            ),
        ),
        "y_parts_tile = tl.load(",
    ),
    "no notify": Case(
        BugClass.ORDERING,
        RS_FUSED,
        (
            (
                NOTIFY,
                "pass\n",
            ),
        ),
        "wait_until(signals + Y_PARTS_ARRIVED",
    ),
    "no CTA barrier before a count": Case(
        BugClass.CTA_BARRIER,
        RS_FUSED,
        (("    program_barrier()\n    return tl.atomic_add", "    return tl.atomic_add"),),
        "y_parts_tile = tl.load(",
    ),
    "no proxy fence before descriptor loads": Case(
        BugClass.ASYNC_STORE,
        AG_WHOLE,
        (("            fence_descriptors()\n", ""),),
        "left_from.load(",
    ),
    "release behind a descriptor store": Case(
        BugClass.ASYNC_STORE,
        hand_written,
        (
            (
                "            tl.store(target + half * HALF + offsets, tl.load(x + half * HALF + offsets))\n",
                "            there_desc = tl.make_tensor_descriptor(target, [2, HALF], [HALF, 1], [1, HALF])\n"
                "            there_desc.store([half, 0], tl.load(x + half * HALF + offsets)[None, :])\n",
            ),
        ),
        "tl.store(out",
    ),
    "equality on a count that can pass": Case(
        BugClass.EQUALITY,
        hand_written,
        (("< 2 * call + half - 1", "!= 2 * call + half - 1"),),
        "!= 2 * call",
    ),
    "a decision of each rank": Case(
        BugClass.PER_RANK_CHOICE,
        RS_PUSH,
        (
            (
                "        for tile in range(COPY_Y_PARTS_TILES.value):",
                "        for tile in range(COPY_Y_PARTS_TILES.value if rank == 0 else 0):",
            ),
        ),
        "copy_y_parts.write(self.counts",
    ),
    "ranks that do not compare their schedules": Case(
        BugClass.PER_RANK_CHOICE, RS_FUSED, (("        fabric.agree(self.SCHEDULE)\n", ""),), ""
    ),
    "a GPU with too few SMs is not refused": Case(
        BugClass.RESIDENCY, RS_FUSED, ((" or fabric.num_sms < self.NUM_SMS", ""),), ""
    ),
    "counts that are not reset": Case(
        BugClass.STALE_SIGNAL,
        RS_FUSED,
        (("    tl.store(counts + offsets, 0, mask=offsets < NUM_COUNTS)\n", ""),),
        "wait_until(signals + Y_PARTS_ARRIVED",
    ),
    "an epoch that stays": Case(
        BugClass.STALE_SIGNAL,
        RS_FUSED,
        (("        tl.store(epoch, call + 1)\n", ""),),
        "tl.store(",
    ),
    "fewer SMs than spinning programs": Case(
        BugClass.RESIDENCY,
        RS_PULL,
        (("NUM_SMS = PROGRAMS.value + 1", "NUM_SMS = 4"),),
        ".launch(",
    ),
    "kernels that are loaded by the first call": Case(
        BugClass.LATE_SETUP,
        RS_PULL,
        ((f"{LOADING}            self(*", "        if False:\n            self(*"),),
        "copy_y_parts.launch(copy_y_parts_waits",
    ),
    "an allocation inside a call": Case(
        BugClass.LATE_SETUP,
        hand_written,
        (
            (
                "        return out\n",
                "        self.more = self.fabric.symmetric((64,), torch.float32)\n        return out\n",
            ),
            ("        with fabric.loading():\n            self(torch.empty(64, device=fabric.device))\n", ""),
        ),
        "main.launch(advance",
    ),
    "a tile that signals over PCIe": Case(
        BugClass.LINK_ATOMICS,
        RS_FUSED,
        (("    ANY_STREAM", "    PEER_ATOMICS = False\n    ANY_STREAM"),),
        "notify(",
    ),
    "calls on two streams": Case(
        BugClass.SHARED_SIGNALS,
        RS_FUSED,
        (("        main.after(self.last)", "        pass"),),
        "tl.store(",
    ),
    "one set of signals for two operators": Case(
        BugClass.SHARED_SIGNALS,
        hand_written,
        (
            (
                "        self.signals = fabric.symmetric((2,), torch.int32)\n",
                '        if not hasattr(fabric, "pad"):\n'
                "            fabric.pad = fabric.symmetric((2,), torch.int32)\n"
                "        self.signals = fabric.pad\n",
            ),
        ),
        "",
    ),
    "own tiles first": Case(
        BugClass.CIRCLE,
        RS_FUSED,
        (("m_segment = (rank + 1 + m_place) % NUM_RANKS", "m_segment = (rank + m_place) % NUM_RANKS"),),
        "wait_until(signals + Y_PARTS_ARRIVED",
    ),
    "the next call does not wait for readers": Case(
        BugClass.REUSE,
        RS_FUSED,
        (("    wait_until(signals + DONE, NUM_RANKS - 1)\n", ""),),
        "tl.store(",
    ),
    "the call ends before the peers have pulled": Case(  # what they tell of it is taken off before it is there
        BugClass.STALE_SIGNAL,
        AG_PULL,
        (("        wait_until(signals + DONE, NUM_RANKS - 1)\n", ""),),
        "",
    ),
    "the call ends before the parts of peers are there": Case(
        BugClass.ORDERING,
        AR_PLACED,
        (("        wait_until(signals + DONE, NUM_RANKS - 1)\n", ""),),
        "",
    ),
    "the first launch does not wait for readers": Case(
        BugClass.REUSE,
        RS_PCIE,
        (("call - 1)", "call - 2)"),),
        "copy_y_parts.copy(",
    ),
    "what peers counted for the last call is not taken off": Case(
        BugClass.STALE_SIGNAL,
        AG_PUSH,
        (("take_off(signals + DONE, NUM_RANKS - 1", "take_off(signals + DONE, 0 * NUM_RANKS"),),
        "copy_x_full.copy(",
    ),
    "one chunk of two": Case(
        BugClass.WAIT_TOO_LITTLE,
        AG_PUSH,
        (
            (
                "(m + TILE_M - 1) // X_FULL_CHUNK_ROWS - m // X_FULL_CHUNK_ROWS + 1",
                "1",
            ),
        ),
        "left = left_from.load(",
    ),
    "a count too small": Case(BugClass.SIGNAL_TOO_EARLY, RS_FUSED, (TOO_SMALL,), "notify("),
    "the offset of another part": Case(
        BugClass.WRONG_PLACE,
        RS_FUSED,
        (
            (
                "on_peer(y_parts_peers, m_segment, tl.bfloat16)\n                + rank *",
                "on_peer(y_parts_peers, m_segment, tl.bfloat16)\n                + m_segment *",
            ),
        ),
        "",
    ),
    "a signal of the wrong rank": Case(
        BugClass.WRONG_PLACE,
        RS_FUSED,
        (
            (
                WORD,
                WORD.replace("rank *", "m_segment *"),
            ),
        ),
        "notify(",
    ),
    "an epoch of the host in a launch": Case(
        BugClass.BAKED_CONSTANT,
        hand_written,
        (
            ("    call = tl.load(epoch)\n", "    call = epoch\n"),
            (
                "            self.epoch,\n            self.fabric.rank,",
                "            self.calls,\n            self.fabric.rank,",
            ),
            ("        main.launch(advance, (1,), self.epoch)\n", "        self.calls += 1\n"),
            (
                "        with fabric.loading():\n            self(",
                "        self.calls = -1\n        with fabric.loading():\n            self(",
            ),
        ),
        "",
    ),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if case.source is hand_written else [pytest.mark.slow])
        for name, case in CASES.items()
    ],
)
@pytest.mark.quick(3)
def test_the_class_and_the_line(name: str) -> None:
    case = CASES[name]
    source = edited(case.source(), *case.edits)
    found = verdict(source)
    assert found.counterexample is not None, f"not refuted\n{source}"
    text = "\n".join(found.counterexample.lines())
    assert found.counterexample.number == case.bug.number, text
    assert found.counterexample.rank in (0, 1)
    if case.shown:
        lines = [number for number, line in enumerate(source.splitlines(), 1) if case.shown in line]
        assert found.counterexample.line in lines, text


def test_every_class_has_a_case() -> None:
    """What the compiler does is planted in tests/compiled: runs do not see it."""
    assert {case.bug for case in CASES.values()} == set(BugClass) - {BugClass.COMPILED_ORDER}


EMITTED = [RS_FUSED, RS_PUSH, RS_PULL, RS_PCIE, AG_PUSH, AG_PULL, AG_WHOLE, AR_PLACED]


@pytest.mark.parametrize("source", [hand_written, *(pytest.param(one, marks=pytest.mark.slow) for one in EMITTED)])
def test_without_the_bug_nothing_refutes_it(source: Callable[[], str]) -> None:
    found = verdict(source())
    assert not found.refuted, "\n".join(found.lines())
    assert found.compared and found.trials > 20


@pytest.mark.slow
def test_a_counterexample_replays() -> None:
    """The same run again: the same class, and the text of the trace says who waited for what."""
    source = edited(RS_FUSED(), TOO_SMALL)
    found = verdict(source)
    again = verdict(source)
    assert found.counterexample is not None and again.counterexample is not None
    assert found.counterexample.replay == again.counterexample.replay
    assert [event.text for event in found.counterexample.events] == [e.text for e in again.counterexample.events]
    assert any("signals" in event.text for event in found.counterexample.events)
    assert source.splitlines()[found.counterexample.line - 1].strip() == "notify("
