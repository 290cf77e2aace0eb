"""When a mutated schedule does the same work by other words, other accesses or with other facts about the machine."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import lru_cache
from itertools import chain

import lowering
from tilelink.ir.nodes import ComputeRole, Machine, Memory, Publish, Scope, Signal
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import DTYPE_BYTES
from tilelink.ir.steps import Access, Operand, Place, Store, Wait
from tilelink.mutation.progress import all_resident
from tilelink.mutation.schedule_pair import Pair
from tilelink.mutation.sites import sites

BETWEEN_FUNCTIONS = "\n\n\n"
LARGEST_TILE = 256  # elements of a descriptor's block along one axis


def same_text(pair: Pair) -> bool:
    machines = replace(pair.after.machine, stream_waits=pair.before.machine.stream_waits), pair.before.machine
    if machines[0] != machines[1]:
        return False
    try:
        return _code(pair.before) == _code(pair.after)
    except Exception:
        return False  # what cannot be lowered is no equivalent


@lru_cache(maxsize=4)
def _code(schedule: Schedule) -> tuple[str, ...]:
    """What the emitted file does: its syntax tree without comments, docstrings and the hash of the schedule; and without
    fabric and self-check, which are made of the spec alone."""
    parts = lowering.emit(schedule).partition("# ---- fabric")[0].split(BETWEEN_FUNCTIONS)
    return tuple(chain.from_iterable(map(_statements, parts)))


@lru_cache(maxsize=256)  # a mutant differs from its original in few functions
def _statements(text: str) -> tuple[str, ...]:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            body[0].value.value = ""
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SCHEDULE":
            node.value = ast.Constant("")
    return tuple(map(ast.dump, tree.body))


def signals_renamed(pair: Pair) -> bool:
    if replace(pair.after, signals=pair.before.signals) != pair.before:
        return False
    if len(pair.after.signals) != len(pair.before.signals):
        return False
    for one, other in zip(pair.before.signals, pair.after.signals, strict=True):
        if replace(other, first=one.first) != one:
            return False
    return _disjoint(pair.after, local=True) and _disjoint(pair.after, local=False)


def _disjoint(schedule: Schedule, *, local: bool) -> bool:
    """No two local signals share a word, or no two that peers raise, and all words are among those that are allocated."""
    found = sorted((s.first, s.first + s.slots) for s in schedule.signals if (s.scope is Scope.LOCAL) is local)
    total = sum(end - first for first, end in found)
    ends = [0, *(end for _, end in found)]
    return all(first >= end for (first, _), end in zip(found, ends, strict=False)) and ends[-1] <= total


def words_to_spare(pair: Pair) -> bool:
    found = pair.only
    if found is None or found.field != "slots" or not isinstance(found.owner, Signal):
        return False
    signal = found.owner
    local = signal.scope is Scope.LOCAL
    last = all(other.first <= signal.first for other in pair.before.signals if (other.scope is Scope.LOCAL) is local)
    return isinstance(found.after, int) and found.after > signal.slots and last


def fence_to_spare(pair: Pair) -> bool:
    found = pair.only
    return found is not None and isinstance(found.owner, Wait) and found.field == "fence" and found.after is True


def pointer_for_descriptor(pair: Pair) -> bool:
    found = pair.only
    if found is None or not isinstance(found.owner, Operand) or found.after is not Access.POINTER:
        return False
    role = found.within(ComputeRole)
    return role is not None and all(
        axis.segments == 1 or axis.extent % axis.tile == 0
        for axis in role.axes
        if axis.name in found.owner.index and axis.tile
    )


def descriptor_for_an_output(pair: Pair) -> bool:
    found = pair.only
    if found is None or not isinstance(found.owner, Operand) or found.after is not Access.DESCRIPTOR:
        return False
    role, store = found.within(ComputeRole), found.within(Store)
    if role is None or store is None or store.place is not Place.HERE:
        return False
    buffer, axes = pair.before.buffer(found.owner.buffer), [role.axis(name) for name in found.owner.index if name]
    whole = all(axis.extent % axis.tile == 0 and axis.tile <= LARGEST_TILE for axis in axes if axis.tile)
    even = len(axes) == 2 and buffer.shape[-1] * DTYPE_BYTES[buffer.dtype] % 16 == 0
    fresh = buffer.memory is Memory.OUTPUT and not found.owner.slot and not found.owner.cut
    return fresh and whole and even and pair.before.machine.tensor_descriptors


def own_part_of_the_input(pair: Pair) -> bool:
    found = pair.only
    if found is None or found.field != "own" or not isinstance(found.owner, Operand):
        return False
    return any(
        isinstance(launch, Publish)
        and launch.copy_from == found.after
        and pair.before.exchange(launch.exchange).source == found.before
        for launch in pair.before.launches
    )


def fewer_sms_are_enough(pair: Pair) -> bool:
    found = pair.only
    if found is None or found.field != "num_sms" or not isinstance(found.owner, Machine):
        return False
    return all_resident(pair.after)


def waits_by_a_program(pair: Pair) -> bool:
    found = pair.only
    if found is None or found.field != "stream_waits" or not isinstance(found.owner, Machine):
        return False
    return found.after is False and all_resident(pair.after)


def descriptors_not_used(pair: Pair) -> bool:
    found = pair.only
    if found is None or found.field != "tensor_descriptors" or not isinstance(found.owner, Machine):
        return False
    return all(site.node.access is Access.POINTER for site in sites(pair.before, Operand))
