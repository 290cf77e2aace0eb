"""Tokens: consumed, by the object that loads, in the right order."""

from __future__ import annotations

from collections.abc import Iterator

from tilelink.dialect_api.effects import CONSUME, WAIT, act_of, pointer
from tilelink.dialect_api.rule import Finding, Rule, finding
from tilelink.dialect_api.state import Event, Fact
from tilelink.dialect_api.value import Spot, Trait, Value, spot
from tilelink.dialect_api.walk import Context, Walked
from tilelink.stubs.model import Effect

_LEGAL = "pointer = dl.consume_token(pointer, token)"


def check(context: Context) -> Iterator[Finding]:
    """Kernel by kernel: a helper's token may be consumed by each of its callers."""
    for walked in context.walks:
        consumed: dict[Spot, Event] = {}
        for event in walked.events:
            node, first, second = event.argument("value"), event.value("value"), event.value("token")
            if event.path == CONSUME:
                for wait in second.tokens:
                    consumed.setdefault(wait, event)
                if node is not None and first.has(Trait.TOKEN) and not second.has(Trait.TOKEN):
                    yield finding(Rule.TOKEN_ORDER, node, "consume_token is given the token before the value", _LEGAL)
        stale = list(_stale(walked, consumed))
        yield from stale
        # a load past the token says more than that the token's pointer is idle
        yield from (found for found in _unused(walked, consumed) if not stale or found.rule is Rule.TOKEN_UNUSED)


def _unused(walked: Walked, consumed: dict[Spot, Event]) -> Iterator[Finding]:
    """Waits whose token goes nowhere, and tokens taken by what nothing uses."""
    used = set(walked.escaped)
    for event in walked.events:
        if event.path == CONSUME:
            used |= event.value("value").tokens  # has a finding of its own
        else:
            used.update(at for value in _values(event) for at in value.taken)
    for event in walked.events:
        at = spot(event.node)
        if event.path == WAIT and at not in used:
            if at in consumed:
                what = "nothing loads through what took the token"
                yield finding(Rule.TOKEN_NOT_IN_LOAD, consumed[at].node, what, _LEGAL)
            else:
                yield finding(Rule.TOKEN_UNUSED, event.node, "the token of this wait is not consumed", _LEGAL)


def _values(event: Event) -> list[Value]:
    return [event.receiver, *(value for _, _, value in event.arguments)]


def _is_shared(value: Value) -> bool:
    return value.has(Trait.SYMMETRIC) or value.has(Trait.PEER)


def _stale(walked: Walked, consumed: dict[Spot, Event]) -> Iterator[Finding]:
    """Loads through a pointer that was given a token under another name, or of symmetric data with no token at all."""
    moves = [event for event in walked.events if act_of(event) in (Effect.LOAD, Effect.STORE, Effect.PUT)]
    through_shared = {at for event in moves for value in _values(event) if _is_shared(value) for at in value.taken}
    for event in moves:
        if act_of(event) is not Effect.LOAD:
            continue
        address, waits, alone = pointer(event), event.seen(Fact.WAITS), event.seen(Fact.LONE_WAITS)
        guards = [event.seen(origin) for origin in address.origins if event.seen(origin)]
        astray = {at for at in waits if at in consumed} - through_shared
        what, legal = "", _LEGAL
        if alone and _is_shared(address):
            lines = ", ".join(str(line) for line in sorted({at.line for at in alone}))
            what = f"some threads have waited in line {lines}, and all load here without a barrier in between"
            legal = "__syncthreads() behind the wait"
        elif any(not address.taken & guard for guard in guards):
            what = "this load goes past the pointer that took the token"
        elif not guards and address.has(Trait.SYMMETRIC) and astray and not address.taken & waits:
            what = "the token of the wait before went to another object than the symmetric one loaded here"
        if what:
            yield finding(Rule.TOKEN_NOT_IN_LOAD, event.node, what, legal)
