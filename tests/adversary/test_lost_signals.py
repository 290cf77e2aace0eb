"""Hangs by their root: a signal that is overwritten before it is seen, at the line that overwrites it; one that is never raised;
and no line of a barrier that works, behind which a rank that hangs keeps the others waiting."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.adversary.bugs import edited, verdict
from tilelink.adversary.verdict import VerdictKind
from tilelink.proof.bug_class import BugClass

SOURCE = (Path(__file__).parent / "pushing.py").read_text()
RESET = "            symm.copy(self.word[:1], self.zeros[:1])\n"
MEET = "            handle.barrier(channel=0)\n"
PUSH = next(f"{line}\n" for line in SOURCE.splitlines() if "push[(1,)]" in line)
TAKE = "            take[(1,)](self.word, self.buffer, out, N=N)\n"
END = "            handle.barrier(channel=1)\n"
RAISE = '    tl.atomic_xchg(word_of(words, peer), 1, sem="release", scope="sys")\n'
WHOLE = "            symm.copy(self.word, self.zeros)\n"
BY_STREAM = "            symm.current.write(self.word[:1], 0)\n"
BY_KERNEL = "            reset[(1,)](self.word)\n"
PUSH_BY_STREAM = (
    "            symm.copy(handle.get_remote_tensor(peer, (N,), torch.float32), x)\n"
    "            symm.copy(self.words.get_remote_tensor(peer, (1,), torch.int32), self.one)\n"
)
WAIT_BY_STREAM = "            symm.current.wait_equal(self.word[:1], 1)\n            symm.copy(out, self.buffer)\n"
UNMET = (MEET, "")


@dataclass(frozen=True)
class Case:
    """`edits` plant the bug; the counterexample names a line that holds `shown`."""

    bug: BugClass
    edits: tuple[tuple[str, str], ...]
    shown: str


CASES = {
    "reset by a copy": Case(BugClass.STALE_SIGNAL, (UNMET,), RESET),
    "reset by a stream write": Case(BugClass.STALE_SIGNAL, (UNMET, (RESET, BY_STREAM)), BY_STREAM),
    "reset by an atomic": Case(BugClass.STALE_SIGNAL, (UNMET, (RESET, BY_KERNEL)), "tl.atomic_xchg(word, 0"),
    "reset by a plain store": Case(
        BugClass.STALE_SIGNAL,
        (UNMET, (RESET, BY_KERNEL), ('tl.atomic_xchg(word, 0, sem="relaxed", scope="sys")', "tl.store(word, 0)")),
        "tl.store(word, 0)",
    ),
    "reset with its neighbours": Case(BugClass.STALE_SIGNAL, (UNMET, (RESET, WHOLE)), WHOLE),
    "reset behind the meeting": Case(BugClass.STALE_SIGNAL, ((RESET + MEET, MEET + RESET),), RESET),
    "reset behind the push": Case(BugClass.STALE_SIGNAL, ((RESET, ""), (PUSH, PUSH + RESET)), RESET),
    "pushed by a stream": Case(BugClass.STALE_SIGNAL, (UNMET, (PUSH, PUSH_BY_STREAM)), RESET),
    "awaited by a stream": Case(BugClass.STALE_SIGNAL, (UNMET, (TAKE, WAIT_BY_STREAM)), RESET),
    "another rank overwrites": Case(
        BugClass.SLOTS,
        (
            (RAISE, f"{RAISE}    tl.atomic_xchg(word_of(words, (rank + 2) % NUM_RANKS), 2, scope='sys')\n"),
            ("NUM_RANKS = 2", "NUM_RANKS = 3"),
        ),
        "(rank + 2)",
    ),
    "raised twice": Case(
        BugClass.EQUALITY, ((RAISE, 2 * RAISE.replace("atomic_xchg", "atomic_add")),), "while tl.atomic_add"
    ),
    "never raised": Case(BugClass.ORDERING, ((RAISE, "    pass\n"),), "while tl.atomic_add"),
    "another word is raised": Case(BugClass.WRONG_PLACE, (("peer), 1,", "peer) + 1, 1,"),), "peer) + 1, 1,"),
    "another word is awaited": Case(
        BugClass.WRONG_PLACE, (("take[(1,)](self.word,", "take[(1,)](self.word[1:],"),), "word_of(words, peer), 1"
    ),
    "channels of a barrier differ": Case(BugClass.WRONG_PLACE, (("channel=1)", "channel=1 + rank)"),), "channel=1 +"),
    "raised twice by one that waits until it is taken": Case(
        BugClass.CIRCLE,
        (
            (
                RAISE,
                2
                * f"    while {RAISE.strip().replace('atomic_xchg', 'atomic_cas').replace('1,', '0, 1,')} != 0:\n        pass\n",
            ),
        ),
        "!= 0:",
    ),
    "taken before it is pushed": Case(BugClass.CIRCLE, ((PUSH + TAKE, TAKE + PUSH),), "while tl.atomic_add"),
}


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", CASES)
def test_the_root_of_a_hang(name: str) -> None:
    case = CASES[name]
    source = edited(SOURCE, *case.edits)
    found = verdict(source).counterexample
    assert found is not None
    text = "\n".join(found.lines())
    assert found.number == case.bug.number, text
    lines = [number for number, line in enumerate(source.splitlines(), 1) if case.shown.strip() in line]
    assert found.line in lines, text


@pytest.mark.slow
def test_a_word_that_is_reset_before_ranks_meet_is_right() -> None:
    found = verdict(SOURCE)
    assert found.kind is VerdictKind.NOT_REFUTED and found.compared, found.lines()
