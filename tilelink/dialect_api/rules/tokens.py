"""Tokens: consumed, by the object that loads, in the right order."""

from __future__ import annotations

from collections.abc import Iterator

from tilelink.dialect_api.context import Context
from tilelink.dialect_api.effects import CONSUME, WAIT, Act
from tilelink.dialect_api.expressions import act_of, pointer
from tilelink.dialect_api.rule import Finding, Rule, finding
from tilelink.dialect_api.state import Event
from tilelink.dialect_api.value import Spot, Trait, spot
from tilelink.dialect_api.walk import Walked

_LEGAL = "pointer = dl.consume_token(pointer, token)"


def check(context: Context) -> Iterator[Finding]:
    """Kernel by kernel: a helper's token may be consumed by each of its callers."""
    for walked in context.walks:
        yield from _order(walked)
        stale = list(_stale(walked))
        yield from stale
        # a load past the token says more than that the token's pointer is idle
        yield from (found for found in _unused(walked) if not stale or found.rule is Rule.TOKEN_UNUSED)


def _order(walked: Walked) -> Iterator[Finding]:
    for event in walked.events:
        node = event.argument("value")
        swapped = event.value("value").has(Trait.TOKEN) and not event.value("token").has(Trait.TOKEN)
        if event.path == CONSUME and node is not None and swapped:
            yield finding(Rule.TOKEN_ORDER, node, "consume_token is given the token before the value", _LEGAL)


def _swapped(event: Event) -> frozenset[Spot]:
    return event.value("value").tokens if event.path == CONSUME else frozenset()


def _unused(walked: Walked) -> Iterator[Finding]:
    """Waits whose token goes nowhere, and tokens taken by what nothing uses."""
    consumed: dict[Spot, Event] = {}
    used = set(walked.escaped)
    for event in walked.events:
        used |= _swapped(event)  # has a finding of its own
        if event.path == CONSUME:
            for wait in event.value("token").tokens:
                consumed.setdefault(wait, event)
        else:
            used.update(at for _, _, value in event.arguments for at in value.taken)
            used |= event.receiver.taken
    for event in walked.events:
        at = spot(event.node)
        if event.path == WAIT and at not in used:
            if at in consumed:
                what = "nothing loads through what took the token"
                yield finding(Rule.TOKEN_NOT_IN_LOAD, consumed[at].node, what, _LEGAL)
            else:
                yield finding(Rule.TOKEN_UNUSED, event.node, "the token of this wait is not consumed", _LEGAL)


def _stale(walked: Walked) -> Iterator[Finding]:
    """Loads through a pointer that was given a token under another name, or of symmetric data with no token at all."""
    through_symmetric = {
        at
        for event in walked.events
        if act_of(event) in (Act.LOAD, Act.STORE, Act.PUT)
        for value in (pointer(event), *(value for _, _, value in event.arguments))
        if value.has(Trait.SYMMETRIC) or value.has(Trait.PEER)
        for at in value.taken
    }
    consumed = {at for event in walked.events if event.path == CONSUME for at in event.value("token").tokens}
    for event in walked.events:
        if act_of(event) is not Act.LOAD:
            continue
        address = pointer(event)
        if event.lone_waits and (address.has(Trait.SYMMETRIC) or address.has(Trait.PEER)):
            lines = ", ".join(str(line) for line in sorted({at.line for at in event.lone_waits}))
            what = f"some threads have waited in line {lines}, and all load here without a barrier in between"
            yield finding(Rule.TOKEN_NOT_IN_LOAD, event.node, what, "__syncthreads() behind the wait")
            continue
        guards = dict(event.guarded)
        stale = [origin for origin in sorted(address.origins) if guards.get(origin, frozenset())]
        if any(not address.taken & guards[origin] for origin in stale):
            yield finding(
                Rule.TOKEN_NOT_IN_LOAD, event.node, "this load goes past the pointer that took the token", _LEGAL
            )
            continue
        astray = (event.waits & consumed) - through_symmetric
        if not stale and address.has(Trait.SYMMETRIC) and astray and not address.taken & event.waits:
            what = "the token of the wait before went to another object than the symmetric one loaded here"
            yield finding(Rule.TOKEN_NOT_IN_LOAD, event.node, what, _LEGAL)
