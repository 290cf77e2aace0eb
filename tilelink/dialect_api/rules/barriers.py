"""Memory order: a barrier before each raise, release and acquire at system scope between GPUs, no barrier in flat loops."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelink.dialect_api.effects import NOTIFY, WAIT, act_of, is_near, pointer, scope_of, word
from tilelink.dialect_api.rule import Finding, Rule, finding
from tilelink.dialect_api.state import Event, Fact
from tilelink.dialect_api.value import Trait
from tilelink.dialect_api.walk import Context, Walked
from tilelink.stubs.model import Effect

_RELAXED = ("relaxed", "monotonic")


def check(context: Context) -> Iterator[Finding]:
    """Kernel by kernel; who raises and who waits for a word is looked up in the whole file."""
    waits = [event for event in context.events if _waits(event)]
    waited = _origins(waits)
    afar = _origins([event for event in waits if event.entry is not None and word(event).has(Trait.PEER)])
    raised = _origins([event for event in context.events if _raises_peer(event)])
    for walked in context.walks:
        far = [index for index, event in enumerate(walked.events) if _raises_peer(event) and not is_near(event)]
        for index, event in enumerate(walked.events):
            yield from _barrier(event)
            yield from _raise(event, waited, afar, published=index < max(far, default=-1))
            yield from _wait(walked, event, raised)
            yield from _flattened(context, event)


def _origins(events: list[Event]) -> frozenset[str]:
    return frozenset(origin for event in events for origin in word(event).origins)


def _barrier(event: Event) -> Iterator[Finding]:
    stores = event.seen(Fact.STORES)
    if stores and act_of(event) is Effect.RAISE:
        lines = ", ".join(str(line) for line in sorted({at.line for at in stores}))
        what = f"there is a path from the store of line {lines} to here without a barrier of the program"
        yield finding(Rule.NO_BARRIER_BEFORE_RAISE, event.node, what, "__syncthreads() behind the last store")


def _waits(event: Event) -> bool:
    """Whether a call waits for a word, or loads it in a loop until it has changed."""
    if event.function is None:
        return False
    polls = event.function.effect is Effect.LOAD and any(isinstance(loop, ast.While) for loop in event.loops)
    return event.function.effect is Effect.WAIT or event.function.name == "_wait_eq_cuda" or polls


def _raises_peer(event: Event) -> bool:
    """Whether another GPU may see the word change."""
    if event.function is not None and event.function.effect is Effect.PUT_RAISE:
        return True
    if act_of(event) is not Effect.RAISE:
        return False
    if event.path == NOTIFY:
        return scope_of(event) in ("intra_node", "inter_node") and not event.value("rank").has(Trait.OWN_RANK)
    return pointer(event).has(Trait.PEER) or event.argument("sig_addr") is not None


def _is_relaxed(event: Event) -> bool:
    return event.given_or_default("semantic").constant in _RELAXED


def _raise(event: Event, waited: frozenset[str], afar: frozenset[str], *, published: bool) -> Iterator[Finding]:
    """A signal that a peer waits for, or that covers data stored into a peer.

    Programs may count their stores at GPU scope if one of them raises the peer's signal after that (`published`).
    """
    act, address, data = act_of(event), pointer(event), event.seen(Fact.PEER_STORES)
    to_peer = address.has(Trait.PEER) or (event.path == NOTIFY and event.value("rank").has(Trait.OTHER_RANK))
    to_peer = to_peer or bool(address.origins & afar)  # a peer polls the word from where it is
    if act is Effect.RAISE and is_near(event) and (to_peer or (data and not published)):
        legal = 'comm_scope="intra_node"' if event.path == NOTIFY else 'scope="sys"'
        what = f"a peer sees this signal, whose scope is {scope_of(event)!r}"
        yield finding(Rule.WEAK_SIGNAL, event.node, what, legal)
    is_signal = to_peer and (act is Effect.ATOMIC or (act is Effect.STORE and bool(address.origins & waited)))
    if is_signal and data and event.function is not None and _is_relaxed(event):
        what = "a relaxed signal does not order the stores into the peer before it"
        yield finding(Rule.WEAK_SIGNAL, event.node, what, 'scope="sys", semantic="release"')


def _wait(walked: Walked, event: Event, raised: frozenset[str]) -> Iterator[Finding]:
    from_peer = _waits(event) and (word(event).has(Trait.PEER) or bool(word(event).origins & raised))
    if (from_peer or event.path == WAIT) and _is_relaxed(event):
        later = walked.events[walked.events.index(event) :]
        if not any(act_of(other) is Effect.FENCE for other in later):
            what = "a relaxed wait orders nothing behind it, and no fence follows"
            yield finding(Rule.WEAK_SIGNAL, event.node, what, 'semantic="acquire"')
    if from_peer and is_near(event):
        what = f"a peer raises this word, and the scope of the wait is {scope_of(event)!r}"
        yield finding(Rule.WEAK_SIGNAL, event.node, what, 'scope="sys"')


def _flattened(context: Context, event: Event) -> Iterator[Finding]:
    flat = any(isinstance(loop, ast.For) and _is_flat(context, loop) for loop in event.loops)
    if flat and event.path.endswith(".__syncthreads"):
        what = "this barrier stands in a loop that is tiles and k in one"
        legal = "for tile in tl.range(start, num_tiles, NUM_SMS) with a loop over k inside"
        yield finding(Rule.FLATTENED_BARRIER, event.node, what, legal)


def _is_flat(context: Context, loop: ast.For) -> bool:
    """`tl.range(..., flatten=True)`, or a counter of k that goes back to 0 in the body: `ki = tl.where(ki == ...)`."""
    words = loop.iter.keywords if isinstance(loop.iter, ast.Call) else []
    if any(word.arg == "flatten" and context.host.of(word.value, None).constant for word in words):
        return True
    for node in loop.body:
        match node:
            case ast.Assign([ast.Name(counter)], ast.Call(function, [ast.Compare(ast.Name(tested)), *_])):
                if counter == tested and context.file.full_path(function) == "triton.language.where":
                    return True
    return False
