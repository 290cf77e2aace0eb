"""Rules of kernels: what a loop over tiles must be like for its compiler and its hardware. The table is part of `rules`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilelink.ir.calls import WordCollective
from tilelink.ir.dtype import DTYPE_BYTES
from tilelink.ir.nodes import TURN_SLICE_BYTES, Buffer, ComputeRole, CopyProgram, Kernel
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import (
    SMALLEST_DOT,
    Access,
    IfOwn,
    MatmulBody,
    Notify,
    Operand,
    Place,
    SlotNotify,
    SlotWait,
    Step,
    Store,
    SumWords,
    Wait,
    cut_axes,
    in_pieces,
)
from tilelink.ir.walk import flat, one_step_behind_wait, points, reads
from tilelink.ir.warpgroups import GROUP_WARPS, TURN_DTYPES, why_no_pieces, why_no_turns
from tilelink.proof.broken import Broken
from tilelink.proof.bug_class import BugClass

Located = tuple[int, Kernel, ComputeRole]


def _loops(schedule: Schedule) -> Iterator[Located]:
    for index, launch in enumerate(schedule.launches):
        if isinstance(launch, Kernel) and launch.compute is not None:
            yield index, launch, launch.compute


# ---- launches ----------------------------------------------------------------------------------------------------------


def _joined(schedule: Schedule) -> Iterator[Broken]:
    before: Kernel | None = None
    for index, launch in enumerate(schedule.launches):
        if isinstance(launch, Kernel):
            if launch.joined and (reason := _why_not_joined(before, launch)):
                yield Broken(f"launch {index}, {launch.name}", reason)
            before = launch
        elif not isinstance(launch, CopyProgram):
            before = None


def _why_not_joined(before: Kernel | None, joined: Kernel) -> str:
    if before is None:
        return "no kernel right before it has programs that could go on with it"
    if before.comm or joined.comm:
        return "programs that communicate compute no tiles"
    if (before.warps, before.per_sm, before.dies) != (joined.warps, joined.per_sm, joined.dies):
        return f"its programs have {joined.warps} warps, those of {before.name} {before.warps}, or another place"
    return ""


def _collectives(schedule: Schedule) -> Iterator[Broken]:
    for index, launch in enumerate(schedule.launches):
        if not isinstance(launch, WordCollective):
            continue
        if min(launch.programs, launch.block) < 1 or launch.block & (launch.block - 1):
            fact = f"{launch.programs} programs cannot move blocks of {launch.block} words"
            yield Broken(f"launch {index}, {launch.function}", fact)


def _gathers_within(schedule: Schedule) -> Iterator[Broken]:
    for kernel in schedule.kernels():
        for launch in schedule.within(kernel):
            if isinstance(launch, WordCollective) and (launch.programs != schedule.grid(kernel) or kernel.comm):
                fact = f"{launch.programs} programs gather, and {kernel.name} has {schedule.grid(kernel)}"
                yield Broken(f"collective {launch.out}", fact)


# ---- loops over tiles --------------------------------------------------------------------------------------------------


def _one_step(schedule: Schedule) -> Iterator[Broken]:
    for _, _, role in _loops(schedule):
        if role.prefetch and one_step_behind_wait(role):
            yield Broken(f"role {role.name}", "it prefetches behind a wait, and k is a single step")


def _late(schedule: Schedule) -> Iterator[Broken]:
    for _, _, role in _loops(schedule):
        if role.counts_late and not role.prefetch:
            yield Broken(f"role {role.name}", "its tiles are counted late without prefetch")


def _branches(schedule: Schedule) -> Iterator[Broken]:
    for index, _, role in _loops(schedule):
        for step in role.body:
            if isinstance(step, IfOwn) and role.axis(step.axis).segments == 1:
                yield Broken(f"launch {index}, role {role.name}", f"axis {step.axis} has no own segment to branch on")


def _together(schedule: Schedule) -> Iterator[Broken]:
    for index, _, role in _loops(schedule):
        first: MatmulBody | None = None
        for step in role.body:
            if not isinstance(step, MatmulBody):
                first = None
            elif not step.beside:
                first = step
            elif reason := _why_not_together(first, step):
                yield Broken(f"launch {index}, role {role.name}", f"{step.result} {reason}")


def _why_not_together(first: MatmulBody | None, step: MatmulBody) -> str:
    if first is None or first.result != step.beside:
        return f"runs in the loop of {step.beside}, which does not come right before it"
    if (first.left, first.axis) != (step.left, step.axis):
        return f"takes the tiles that {first.result} loads, which are not those of its left operand"
    return f"counts on other waits than {first.result}" if first.waits != step.waits else ""


def _halves(schedule: Schedule) -> Iterator[Broken]:
    for _, _, role in _loops(schedule):
        if role.halved:
            yield from (Broken(f"role {role.name}", reason) for reason in _why_no_halves(role))


def _why_no_halves(role: ComputeRole) -> Iterator[str]:
    minor = next((axis for axis in role.axes if axis.name == role.order.minor), None)
    steps: tuple[Step, ...] = (*role.body, *flat(role.body))  # `flat` leaves branches out
    if not 0 < role.halved <= role.num_tiles:
        yield f"{role.halved} of {role.num_tiles} tiles are halved"
    if minor is None or minor.tile % 2:
        yield f"tiles are halved along {role.order.minor or 'no axis'}, where they are not of an even extent"
    elif any(isinstance(step, MatmulBody) for step in steps) and minor.tile < 2 * SMALLEST_DOT:
        yield f"tiles are halved to {minor.tile // 2} columns, and matmuls need at least {SMALLEST_DOT}"
    if any(isinstance(step, Notify | SlotNotify) for step in steps):
        yield "tiles are halved, and count as whole ones"
    if any(isinstance(step, SumWords) for step in steps):
        yield "tiles are halved, and their words are those of whole ones"
    if any(_waits_whole(step, role.order.minor) for step in steps):
        yield "tiles are halved, and wait as whole ones"


def _waits_whole(step: Step, minor: str) -> bool:
    return isinstance(step, SlotWait | IfOwn) or (isinstance(step, Wait) and step.rows == minor)


# ---- descriptors -------------------------------------------------------------------------------------------------------


def _described(schedule: Schedule) -> Iterator[Broken]:
    for index, _, role in _loops(schedule):
        for at, step in points(index, role):
            stored = (step.operand,) if isinstance(step, Store) else ()
            for operand in (*(one for one, _ in reads(step)), *stored):
                if operand.access is Access.PIECES and not stored:
                    yield Broken(f"{at}, load of {operand.buffer}", "only stores leave in pieces")
                if operand.access is Access.DESCRIPTOR and (reason := _why_not_described(schedule, role, operand)):
                    yield Broken(f"{at}, descriptor of {operand.buffer}", reason)


def _why_not_described(schedule: Schedule, role: ComputeRole, operand: Operand) -> str:
    """Rows at multiples of 16 bytes, and no tile that runs over the end of a part into the next one."""
    buffer = schedule.buffer(operand.buffer)
    row_bytes = buffer.shape[-1] * DTYPE_BYTES[buffer.dtype]
    if not schedule.machine.tensor_descriptors:
        return "the machine has no tensor descriptors"
    if len(operand.index) != 2 or not all(operand.index) or row_bytes % 16:
        return f"rows of {row_bytes} bytes cannot be described"
    segments = {name for name in operand.index if role.axis(name).segments > 1}
    for name in (*segments, *cut_axes(operand.index, buffer.shape[-2:], operand.window)):
        axis = role.axis(name)
        if axis.tile and axis.extent % axis.tile:
            over = f"a segment of {axis.extent}" if name in segments else f"the window {list(operand.window)}"
            return f"tiles of {axis.tile} along {name} run over the end of {over}"
    return ""


def _fences(schedule: Schedule) -> Iterator[Broken]:
    for index, _, role in _loops(schedule):
        for at, step in points(index, role):
            for operand, waits in reads(step):
                if operand.access is not Access.DESCRIPTOR:
                    continue
                sent = {one.name for one in schedule.exchanges if one.target == operand.buffer}
                mine = [wait for wait in (*at.waits, *waits) if wait.exchange in sent]
                if mine and not any(wait.fence for wait in mine):
                    yield Broken(
                        f"{at}, load of {operand.buffer}", "no proxy fence comes after the wait", mine[0].signal
                    )


def _async_stores(schedule: Schedule) -> Iterator[Broken]:
    """A store by descriptor that peers, or who is told of it, may see before it is complete."""
    for index, _, role in _loops(schedule):
        for at, step in points(index, role):
            if isinstance(step, Store) and step.operand.access is Access.DESCRIPTOR and step.place is not Place.HERE:
                yield Broken(f"{at}, store of {step.value}", "the tile is stored at peers through a descriptor")
            if isinstance(step, Notify):
                buffers = {
                    b for one in schedule.exchanges if one.name == step.exchange for b in (one.source, one.target)
                }
                for store in at.stores:
                    if store.operand.buffer in buffers and store.operand.access is Access.DESCRIPTOR:
                        fact = "the tile is stored through a descriptor, and a signal tells of it"
                        yield Broken(f"{at}, notify {step.count}", fact, step.count)


# ---- warpgroups --------------------------------------------------------------------------------------------------------


def _turns(schedule: Schedule) -> Iterator[Broken]:
    for _, kernel, role in _loops(schedule):
        pieces = any(map(in_pieces, flat(role.body)))
        if role.warpgroups == 1 and pieces:
            fact = "its tiles leave in pieces, which a warpgroup sends while another one multiplies, and it has one"
            yield Broken(f"role {role.name}", fact)
        elif role.warpgroups != 1:
            reason = _why_no_groups(schedule, kernel, role) or why_no_turns(role) or _why_no_pieces(schedule, role)
            if role.warpgroups != 2:
                reason = f"{role.warpgroups} of them are none or too many"
            if reason:
                yield Broken(f"role {role.name}", f"its warpgroups cannot take turns: {reason}")


def _why_no_groups(schedule: Schedule, kernel: Kernel, role: ComputeRole) -> str:
    if not schedule.machine.arch.startswith("sm_9"):
        return f"their matrix products are those of sm_90, not of {schedule.machine.arch}"
    operands = {o.buffer for m in role.body if isinstance(m, MatmulBody) for o in (m.left, m.right)}
    dtypes = {buffer.dtype for buffer in schedule.buffers if buffer.name in operands} - set(TURN_DTYPES)
    if dtypes:
        return f"operands are {', '.join(sorted(dtypes))}, not {' or '.join(TURN_DTYPES)}"
    if kernel.warps != GROUP_WARPS or kernel.per_sm != 1:
        return f"a group has {GROUP_WARPS} warps, and a program takes an SM for itself"
    if kernel.comm or kernel.joined or len(schedule.joined_to(kernel)) > 1:
        return "programs do something else before or behind their tiles"
    return ""


def _why_no_pieces(schedule: Schedule, role: ComputeRole) -> str:
    buffers = {buffer.name: buffer for buffer in schedule.buffers}  # that there is none is found elsewhere

    def sent(steps: tuple[Step, ...]) -> list[tuple[Operand, Buffer]]:
        stores = [step.operand for step in flat(steps) if isinstance(step, Store) and in_pieces(step)]
        return [(operand, buffers[operand.buffer]) for operand in stores if operand.buffer in buffers]

    if any(map(in_pieces, flat(role.body))) and not schedule.machine.tensor_descriptors:
        return "pieces leave through descriptors, which the machine has not"
    for branch in (step for step in role.body if isinstance(step, IfOwn)):
        cols = [axis for axis in role.axes if not axis.reduction][-1].tile // branch.slices
        if any(cols * DTYPE_BYTES[buffer.dtype] != TURN_SLICE_BYTES for _, buffer in sent(branch.own)):
            return f"pieces have rows of {TURN_SLICE_BYTES} bytes, and slices of own tiles {cols} columns"
    reasons = (why_no_pieces(role, operand, buffer) for operand, buffer in sent(role.body))
    return next(filter(None, reasons), "")


RULES: tuple[tuple[BugClass, str, Callable[[Schedule], Iterator[Broken]]], ...] = (
    (BugClass.RESIDENCY, "a program goes on as it was launched", _joined),
    (BugClass.WRONG_PLACE, "programs take blocks of a power of two", _collectives),
    (BugClass.RESIDENCY, "all programs of the launch wait for those that gather", _gathers_within),
    (BugClass.COMPILED_ORDER, "the compiler would load later tiles before their wait", _one_step),
    (BugClass.WRONG_PLACE, "no loop begins the next tile before one is stored", _late),
    (BugClass.WRONG_PLACE, "a branch needs both", _branches),
    (BugClass.WRONG_PLACE, "matmuls of one loop share its loads and waits", _together),
    (BugClass.WRONG_PLACE, "half a tile must do for all that its steps do", _halves),
    (BugClass.WRONG_PLACE, "hardware describes no such tensor", _described),
    (BugClass.ASYNC_STORE, "descriptors may see what lay there before", _fences),
    (BugClass.ASYNC_STORE, "no release waits for such a store", _async_stores),
    (BugClass.WRONG_PLACE, "lowering counts on this", _turns),
)
