"""What of a predicted call is not overlapped, and why: each term of the critical path that is no matmul, in a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilelink.ir.nodes import ComputeRole
from tilelink.planner.choices import texts
from tilelink.planner.course import Course
from tilelink.planner.families import Rejected
from tilelink.planner.terms import Account, Part, Term
from topologies.topology import Topology

_SHOWN = 0.05  # us
_WORK = ("matmul of ", "attention of ")  # what would take time without any communication
_SAVES = 0.2  # of a part, what another family has to save to be worth a try
_WORTH_US, _WORTH = 1.0, 0.005  # us, and of the call, what a term has to be for that

_WHY = {
    Part.LOOP: "The tiles compute this beside the matmul, or wait for memory there.",
    Part.TILES: "A program starts, counts and ends its tiles; nothing else of that program runs meanwhile.",
    Part.SENDS: "Tiles load from peers or store to them, and the next tile begins behind that.",
    Part.WAIT: "Programs wait for data of peers, and no tile without them is left.",
    Part.COLLECTIVE: "This moves as a whole, before or behind all tiles: no tile waits for a part of it.",
    Part.LAUNCH: "What is launched begins when all before it on its stream has ended.",
    Part.CALL: "Ranks tell each other that a call begins or ends, so that buffers may be written again.",
    Part.BESIDE: "Copies and tiles share memory, L2 and links.",
    Part.CLOCKS: "Tensor cores that rest leave power to the others: a gain, which shortens all that is above.",
}
WHERE = {
    "start": "in front of tiles",
    "wait": "waits for peers",
    "tail": "in and behind the last round of tiles",
    "call": "end of the call",
    "rest": "spread over the tiles",
}


@dataclass(frozen=True, slots=True)
class Exposed:
    """A term that nothing hides. `where`: a key of `WHERE`. `pins`: of the fastest other family that spends less there; its call
    takes `pinned_us`, and of that the term, or all of its part, `spent_us` `instead_of_us`. Empty where no family that was looked
    at does."""

    term: Term
    where: str
    why: str
    pins: tuple[tuple[str, str], ...] = ()
    pinned_us: float = 0.0
    spent_us: float = 0.0
    instead_of_us: float = 0.0


def work_us(account: Account) -> float:
    """Matmuls and attention on the critical path."""
    return sum(term.us for term in account.critical if is_work(term))


def is_work(term: Term) -> bool:
    """Whether a single GPU would have the term, too."""
    return term.part is Part.LOOP and term.what.startswith(_WORK)


def exposed_of(account: Account, others: Sequence[Rejected], course: Course, topology: Topology) -> list[Exposed]:
    """All that is no matmul and no attention, the longest first; gains of clocks last. `others`: families that lost."""
    found = [_exposed(term, account, others, course, topology) for term in account.critical if not is_work(term)]
    shown = [one for one in found if abs(one.term.us) >= _SHOWN]
    return sorted(shown, key=lambda one: (one.term.part is Part.CLOCKS, -abs(one.term.us)))


def _exposed(term: Term, account: Account, others: Sequence[Rejected], course: Course, topology: Topology) -> Exposed:
    worth = term.us >= max(_WORTH_US, _WORTH * account.total_us)
    other = _with_less(term, account, others) if worth else None
    why = " ".join(_reasons(term, course, topology)) or _WHY[term.part]
    if other is None:
        return Exposed(term, _place(term), why)
    spent, held = _spent(other.account, term), _spent(account, term)
    return Exposed(term, _place(term), why, tuple(texts(other.differs).items()), other.us, spent, held)


def _with_less(term: Term, account: Account, others: Sequence[Rejected]) -> Rejected | None:
    """The fastest family that spends less there."""
    held = _spent(account, term)
    less = [one for one in others if held - _spent(one.account, term) >= max(_WORTH_US, _SAVES * held)]
    return min(less, key=lambda one: one.us, default=None)


def _spent(account: Account, term: Term) -> float:
    """Of the term where programs compute, since others compute otherwise; else of all that is of its part, whatever moves."""
    if term.part in (Part.TILES, Part.LOOP):
        return sum(one.us for one in account.critical if one.what == term.what)
    return account.us(term.part)


def _place(term: Term) -> str:
    match term.part:
        case Part.WAIT:
            return "tail" if term.what.startswith("wait for the last of") else "wait"
        case Part.LAUNCH | Part.COLLECTIVE:
            return "start"
        case Part.CALL:
            return "start" if term.what.startswith(("wait until", "beginning", "telling")) else "call"
        case Part.SENDS if term.what.startswith("last stores"):
            return "tail"
        case Part.TILES if term.what.startswith(("tail of", "what is behind", "halves", "shares")):
            return "tail"
        case _:
            return "rest"


def _reasons(term: Term, course: Course, topology: Topology) -> Iterator[str]:
    """Why the term is there, with the numbers that make it."""
    last = term.what.split()[-1]
    match term.what.split():
        case ["wait", "for", "the", "first", "chunk", *_]:
            arrived = course.moves.get(last)
            come = f": the first transfer ends {arrived[0][1]:.1f} us after the call began" if arrived else ""
            yield f"The program that ends last has no further tile whose data are there{come}."
        case ["wait", "for", "further", "chunks", *_] if moves := course.moves.get(last):
            yield f"The transfers of {last} last until {moves[-1][1]:.1f} us: tiles are done faster than their chunks come."
        case ["wait", "for", "parts", "of", *_]:
            yield "Own tiles add what peers have computed for them, and are done before that is there."
        case ["wait", "for", "the", "last", *_]:
            yield f"All tiles are done, and the last transfers of {last} are still under way."
        case ["tail", "of", "the", "last", "wave", *_] | ["halves", *_] | ["shares", *_]:
            yield from _rounds(last, course)
        case ["what", "is", "behind", *_]:
            yield "The epilogue of the last tile has no further product to run beside."
        case ["start", "of", "each", *_]:
            yield "The first loads of a tile come from memory before its product can begin."
        case ["launch", "of", *_]:
            yield f"A kernel begins {topology.gpu.kernel_launch_us:.1f} us after what it is launched behind."
        case ["until", "the", "last", "peer", *_]:
            yield "Outputs or buffers are written by peers, so that a call is over when the slowest rank has ended it."


def _rounds(name: str, course: Course) -> Iterator[str]:
    """How full the last round of tiles is."""
    for tiles in course.tiles.values():
        role: ComputeRole = tiles.loop.role
        if role.name == name or role.name.removesuffix("_tiles") == name:
            rest = role.num_tiles % role.programs
            rounds = role.num_tiles / role.programs
            if rest:
                yield (
                    f"{role.num_tiles:,} tiles on {role.programs} programs are {rounds:.2f} rounds: in the last one "
                    f"{rest} programs have a tile and {role.programs - rest} have none."
                )
