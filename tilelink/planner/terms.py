"""A predicted time in named terms: what takes it, and what runs meanwhile.

matmul of out 300, wait for the first chunk of x_full 12, launch of out 3, end of the call 2   ->   317 us
copies of x_full by copy engines 180, hidden by matmul of out

Terms of the compute stream follow each other, so that they add up to the predicted time. Of a tile loop they are those of the
program that ends last. What a rank's movers do beside them is hidden, but for what the stream waits for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tilelink.ir.calls import LibraryCollective, LibraryOp, PacketCollective, StateMerge
from tilelink.ir.enums import Choice
from tilelink.ir.nodes import (
    AwaitPeers,
    Begin,
    Finish,
    Kernel,
    Launch,
    TellPlace,
)
from tilelink.ir.schedule import Schedule
from tilelink.planner.cost import Model, Span
from tilelink.planner.draft import Draft, draft_of
from tilelink.planner.last_tiles import pieces_of
from tilelink.planner.loop import Times
from tilelink.planner.term_names import name_of, work_of
from tilelink.planner.tile_run import TileLoop, TileRun
from topologies.topology import Topology

_NOTHING = 1e-9  # us, what rounding leaves


class Part(Choice):
    """What terms of different schedules are compared by."""

    LOOP = "computing"  # matmuls, sums, and the memory traffic of both
    TILES = "starts, signals and last wave of tiles"
    SENDS = "stores and loads of tiles at peers"
    WAIT = "waiting for peers"
    COLLECTIVE = "collectives that nothing hides"
    LAUNCH = "launches"
    CALL = "beginning and end of the call"
    BESIDE = "what runs beside the tiles"
    CLOCKS = "clocks"


@dataclass(frozen=True, slots=True)
class Term:
    """`us` microseconds of `what`. `hidden_by`: the term of the compute stream that runs meanwhile; empty where it is on the
    critical path."""

    part: Part
    what: str
    us: float
    hidden_by: str = ""


class Stretch(NamedTuple):
    """A stretch of the compute stream, in us from the start of the call. `what` hides what runs beside it, but for the exchange
    that it `awaits`."""

    begin: float
    end: float
    what: str
    awaits: str = ""


@dataclass(frozen=True, slots=True)
class Account:
    """A predicted time, unrounded, as the sum of `critical`, in their order; `hidden` runs beside these. `stretches`: when which
    of them is; those of `BESIDE` and `CLOCKS` have no place in time."""

    total_us: float
    critical: tuple[Term, ...]
    hidden: tuple[Term, ...]
    stretches: tuple[Stretch, ...]

    def us(self, part: Part) -> float:
        """Of all terms of that part on the critical path."""
        return sum(term.us for term in self.critical if term.part is part)


def account_of(schedule: Schedule, topology: Topology) -> Account:
    """The terms of `predict_us(schedule, topology)`."""
    return account(draft_of(schedule), topology)


def account(draft: Draft, topology: Topology) -> Account:
    """The terms of one call of a draft."""
    model = Model(draft, topology, {})
    total = model.run()
    ledger = _Ledger(model)
    for span in model.spans:
        ledger.add(span)
    end = model.spans[-1].end if model.spans else 0.0
    ledger.until(model.transfers.end, end)
    ended_at = max(model.now, model.transfers.end)
    ledger.spend(Part.BESIDE, "tiles slowed by copies beside them", model.drag)
    ledger.spend(Part.CLOCKS, "higher clocks while tensor cores rest", -model.saved_us(ended_at))
    return Account(total, tuple(ledger.critical()), tuple(ledger.hidden()), tuple(ledger.stretches))


class _Ledger:
    """What the compute stream spends, by name, and its stretches."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.spent: dict[tuple[Part, str], float] = {}
        self.stretches: list[Stretch] = []

    def critical(self) -> Iterator[Term]:
        return (Term(part, what, us) for (part, what), us in self.spent.items())

    def spend(self, part: Part, what: str, us: float) -> None:
        if abs(us) > _NOTHING:
            self.spent[part, what] = self.spent.get((part, what), 0.0) + us

    def stretch(self, part: Part, what: str, begin: float, end: float, awaits: str = "") -> None:
        """Time of the stream that is one term."""
        self.spend(part, what, end - begin)
        self.stretches.append(Stretch(begin, end, what, awaits))

    def until(self, ended: float, now: float) -> None:
        """Transfers that end after the stream's work."""
        if ended > now:
            name = self._last_moved(ended)
            self.stretch(Part.WAIT, f"wait for the last of {name}", now, ended, name)

    def add(self, span: Span) -> None:
        launch, begin, end = span
        match launch:
            case Finish():
                ended = max(begin, self.model.transfers.end)
                self.until(ended, begin)
                last, met = self.model.end_us(launch, ended)
                self.stretch(Part.CALL, "end of the call", ended, ended + last)
                self.stretch(Part.CALL, "until the last peer has ended the call", ended + last, ended + last + met)
            case Kernel(compute=None):
                began = begin if launch.joined else begin + self.model.gpu.kernel_launch_us
                names = ", ".join(comm.exchange for comm in launch.comm)
                self.stretch(Part.LAUNCH, f"launch of {launch.name}", begin, began)
                self.stretch(Part.WAIT, f"wait for the last of {names}", began, end, launch.comm[0].exchange)
            case Kernel():
                self._kernel(launch, begin, end)
            case LibraryOp():
                self._library(launch, begin, end)
            case _:
                self.stretch(_part(launch), name_of(launch), begin, end)

    def _library(self, launch: LibraryOp, begin: float, end: float) -> None:
        launch_us, out = self.model.gpu.kernel_launch_us, launch.out.buffer
        pieces = self.model.pieces(launch)
        self.stretch(Part.LAUNCH, f"launch of {out}", begin, begin + launch_us)
        self.spend(Part.LAUNCH, f"launch of {out}", launch_us * (pieces - 1))
        paused = [pause for pause in self.model.pauses if begin <= pause[1] < end] if launch.split else []
        now = begin + launch_us
        for name, first, last in paused:
            self.stretches += [
                Stretch(now, first, f"{launch.how.word} of {out} by the library"),
                Stretch(first, last, f"wait for chunks of {name}", name),
            ]
            self.spend(Part.WAIT, f"wait for chunks of {name}", last - first)
            now = last
        self.stretches.append(Stretch(now, end, f"{launch.how.word} of {out} by the library"))
        rest = end - begin - launch_us * pieces - sum(last - first for _, first, last in paused)
        whole = min(rest, self.model.by_library[out].total_us)
        self.spend(Part.LOOP, f"{launch.how.word} of {out} by the library", whole)
        self.spend(Part.LOOP, f"pieces of the {launch.how.word} of {out} instead of a whole", rest - whole)

    def _kernel(self, kernel: Kernel, begin: float, end: float) -> None:
        loop, times = self.model.loops[kernel.name], self.model.tiles[kernel.name]
        began = times.last_began_us
        if loop.role.first:  # its program goes on before the last one of those before ends
            self.stretch(Part.TILES, f"tiles of {loop.role.name} before the last ones of the loop before", begin, began)
        else:
            self.stretch(Part.LAUNCH, f"launch of {loop.role.name}", begin, began)
        chain = _Chain(self.model, loop, began, times.ends_us)
        for part, what, us in chain.terms():
            self.spend(part, what, us)
        for stretch in chain.stretches:
            if stretch.awaits:
                self.spend(Part.WAIT, stretch.what, stretch.end - stretch.begin)
        self.stretches += chain.stretches
        drained = began + chain.total_us + loop.cost.drain_us
        self.stretch(Part.SENDS, f"last stores of {loop.role.name} to peers", began + chain.total_us, drained)
        self.spend(Part.LAUNCH, "no launch between kernels that are one", end - drained)

    def _last_moved(self, ended: float) -> str:
        """The exchange whose transfers end then."""
        moves = self.model.transfers.moves
        found = [name for name, spans in moves.items() if abs(float(spans[-1, 1]) - ended) < _NOTHING]
        slots = [name for name, exchange in self.model.parts.exchanges.items() if exchange.slots]
        return (found or slots or list(moves))[0]

    def hidden(self) -> Iterator[Term]:
        """What movers do beside the stream, each stretch under the name of what hides it."""
        for name, moves in self.model.transfers.moves.items():
            exchange, beside = self.model.parts.exchange(name), dict[str, float]()
            for begin, end in _union(moves.tolist()):
                for stretch in self.stretches:
                    shared = min(end, stretch.end) - max(begin, stretch.begin)
                    if shared > _NOTHING and stretch.awaits != name:
                        beside[stretch.what] = beside.get(stretch.what, 0.0) + shared
            yield from (Term(Part.BESIDE, exchange.mover.what(exchange.name), us, what) for what, us in beside.items())


class _Chain:
    """The program of a tile loop that ends last: its tiles, and its stretches of work and of waits."""

    def __init__(self, model: Model, loop: TileLoop, begin: float, ends: Times) -> None:
        self.loop, self.cost, self.role, self.begin, self.ends = loop, loop.cost, loop.role, begin, ends
        run = TileRun(model.transfers, loop, begin, model.meet_share)
        self.ready = {wait.exchange: np.broadcast_to(run.ready_for(wait), ends.shape) for wait in loop.waits}
        self.total_us = float(ends.max()) - begin
        self.what = work_of(loop)
        self.stretches: list[Stretch] = []
        self.cut, self.pieces, self.piece_us = pieces_of(loop.cost)
        self.places, self.behind = self._of_last()
        self.own = [bool(loop.own[place]) for place in self.places]
        if self.role.warpgroups > 1:
            self._in_turns()
        else:
            self._one_by_one()

    def terms(self) -> Iterator[tuple[Part, str, float]]:
        """What the program does, without waits."""
        name, count = self.role.name, len(self.places)
        even = min(count, (self.role.num_tiles - self.cut) / self.role.programs)
        parts = self.cost.parts_us
        memory = f"memory traffic of {name} beyond the matmul" if parts.computed else self.what
        yield Part.LOOP, self.what, even * parts.computed
        yield Part.LOOP, memory, even * parts.memory
        yield Part.SENDS, f"loads of {name} from peers", even * parts.remote
        yield Part.SENDS, f"stores of {name} to peers", even * parts.sends
        yield Part.LOOP, f"loads behind the matmul of {name}", even * parts.loads
        yield Part.BESIDE, f"{name} slowed by programs that copy beside it", even * parts.beside
        yield Part.TILES, f"start of each tile of {name}", even * (parts.start + parts.again)
        yield Part.TILES, f"signals of tiles of {name}", even * parts.counts
        yield Part.SENDS, f"packets of {name} to and from peers", even * parts.packets
        # the program that ends last may have more tiles than others, or longer ones
        longer = sum(self.loop.tile_us(place) - self.cost.tile_us for place in self.places)
        yield Part.TILES, f"tail of the last wave of {name}", (count - even) * sum(parts) + longer
        what = "shares along k" if self.role.split else "halves"
        yield Part.TILES, f"{what} of the last tiles of {name}", self.piece_us * len(self.behind)
        yield Part.LOOP, f"sum of parts into {name}", self._sums_us()
        if self.role.warpgroups > 1:
            pieces = 0.0 if self.own[-1] else self.cost.pieces_us
            yield Part.TILES, f"what is behind the last matmul of {name}", self.cost.behind_us + pieces

    def _sums_us(self) -> float:
        if not self.loop.sums:
            return 0.0
        own = self.own[-1:] if self.role.warpgroups > 1 else self.own  # in turns, matmuls hide those before
        return sum(own) * self.cost.own_extra_us

    def _of_last(self) -> tuple[list[int], list[int]]:
        """Its whole tiles, and the tiles of which it has a piece behind them."""
        last, programs, whole = int(self.ends.argmax()), self.role.programs, len(self.ends) - self.cut
        places, behind, pieces = list(range(last % programs, last + 1, programs)), list[int](), self.pieces
        for piece in range(pieces * (last - whole), pieces * (last - whole + 1)) if last >= whole else ():
            places = list(range(piece % programs, whole, programs))
            behind = [whole + one // pieces for one in range(piece % programs, piece + 1, programs)]
            now = float(self.ends[places[-1]]) if places else self.begin
            for place in behind:
                ready = max((float(times[place]) for times in self.ready.values()), default=self.begin)
                now = max(now, ready, self.begin) + self.piece_us
            if abs(now - float(self.ends[last])) < _NOTHING:
                break
        return places, behind

    def _one_by_one(self) -> None:
        now = self.begin
        for place, own in zip(self.places, self.own, strict=True):
            now = self._wait(now, place)
            extra = self.cost.own_extra_us if own and self.loop.sums else 0.0
            end, tile_us = float(self.ends[place]), self.loop.tile_us(place)
            parts = end - extra - tile_us - now
            self._work(now, now + tile_us)
            if parts > _NOTHING:
                self._paused(now + tile_us, now + tile_us + parts, *self._parts())
            self._work(end - extra, end)
            now = end
        for place in self.behind:
            now = self._wait(now, place)
            self._work(now, now + self.piece_us)
            now += self.piece_us

    def _in_turns(self) -> None:
        """Where warpgroups take turns, all waits but the first one stand together before the last tile ends."""
        now = self._wait(self.begin, self.places[0])
        work = sum(us for _, _, us in self.terms())
        end = float(self.ends[self.places[-1]])
        rest = end - now - work
        self._work(now, end - max(0.0, rest))
        if abs(rest) > _NOTHING:
            waits = (
                self._parts()
                if any(self.own)
                else next(iter(self._waits()), (f"wait for the other warpgroup of {self.role.name}", " "))
            )
            self._paused(end - rest, end, *waits)

    def _wait(self, now: float, place: int) -> float:
        """When the tile at `place` can begin."""
        if not self.ready:
            return now
        name = max(self.ready, key=lambda name: float(self.ready[name][place]))
        ready = float(self.ready[name][place])
        if ready <= now + _NOTHING:
            return now
        first = not any(stretch.awaits for stretch in self.stretches)
        self._paused(now, ready, f"wait for {'the first chunk' if first else 'further chunks'} of {name}", name)
        return ready

    def _waits(self) -> Iterator[tuple[str, str]]:
        return ((f"wait for further chunks of {name}", name) for name in self.ready)

    def _parts(self) -> tuple[str, str]:
        """The wait of own tiles for what peers make."""
        waits = [step.wait.exchange for step in self.loop.sums if step.wait is not None]
        others = " and for other sums of them" if self.role.warpgroups > 1 else ""
        return f"wait for parts of {waits[0]}{others}", waits[0]

    def _work(self, begin: float, end: float) -> None:
        self.stretches.append(Stretch(begin, end, self.what))

    def _paused(self, begin: float, end: float, what: str, awaits: str) -> None:
        self.stretches.append(Stretch(begin, end, what, awaits))


def _part(launch: Launch) -> Part:
    """What a launch of one term belongs to."""
    match launch:
        case AwaitPeers() | TellPlace() | Begin():
            return Part.CALL
        case LibraryCollective() | PacketCollective() | StateMerge():
            return Part.COLLECTIVE
        case _:
            return Part.LAUNCH


def _union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans without what they have in common."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found
