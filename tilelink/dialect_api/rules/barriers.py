"""Memory order: a barrier before each raise, release and acquire at system scope between GPUs, no barrier in flat loops."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelink.dialect_api.context import Context
from tilelink.dialect_api.effects import NOTIFY, WAIT, Act
from tilelink.dialect_api.expressions import act_of, is_near, pointer, scope_of
from tilelink.dialect_api.model import Effect
from tilelink.dialect_api.rule import Finding, Rule, finding
from tilelink.dialect_api.state import Event
from tilelink.dialect_api.value import Trait, Value
from tilelink.dialect_api.walk import Walked

_RELAXED = ("relaxed", "monotonic")


def check(context: Context) -> Iterator[Finding]:
    """Kernel by kernel; who raises and who waits for a word is looked up in the whole file."""
    waited = frozenset(origin for event in context.events() if _waits(event) for origin in _word(event).origins)
    afar = frozenset(
        origin
        for event in context.device_events()
        if _waits(event) and _word(event).has(Trait.PEER)
        for origin in _word(event).origins
    )
    raised = frozenset(origin for event in context.events() if _raises_peer(event) for origin in _word(event).origins)
    for walked in context.walks:
        far = [index for index, event in enumerate(walked.events) if _raises_peer(event) and not is_near(event)]
        last_far = max(far, default=-1)
        for index, event in enumerate(walked.events):
            yield from _barrier(event)
            yield from _raise(event, waited, afar, published=index < last_far)
            yield from _wait(walked, event, raised)
            yield from _flattened(context, event)


def _barrier(event: Event) -> Iterator[Finding]:
    if act_of(event) is Act.RAISE and event.stores:
        lines = ", ".join(str(line) for line in sorted({at.line for at in event.stores}))
        what = f"there is a path from the store of line {lines} to here without a barrier of the program"
        yield finding(Rule.NO_BARRIER_BEFORE_RAISE, event.node, what, "__syncthreads() behind the last store")


def _word(event: Event) -> Value:
    """The word that a wait polls or a raise writes."""
    for name in ("sig_addr", "signal_tensor"):
        if event.argument(name) is not None:
            return event.value(name)
    return pointer(event)


def _waits(event: Event) -> bool:
    if event.function is None:
        return False
    acquiring = event.function.effect is Effect.LOAD and any(isinstance(loop, ast.While) for loop in event.loops)
    return event.function.effect is Effect.WAIT or event.function.name == "_wait_eq_cuda" or acquiring


def _raises_peer(event: Event) -> bool:
    """Whether another GPU may see the word change."""
    if event.function is not None and event.function.effect is Effect.PUT_RAISE:
        return True
    if act_of(event) is not Act.RAISE:
        return False
    if event.path == NOTIFY:
        far = event.given_or_default("comm_scope").constant in ("intra_node", "inter_node")
        return far and not event.value("rank").has(Trait.OWN_RANK)
    return pointer(event).has(Trait.PEER) or event.argument("sig_addr") is not None


def _raise(event: Event, waited: frozenset[str], afar: frozenset[str], *, published: bool) -> Iterator[Finding]:
    """A signal that a peer waits for, or that covers data stored into a peer.

    Programs may count their stores at GPU scope if one of them raises the peer's signal after that (`published`).
    """
    act = act_of(event)
    to_peer = pointer(event).has(Trait.PEER) or (event.path == NOTIFY and event.value("rank").has(Trait.OTHER_RANK))
    to_peer = to_peer or bool(pointer(event).origins & afar)  # a peer polls the word from where it is
    if act is Act.RAISE and is_near(event) and (to_peer or (event.peer_stores and not published)):
        legal = 'comm_scope="intra_node"' if event.path == NOTIFY else 'scope="sys"'
        yield finding(
            Rule.WEAK_SIGNAL, event.node, f"a peer sees this signal, whose scope is {scope_of(event)!r}", legal
        )
    relaxed = event.function is not None and event.given_or_default("semantic").constant in _RELAXED
    is_signal = to_peer and (act is Act.ATOMIC or pointer(event).origins & waited)
    if act in (Act.STORE, Act.ATOMIC) and relaxed and event.peer_stores and is_signal:
        legal = 'scope="sys", semantic="release"'
        what = "a relaxed signal does not order the stores into the peer before it"
        yield finding(Rule.WEAK_SIGNAL, event.node, what, legal)


def _wait(walked: Walked, event: Event, raised: frozenset[str]) -> Iterator[Finding]:
    word = _word(event)
    from_peer = word.has(Trait.PEER) or bool(word.origins & raised)
    polls = event.path == WAIT or (_waits(event) and event.entry is not None and from_peer)
    if polls and event.given_or_default("semantic").constant in _RELAXED:
        later = walked.events[walked.events.index(event) :]
        if not any(act_of(other) is Act.FENCE for other in later):
            what = "a relaxed wait orders nothing behind it, and no fence follows"
            yield finding(Rule.WEAK_SIGNAL, event.node, what, 'semantic="acquire"')
    if _waits(event) and event.entry is not None and from_peer and is_near(event):
        what = f"a peer raises this word, and the scope of the wait is {scope_of(event)!r}"
        yield finding(Rule.WEAK_SIGNAL, event.node, what, 'scope="sys"')


def _flattened(context: Context, event: Event) -> Iterator[Finding]:
    flat = any(isinstance(loop, ast.For) and _is_flat(context, loop) for loop in event.loops)
    if flat and act_of(event) is Act.BARRIER and event.path.endswith(".__syncthreads"):
        what = "this barrier stands in a loop that is tiles and k in one"
        legal = "for tile in tl.range(start, num_tiles, NUM_SMS) with a loop over k inside"
        yield finding(Rule.FLATTENED_BARRIER, event.node, what, legal)


def _is_flat(context: Context, loop: ast.For) -> bool:
    """`tl.range(..., flatten=True)`, or a counter of k that goes back to 0 in the body: `ki = tl.where(ki == ...)`."""
    if isinstance(loop.iter, ast.Call):
        for word in loop.iter.keywords:
            if word.arg == "flatten" and context.host.of(word.value, None).constant:
                return True
    for node in loop.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.Call(func=function, args=[ast.Compare() as test, *_])
            ):
                where = context.file.full_path(function) == "triton.language.where"
                if where and isinstance(test.left, ast.Name) and test.left.id == name:
                    return True
            case _:
                pass
    return False
