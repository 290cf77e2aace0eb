"""Rules of stores by multicast: the proof of their rounds, one store a rank, knows neither links nor instructions."""

from __future__ import annotations

from collections.abc import Iterator

from tilelink.ir.enums import Protocol
from tilelink.ir.nodes import Machine
from tilelink.proof.broken import Broken
from tilelink.schedule.index import Number, evaluate, names_in, replaced
from tilelink.schedule.memory import Memory
from tilelink.schedule.printing import in_a_line
from tilelink.schedule.roles import Role, Schedule, Sms
from tilelink.schedule.steps import For, Store
from tilelink.schedule.walk import phases, steps_in


def over_other_links(schedule: Schedule, machine: Machine) -> Iterator[Broken]:
    """Loops whose store does not reach all ranks of a node, with the links that there are."""
    for role, loop in _loops(schedule):
        if not machine.multicast:
            yield Broken(f"role {role.name}", f"{_text(loop)} by multicast")


def of_no_packets(schedule: Schedule, _: Machine) -> Iterator[Broken]:
    """Of other data a signal would have to tell, at all ranks. A packet tells of itself, and comes whole: it is one access of 8
    bytes at each rank, where PTX takes elements of a vector for several. So a line comes in pieces."""
    protocols = {one.name: one.protocol for one in schedule.buffers}
    facts = {Protocol.SIMPLE: "of no packets", Protocol.LL128: "of lines, which come in pieces"}
    for role, loop in _loops(schedule):
        for step in (one for one in loop.body if isinstance(one, Store)):
            protocol = protocols.get(step.region.buffer)
            if protocol is not None and (fact := facts.get(protocol)):
                yield Broken(f"role {role.name}", f"{in_a_line(step)} by multicast, {fact}")


def not_one_store(schedule: Schedule, _: Machine) -> Iterator[Broken]:
    """Loops whose rounds are not one store by a program, at one place of each rank of its node."""
    for role, loop in _loops(schedule):
        if fact := _why_not_one(schedule, role, loop):
            yield Broken(f"role {role.name}", f"{_text(loop)} by multicast: {fact}")


def _why_not_one(schedule: Schedule, role: Role, loop: For) -> str:
    let: dict[str, Number] = {}
    for name, index in loop.let:
        let[name] = replaced(index, let)
    match loop.body:
        case (Store(region=region),):
            buffer = next((one for one in schedule.buffers if one.name == region.buffer), None)
            if buffer is None or buffer.memory is not Memory.SYMMETRIC or buffer.places:
                return f"{region.buffer} does not lie at one place of all ranks"
            bound = {loop.variable, *let}
            if any(names_in(one) & bound for one in (*region.start, *region.extent)):
                return "it goes to another place of each rank"
            if not _every_rank(schedule, replaced(region.at, let), loop):
                return "its rounds are not all ranks of a node, each once"
            return "" if isinstance(role.engine, Sms) else "no program stores it"
    return "it is more than one store"


def _every_rank(schedule: Schedule, at: Number, loop: For) -> bool:
    """Whether the rounds go to the ranks of the own node."""
    ranks, local = int(schedule.num_ranks), int(schedule.ranks_per_node)
    if loop.count != local or names_in(at) - {"rank", loop.variable}:
        return False
    for rank in range(ranks):
        first = rank // local * local
        reached = {evaluate(at, {"rank": rank, loop.variable: one}) for one in range(local)}
        if reached != set(range(first, first + local)):
            return False
    return True


def _loops(schedule: Schedule) -> Iterator[tuple[Role, For]]:
    for _, role, phase in phases(schedule):
        for step in steps_in(phase.body):
            if isinstance(step, For) and step.multicast:
                yield role, step


def _text(loop: For) -> str:
    return "; ".join(map(in_a_line, (step for step in loop.body if not isinstance(step, For)))) or "nothing"
