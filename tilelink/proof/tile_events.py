"""Tiles in the wait-for relation: what each waits for, what each counts for, and which program runs it when."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import cache
from typing import NamedTuple

from tilelink.ir.nodes import ComputeRole, Exchange, Kind
from tilelink.ir.order import RankOrder
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import (
    AwaitPlaces,
    IfOwn,
    MatmulBody,
    Notify,
    Place,
    SlotNotify,
    SlotWait,
    Step,
    SumParts,
    SumWords,
    Wait,
)
from tilelink.proof.circle import WaitFor
from tilelink.proof.walk import chunks_of

Tile = dict[str, tuple[int, int]]  # axis -> (segment as a distance from the own rank, tile in the segment)


Stage = tuple[list[str], list[str]]  # signals waited for, signals raised after


class TileEvent(NamedTuple):
    """What a tile does between two waits; a tuple, because there are as many as tiles."""

    launch: int
    position: int
    stage: int

    def __str__(self) -> str:
        where = "" if not self.stage else f", stage {self.stage}" if self.stage > 0 else ", ahead"
        return f"tile {self.position} of launch {self.launch}{where}"


def _axes_of_syncs(steps: tuple[Step, ...]) -> frozenset[str]:
    """Axes on which waits, notifies and branches depend."""
    found: set[str] = set()
    for step in steps:
        match step:
            case Wait(slot=slot, rows=rows) | Notify(slot=slot, rows=rows):
                found |= {slot, rows}
            case MatmulBody(waits=waits):
                found |= {name for wait in waits for name in (wait.slot, wait.rows)}
            case SumParts(wait=wait):
                found |= {wait.slot, wait.rows} if wait is not None else set()
            case SlotWait(rows=rows) | SlotNotify(rows=rows):
                found |= {rows}
            case SumWords(index=index):
                found |= set(index)
            case IfOwn(axis, own, others):
                found |= {axis} | _axes_of_syncs(own) | _axes_of_syncs(others)
            case _:
                pass
    return frozenset(found)


@cache
def opposite(order: RankOrder, distance: int) -> int:
    """The distance back: of nodes and of ranks inside a node."""
    size = order.ranks_per_node
    nodes = order.num_ranks // size
    return (-(distance // size)) % nodes * size + (-(distance % size)) % size


def use_word(exchange: Exchange, step: SlotWait | SlotNotify, item: int) -> str:
    """The word of the slot of `item` at the value that the step waits for or raises; empty for one that the calls before
    have raised. Uses are counted from the start of the call here: those of earlier calls are a constant."""
    use, place = divmod(item, exchange.slots)
    return f"{step.signal}[slot {place}, use {use + step.plus}]" if use + step.plus > 0 else ""


def place_word(signal: str, distance: int) -> str:
    """The word in which the rank at `distance` tells where its output lies."""
    return f"{signal}[rank at {distance}]"


def _counting(body: tuple[Step, ...]) -> Iterator[Notify]:
    """What counts a tile of another segment than the own one."""
    for step in body:
        if isinstance(step, Notify):
            yield step
        elif isinstance(step, IfOwn):
            yield from _counting(step.others)


def _chain(relation: WaitFor, here: Hashable, events: list[tuple[TileEvent, Stage]]) -> Hashable:
    """Add `events` one after the other behind `here`; the last of them."""
    for event, (waited, raised) in events:
        relation.after(event, here)
        for signal in waited:
            relation.waits(event, signal)
        for signal in raised:
            relation.raises(signal, event)
        here = event
    return here


class TileEvents:
    """Adds the tiles of a role to the relation. Two events a tile that both waits and counts: it may count first."""

    def __init__(self, schedule: Schedule, role: ComputeRole, launch: int) -> None:
        self.schedule = schedule
        self.role = role
        self.launch = launch
        self._chunks = cache(self._touched)

    def tiles(self) -> Iterator[Tile]:
        """Tiles by launch position; of those in halves, each half."""
        role, order = self.role, self.role.order
        major = role.axis(order.major)
        minor = role.axis(order.minor) if order.minor else None
        minor_tiles = minor.segments * minor.tiles if minor else 1
        segments = order.ranks.sequence(0) if major.segments > 1 else (0,)
        minor_segments = order.minor_ranks.sequence(0) if minor and minor.segments > 1 else (0,)
        for position, (place, row, column) in enumerate(order.sequence(major.tiles, minor_tiles, major.segments)):
            tile = {major.name: (segments[place], row)}
            if minor is not None:
                tile[minor.name] = (minor_segments[column // minor.tiles], column % minor.tiles)
            yield tile
            if position >= role.whole:  # the other half
                yield tile

    def add(self, relation: WaitFor, start: Hashable, end: Hashable) -> None:
        """Programs take the tiles in turn: position q goes to program q % programs, after its position q - programs. So do
        halves, which have positions of their own behind those of all whole tiles.

        With `prefetch`, what a tile waits for before its loads comes before what its predecessor does after its body. A
        tile that is counted late is counted after that of its successor, or before the first own tile.
        """
        last: list[Hashable] = [start] * self.role.programs
        held: list[list[tuple[TileEvent, Stage]]] = [[] for _ in last]  # the rest of a tile, after the next one's waits
        late: list[list[tuple[TileEvent, Stage]]] = [[] for _ in last]  # what counts a tile, after the next one
        known: dict[
            tuple[tuple[int, int], ...], tuple[Stage, list[Stage], list[str]]
        ] = {}  # minor tiles of a row wait for the same
        own: set[int] = set()  # programs that have come to their own tiles
        spoken = _axes_of_syncs(self.role.body)
        for position, tile in enumerate(self.tiles()):
            program = (position if position < self.role.whole else position - self.role.whole) % self.role.programs
            key = tuple(tile[axis] for axis in tile if axis in spoken)
            if key not in known:
                known[key] = self._split(tile)
            ahead, stages, counted = known[key]
            events = [(TileEvent(self.launch, position, number), stage) for number, stage in enumerate(stages)]
            if self._own(tile) and program not in own:  # the loop over the tiles of other segments is over
                own.add(program)
                last[program] = _chain(relation, last[program], [*held[program], *late[program]])
                held[program], late[program] = [], []
            events, late[program] = [*late[program], *events], []
            if counted:
                late[program] = [(TileEvent(self.launch, position, len(stages)), ([], counted))]
            before = [*([(TileEvent(self.launch, position, -1), ahead)] if ahead[0] else []), *held[program]]
            held[program] = events if ahead[0] else []
            last[program] = _chain(relation, last[program], before if ahead[0] else [*before, *events])
        for event, rest, counts in zip(last, held, late, strict=True):
            relation.after(end, _chain(relation, event, [*rest, *counts]))

    def _own(self, tile: Tile) -> bool:
        """Whether the tile is one of those that have a loop of their own, behind that of the others."""
        branch = self.role.body[-1]
        return self.role.prefetch and isinstance(branch, IfOwn) and tile[branch.axis][0] == 0

    def _split(self, tile: Tile) -> tuple[Stage, list[Stage], list[str]]:
        """What is waited for ahead of the tile before, the stages of the rest, and what is raised late."""
        body = self.role.body
        loads = next((i + 1 for i, step in enumerate(body) if isinstance(step, MatmulBody)), 0)
        early = loads if self.role.prefetch else 0
        ahead = [signal for waited, _ in self._syncs(body[:early], tile) for signal in waited]
        late = self.role.counts_late and not self._own(tile)
        counted = [signal for step in _counting(body) for signal in self._raised(step, tile)] if late else []
        return (ahead, []), self._stages(body[early:], tile), counted

    def _stages(self, steps: tuple[Step, ...], tile: Tile) -> list[Stage]:
        """(signals waited for, signals raised after) in program order; a wait after a notify opens another stage."""
        stages: list[Stage] = [([], [])]
        for waited, raised in self._syncs(steps, tile):
            if waited and stages[-1][1]:
                stages.append(([], []))
            stages[-1][0].extend(waited)
            stages[-1][1].extend(raised)
        return stages

    def _syncs(self, steps: tuple[Step, ...], tile: Tile) -> Iterator[Stage]:
        for step in steps:
            match step:
                case Wait():
                    yield self._waited(step, tile), []
                case MatmulBody(waits=waits):
                    for wait in waits:
                        yield self._waited(wait, tile), []
                case SumParts(wait=wait):
                    if wait is not None:
                        yield self._waited(wait, tile), []
                case Notify() if self.role.counts_late and not self._own(tile):
                    pass
                case Notify():
                    yield [], self._raised(step, tile)
                case SlotWait(rows=rows):
                    word = use_word(self.schedule.exchange(step.exchange), step, tile[rows][1])
                    yield [word] if word else [], []
                case SumWords(result=result):  # sent before those of the same tile of a peer are waited for
                    word = f"words of {result}{sorted(tile.items())}"
                    yield [], [word]
                    yield [word], []
                case AwaitPlaces(signal):
                    yield [place_word(signal, distance) for distance in range(self.schedule.num_ranks)], []
                case SlotNotify(rows=rows):
                    yield [], [use_word(self.schedule.exchange(step.exchange), step, tile[rows][1])]
                case IfOwn(axis, own, others):
                    yield from self._syncs(own if tile[axis][0] == 0 else others, tile)
                case _:
                    pass

    def _waited(self, wait: Wait, tile: Tile) -> list[str]:
        exchange = self.schedule.exchange(wait.exchange)
        one = not wait.every and wait.slot in tile
        distances = [tile[wait.slot][0]] if one else list(range(self.schedule.num_ranks))
        chunks = self._rows(exchange, wait.rows, wait.slot, tile)
        return [
            f"{wait.signal}[peer at {distance}, chunk {chunk}]"
            for distance in distances
            if distance or wait.own
            for chunk in chunks
        ]

    def _rows(self, exchange: Exchange, rows: str, slot: str, tile: Tile) -> range:
        if not rows or rows not in tile or exchange.chunks == 1:
            return range(exchange.chunks)
        segment, number = tile[rows]
        axis = self.role.axis(rows)
        # `rows` counts from the start of a part where it is the axis of the parts, or is cut for a fold into the own part
        local = rows == slot or axis.segments == 1 or axis.segments * axis.extent > exchange.rows
        return self._chunks(exchange.name, rows, 0 if local else segment, number)

    def _touched(self, exchange: str, rows: str, segment: int, number: int) -> range:
        axis = self.role.axis(rows)
        first = segment * axis.extent + number * axis.tile
        end = segment * axis.extent + min((number + 1) * axis.tile, axis.extent)
        return chunks_of(self.schedule.exchange(exchange), (first, end))

    def _raised(self, step: Notify, tile: Tile) -> list[str]:
        exchange = self.schedule.exchange(step.exchange)
        distance = tile[step.slot][0] if step.slot in tile else 0
        scatter = exchange.kind is Kind.SCATTER
        signals = []
        for chunk in self._rows(exchange, step.rows, step.slot, tile):
            signals.append(
                f"{step.count}[peer at {distance}, chunk {chunk}]" if scatter else f"{step.count}[chunk {chunk}]"
            )
            signals += self._announced(exchange, step, distance, chunk)
        return signals

    def _announced(self, exchange: Exchange, step: Notify, distance: int, chunk: int) -> list[str]:
        """Slots at rank 0 that the same tile of a peer raises: by symmetry those that this tile raises elsewhere."""
        if not step.then:
            return []
        if step.place is Place.PEER:
            back = opposite(exchange.order.ranks, distance)
            return [f"{step.then}[peer at {back}, chunk {chunk}]"]
        return [f"{step.then}[peer at {peer}, chunk {chunk}]" for peer in range(self.schedule.num_ranks)]
