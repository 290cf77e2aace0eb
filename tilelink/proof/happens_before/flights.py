"""Puts over a network as what they are: issued by one program, carried out by another one, of which nobody knows when.

    move sums[g] -> in_net[n]@peer, notify far[n]@peer = call                  # a program of a network role
    ->  notify issued[i] = call                                                # the program, which goes on
        wait issued[i] >= call; load sums[g]; notify read[i] = call            # what carries the put out: a source is read,
        store -> in_net[n]@peer; notify far[n]@peer = call                     # it lands, and is told of

So all that is known of puts follows from happens-before. A signal tells of what was known when its put was issued, and of its own
landing. Where signals tell of all puts before, one program carries out those of a program to a peer, one after the other. Whoever
overwrites a source waits for `read`: a put that returns when its source is free does so itself, else QUIET does. Where LANDED
stands, what carries a put out raises one more word behind its landing, for which the program waits.

A call ends before its puts have landed: the next one knows of them what signals tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import gcd, prod
from typing import NamedTuple

import numpy as np

from tilelink.proof.happens_before.lanes import Lanes
from tilelink.proof.happens_before.refuted import Refuted, Wrong
from tilelink.proof.happens_before.rows import Carry
from tilelink.schedule.index import Index, Number, call, rank, replaced
from tilelink.schedule.instance import with_indices
from tilelink.schedule.memory import Signal
from tilelink.schedule.network import Strength, Transport
from tilelink.schedule.printing import in_a_line
from tilelink.schedule.roles import Launch, Network, Phase, Role, Schedule
from tilelink.schedule.steps import For, If, Move, Notify, Order, Step, Store, Sync, Wait
from tilelink.schedule.walk import steps_in

ALONE, IN_ORDER = "in_flight", "in_flight_in_order"  # launches of what carries puts out
FLIGHTS = (ALONE, IN_ORDER)
_TILE = Index("tile")


def network_of(schedule: Schedule) -> tuple[Transport, int] | None:
    """The transport between nodes, and the ranks of a node; None if all ranks reach each other by loads and stores. Raises
    Refuted for a mesh that is none."""
    outer = [axis.transport is not None for axis in schedule.mesh]
    transports = {axis.transport for axis in schedule.mesh if axis.transport is not None}
    if not transports:
        return None
    if len(transports) > 1 or outer != sorted(outer, reverse=True):
        raise Refuted(
            Wrong.MALFORMED, detail="dimensions of ranks with a network, of one transport, come before all others"
        )
    (transport,) = transports
    inner = [axis.size for axis in schedule.mesh if axis.transport is None]
    assert all(isinstance(size, int) for size in inner), "instantiated"
    return transport, prod(int(size) for size in inner if isinstance(size, int))


def with_flights(schedule: Schedule) -> Schedule:
    """`schedule` with what carries out its puts. It has numbers for its dims."""
    network = network_of(schedule)
    if network is None:
        return schedule
    if any(launch.stream in FLIGHTS for launch in schedule.launches):
        raise Refuted(
            Wrong.MALFORMED, detail=f"streams called {' and '.join(FLIGHTS)} are those of what carries puts out"
        )
    flights = _Flights(schedule, network[0])
    launches = tuple(replace(launch, roles=tuple(map(flights.role, launch.roles))) for launch in schedule.launches)
    if not flights.roles:
        return schedule
    stream = IN_ORDER if network[0].strength is Strength.ALL_BEFORE else ALONE
    launches += (Launch(stream, tuple(flights.roles)),)
    return replace(schedule, launches=launches, signals=(*schedule.signals, *flights.signals))


@dataclass
class _Flights:
    schedule: Schedule
    transport: Transport
    roles: list[Role] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)

    def role(self, role: Role) -> Role:
        """The role as it issues its puts."""
        if not isinstance(role.engine, Network) or not role.programs:
            return role
        issuing, carrying = list[Phase](), list[Phase]()
        phases = [replace(phase, body=_one_by_one(phase.body)) for phase in role.phases]
        ranks, programs = self.schedule.num_ranks, role.programs
        puts = [_Puts(f"{role.name}_{at}", one, self.transport, ranks, programs) for at, one in enumerate(phases)]
        in_order = self.transport.strength is Strength.ALL_BEFORE
        apart = gcd(ranks, *(one.apart() for one in puts)) if in_order else 1
        for one in puts:
            issuing.append(replace(one.phase, body=one.issued(one.phase.body)))
            self.signals += one.signals()
            carrying += one.carried(apart)
        if in_order and carrying:
            self.roles.append(Role(f"puts_of_{role.name}", Network(programs * (ranks // apart)), tuple(carrying)))
        elif carrying:
            roles = (
                Role(f"puts_of_{role.name}_{number}", Network(_known(phase.count, "positions")), (phase,))
                for number, phase in enumerate(carrying)
            )
            self.roles += roles
        return replace(role, phases=tuple(issuing))


def _one_by_one(body: tuple[Step, ...]) -> tuple[Step, ...]:
    """Moves of several regions are several puts, of which the last one has the signal."""
    out = list[Step]()
    for step in body:
        match step:
            case For():
                out.append(replace(step, body=_one_by_one(step.body)))
            case If():
                out.append(replace(step, body=_one_by_one(step.body), others=_one_by_one(step.others)))
            case Move(source, target, notify):
                if not len(source) == len(target) > 0:
                    raise Refuted(Wrong.MALFORMED, detail=f"{in_a_line(step)}: source and target differ in number")
                pairs = list(zip(source, target, strict=True))
                out += [Move((a,), (b,)) for a, b in pairs[:-1]]
                out.append(Move((pairs[-1][0],), (pairs[-1][1],), notify))
            case _:
                out.append(step)
    return tuple(out)


def _is_put(step: Step) -> bool:
    """Also a signal by itself, which goes the same way."""
    return isinstance(step, Move) or (isinstance(step, Notify) and step.at != rank)


def _known(count: Number, of: str) -> int:
    """How many puts there are has to be known."""
    if not isinstance(count, int):
        raise Refuted(Wrong.MALFORMED, detail=f"nothing says how many {of} there are, and they put")
    return count


def _peer(step: Step) -> Number:
    """The rank that a put goes to."""
    if isinstance(step, Move):
        return step.target[0].at
    assert isinstance(step, Notify), "nothing else is a put"
    return step.at


class _Else(NamedTuple):
    """The other side of a branch."""

    of: If


_Around = tuple[For | If | _Else, ...]


@dataclass
class _Puts:
    """The puts of a phase. Each site in its text has words of its own, one for each time that it is done in a call."""

    name: str
    phase: Phase
    transport: Transport
    ranks: int
    programs: int

    def __post_init__(self) -> None:
        found = list(self._sites(self.phase.body, ()))
        self.sites = [(step, tuple(one for one in around if isinstance(one, For))) for step, around in found]
        self.around = [around for _, around in found]
        if self.sites and (self.phase.first != 0 or self.phase.every):
            raise Refuted(
                Wrong.MALFORMED, detail=f"{self.name}: puts of positions that do not begin at 0, one program each"
            )
        self.at, self.open = (
            0,
            list[int](),
        )  # sites so far, as one goes through the body, and those whose sources are read

    def _sites(self, body: tuple[Step, ...], around: _Around) -> Iterator[tuple[Step, _Around]]:
        """Each put with the loops around it, and with what it depends on."""
        for step in body:
            match step:
                case For():
                    yield from self._sites(step.body, (*around, step))
                case If():
                    yield from self._sites(step.body, (*around, replace(step, body=(), others=())))
                    yield from self._sites(step.others, (*around, _Else(step)))
                case _ if _is_put(step):
                    yield step, around

    @property
    def count(self) -> int:
        """Of positions."""
        return _known(self.phase.count, f"positions of {self.name}")

    def _rounds(self, loop: For) -> int:
        return _known(loop.count, f"rounds over {loop.variable} of {self.name}")

    def _words(self, site: int) -> int:
        _, loops = self.sites[site]
        return self.count * prod(map(self._rounds, loops))

    def _slot(self, site: int) -> Number:
        """Which of its words it has now."""
        slot: Number = _TILE
        for loop in self.sites[site][1]:
            slot = slot * self._rounds(loop) + Index(loop.variable)
        return slot

    def _issued(self, site: int) -> str:
        return f"{self.name}_issued_{site}"

    def _read(self, site: int) -> str:
        return f"{self.name}_read_{site}"

    def _landed(self, site: int) -> str:
        return f"{self.name}_landed_{site}"

    @property
    def asks(self) -> bool:
        """Whether its program waits until puts have landed."""
        return Sync(Order.LANDED) in steps_in(self.phase.body)

    def signals(self) -> Iterator[Signal]:
        for site in range(len(self.sites)):
            words = max(1, self._words(site))
            names = self._issued(site), self._read(site), *([self._landed(site)] if self.asks else [])
            yield from (Signal(name, (words,)) for name in names)

    # ---- who issues them ----
    def issued(self, body: tuple[Step, ...]) -> tuple[Step, ...]:
        """The body with signals for puts, and waits for their sources."""
        self.at, self.open = 0, []
        return self._issuing(body, ())

    def _issuing(self, body: tuple[Step, ...], inside: tuple[For, ...]) -> tuple[Step, ...]:
        out = list[Step]()
        for step in body:
            match step:
                case For():
                    out.append(replace(step, body=self._issuing(step.body, (*inside, step))))
                case If():
                    sides = [self._issuing(side, inside) for side in (step.body, step.others)]
                    out.append(replace(step, body=sides[0], others=sides[1]))
                case Sync(Order.QUIET):
                    out += self._over(inside, self._read)
                case Sync(Order.LANDED):
                    if not self.transport.lands:
                        unknown = (
                            f"a program of {self.name} cannot ask whether puts by {self.transport.name} have landed"
                        )
                        raise Refuted(Wrong.MALFORMED, detail=unknown)
                    out += self._over(inside, self._landed)
                case _ if _is_put(step):
                    out.append(Notify(self._issued(self.at), (self._slot(self.at),), rank, call))
                    self.open.append(self.at)
                    if self.transport.reusable:
                        out.append(Wait(self._read(self.at), (self._slot(self.at),), call))
                    self.at += 1
                case _:
                    out.append(step)
        return tuple(out)

    def _over(self, inside: tuple[For, ...], word: Callable[[int], str]) -> Iterator[Step]:
        """Waits for the words of puts of this position so far: of loops that are over, and of loops around this step those of
        the round at hand."""
        for site in self.open:
            step: Step = Wait(word(site), (self._slot(site),), call)
            for one in reversed(self.around[site]):
                match one:
                    case _Else(other):
                        step = replace(other, body=(), others=(step,))
                    case If():
                        step = replace(one, body=(step,))
                    case For() if all(one is not other for other in inside):
                        step = For(one.variable, one.count, (step,), one.let)
            yield step

    # ---- what carries them out ----
    def apart(self) -> int:
        """How far peers of puts are from their ranks: all of these numbers are multiples of it."""
        ranks, found = np.arange(self.ranks), self.ranks
        for step, loops in self.sites:
            lanes = Lanes({"rank": ranks, "tile": 0, "call": 1, "program": 0}, ranks, ranks)
            lanes, tile = lanes.repeated(np.full(len(lanes), self.count))
            lanes = lanes.having(tile=tile).with_let(self.phase.let, {})
            for loop in loops:
                lanes, number = lanes.repeated(np.full(len(lanes), self._rounds(loop)))
                lanes = lanes.having(**{loop.variable: number}).with_let(loop.let, {})
            far = (lanes.value(_peer(step), {}) - lanes.value(rank, {})) % self.ranks
            found = gcd(found, *np.unique(far).tolist())
        return found

    def carried(self, apart: int) -> Iterator[Phase]:
        """`apart`: see there, of the whole role."""
        if not self.sites:
            return
        if self.transport.strength is Strength.ALL_BEFORE:
            yield self._in_order(apart)
            return
        for site, (_, loops) in enumerate(self.sites):
            if self._words(site):
                yield self._alone(site, loops)

    def _flight(self, step: Step, site: int) -> tuple[Step, ...]:
        slot = self._slot(site)
        sources = tuple(one.buffer for one in step.source) if isinstance(step, Move) else ()
        wait, read = Wait(self._issued(site), (slot,), call, sources), Notify(self._read(site), (slot,), rank, call)
        if isinstance(step, Notify):
            return wait, read, step, *([Notify(self._landed(site), (slot,), rank, call)] if self.asks else [])
        assert isinstance(step, Move), "it is one"
        landed: tuple[Step, ...] = (
            Store("carried", step.target[0]),
            *([step.notify] if step.notify is not None else []),
            *([Notify(self._landed(site), (slot,), rank, call)] if self.asks else []),
        )
        return wait, Carry("carried", step.source[0]), read, *landed

    def _alone(self, site: int, loops: tuple[For, ...]) -> Phase:
        """Each of the puts of a site by a program of its own."""
        per, names = prod(map(self._rounds, loops)), dict[str, Number]()
        left = per
        for loop in loops:
            left //= self._rounds(loop)
            names[loop.variable] = _TILE // left % self._rounds(loop)
        names["tile"] = _TILE // per
        body, _ = self._only(self.phase.body, site, 0)

        def known(index: Number) -> Number:
            return replaced(index, names)

        let = tuple((name, known(index)) for name, index in self.phase.let)
        return Phase(self._words(site), with_indices(body, known), let)

    def _only(self, body: tuple[Step, ...], site: int, at: int) -> tuple[tuple[Step, ...], int]:
        """What is left of a body if nothing but the put of a site is done, in one round of its loops; and the sites behind it."""
        out = list[Step]()
        for step in body:
            match step:
                case For(let=let):
                    inner, at = self._only(step.body, site, at)
                    out += [For(f"{step.variable}_once", 1, inner, let)] if inner else []
                case If():
                    inner, at = self._only(step.body, site, at)
                    others, at = self._only(step.others, site, at)
                    out += [replace(step, body=inner, others=others)] if inner or others else []
                case _ if _is_put(step):
                    if at == site:
                        out += self._flight(step, site)
                    at += 1
        return tuple(out), at

    def _in_order(self, apart: int) -> Phase:
        """Those of a program to a peer by one program, in their order. Position k of program g, for the peer that is q * apart
        ranks behind, is position (k * peers + q) * programs + g here."""
        programs, peers = self.programs, self.ranks // apart
        place = _TILE // (programs * peers) * programs + _TILE % programs
        names: dict[str, Number] = {"tile": place}

        def known(index: Number) -> Number:
            return replaced(index, names)

        self.at = 0
        body = with_indices(self._guarded(self.phase.body), known)
        count = self.count
        let = (("behind", _TILE // programs % peers * apart), *((name, known(index)) for name, index in self.phase.let))
        rounds = -(-count // programs)
        inside = (If(Index("max", (place + 1 - count, 0)), 0, body),) if count % programs else body
        return Phase(rounds * programs * peers, inside, let)

    def _guarded(self, body: tuple[Step, ...]) -> tuple[Step, ...]:
        """Puts, each done for its own peer only."""
        out = list[Step]()
        for step in body:
            match step:
                case For():
                    inner = self._guarded(step.body)
                    out += [replace(step, body=inner)] if inner else []
                case If():
                    inner, others = self._guarded(step.body), self._guarded(step.others)
                    out += [replace(step, body=inner, others=others)] if inner or others else []
                case _ if _is_put(step):
                    far = (_peer(step) - rank + self.ranks) % self.ranks
                    out.append(If(Index("-", (Index("behind"), far)), 0, self._flight(step, self.at)))
                    self.at += 1
        return tuple(out)
