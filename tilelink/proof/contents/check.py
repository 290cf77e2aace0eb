"""Contents: steps put the values of the spec where the caller finds them, each element of them.

It says nothing of when: that no read comes before the writes that it needs, and no write before reads of what lay there, is
proved of the same steps by `happens_before`. So it does not matter in which order steps are looked at here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np

from tilelink.ir.slices import as_computed
from tilelink.ir.spec import BoundSpec
from tilelink.proof.bug_class import BugClass
from tilelink.proof.contents.alike import Alike, alike
from tilelink.proof.contents.anew import read_too_late
from tilelink.proof.contents.attending import with_states_of_parts
from tilelink.proof.contents.memory import SEVERAL, UNKNOWN, Access
from tilelink.proof.contents.memory import Memory as Cells
from tilelink.proof.contents.routed import in_order_of_tables
from tilelink.proof.contents.run import Run
from tilelink.proof.contents.shares import with_shares_of_tokens
from tilelink.proof.contents.splits import with_shares
from tilelink.proof.contents.states import with_logs_in_base_2
from tilelink.proof.contents.tables import wrong_tables
from tilelink.proof.contents.tile import Tile
from tilelink.proof.contents.trace import Block, Done, traced, where
from tilelink.proof.contents.user_folds import with_states_of_folds
from tilelink.proof.contents.values import Mismatch, Values
from tilelink.proof.findings import Finding
from tilelink.proof.happens_before.ranks import Unlike
from tilelink.schedule.index import names_in, rank
from tilelink.schedule.instance import instantiated
from tilelink.schedule.memory import Access as MemoryAccess
from tilelink.schedule.memory import Memory, Region
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import Move, Store
from tilelink.schedule.walk import all_steps, read, written

_CALLS = (2, 3)  # an even and an odd one: sets of packets are used in turn


def contents(schedule: Schedule, spec: BoundSpec) -> Iterator[Finding]:
    """What is wrong with what `schedule` makes of the inputs of `spec`, on any rank. `spec` may be as it is carried out. Raises
    Refuted for what has no meaning."""
    schedule, spec = instantiated(schedule), as_computed(spec)
    if wrong := list(wrong_tables(schedule, spec)):
        yield from wrong
        return
    schedule, spec, wrong = with_shares_of_tokens(schedule, with_states_of_folds(with_logs_in_base_2(spec)))
    if wrong:
        yield from wrong
        return
    schedule, spec = with_shares(*in_order_of_tables(schedule, with_states_of_parts(spec)))
    values = Values(spec, computed=True)
    yield from _tensors(schedule, values)
    regions = (region for step in all_steps(schedule) for region in (*read(step), *written(step)))
    turns = any("call" in names_in(one) for region in regions for one in region.start)
    for call in _CALLS if turns else _CALLS[:1]:
        found = _of_few(schedule, values, call)
        if found:
            yield from found
            return


def _of_few(schedule: Schedule, values: Values, call: int) -> list[Finding]:
    """What is wrong in `call`, seen on as few ranks as can be."""
    *few, each = alike(schedule, values)
    for ranks in few:
        with contextlib.suppress(Unlike):
            return list(_of_call(schedule, values, call, ranks))
    return list(_of_call(schedule, values, call, each))


def _of_call(schedule: Schedule, values: Values, call: int, ranks: Alike) -> Iterator[Finding]:
    blocks, touches = traced(schedule, call, ranks)
    done = [one for block in blocks for one in block.done()]
    accesses = [access for one in done for access in (*one.reads, *one.writes, *one.parts) if access is not None]
    accesses += [touch.access for touch in touches]
    outputs = {name: _whole(schedule, name, accesses, ranks) for name in values.spec.outputs if name in schedule.shapes}
    memory = Cells(schedule.shapes, ranks.period, [*accesses, *outputs.values()])
    yield from _over_the_end(blocks)
    yield from _left_out(blocks)
    yield from read_too_late(touches, memory)
    yield from Run(schedule, values, memory, ranks).all(blocks)
    for name, access in outputs.items():
        yield from _output(schedule, values, memory, name, access)


def _over_the_end(blocks: list[Block]) -> Iterator[Finding]:
    """Hardware masks what sticks out of a tensor. To a descriptor parts are one tensor: rows run on into the next part."""
    for block in blocks:
        for done in block.done():
            for region, access in zip(_described(done), (*done.reads, *done.writes), strict=False):
                if len(access.start) < 3 or region.access in (MemoryAccess.POINTER, MemoryAccess.PARTS):
                    continue
                if isinstance(done.step, Move) and _at_one_part(region):
                    continue
                if done.pieces and done.pieces[-2] is not None:  # summed over: the other operand is masked there
                    continue
                reach = access.low[-2] - access.start[-2] + access.sizes[-2]
                rows = region.extent[-2] if done.rows is None else done.rows
                if not isinstance(region.extent[-2], int) or (wrong := reach != rows).any():
                    lane = int(np.flatnonzero(wrong)[0]) if isinstance(region.extent[-2], int) else 0
                    place, example = where(block, done.step, lane)
                    yield Finding(BugClass.WRONG_PLACE, place, "its rows run over the end of a part", tile=example)


def _at_one_part(region: Region) -> bool:
    """Whether rows leave a few at a time through descriptors of one part, which each rank has."""
    return region.access is MemoryAccess.PACED and not any(names_in(one) - {rank.op} for one in region.start[:-2])


def _left_out(blocks: list[Block]) -> Iterator[Finding]:
    """Descriptors store whole tiles: they cannot leave out rows that another tile stores."""
    for block in blocks:
        for step in (done.step for done in block.done()):
            if isinstance(step, Store) and step.skip != 0 and step.region.access.by_descriptor:
                place, example = where(block, step, 0)
                yield Finding(BugClass.WRONG_PLACE, place, "a descriptor cannot leave out rows of it", tile=example)


def _described(done: Done) -> tuple[Region, ...]:
    return (*read(done.step), *written(done.step))


def _tensors(schedule: Schedule, values: Values) -> Iterator[Finding]:
    """Inputs and outputs are tensors of the caller, as the spec has them."""
    buffers = {buffer.name: buffer for buffer in schedule.buffers}
    given = [value.name for value in values.spec.inputs]
    for name in (*given, *values.spec.outputs):
        buffer, wanted = buffers.get(name), (values.shapes[name], values.dtypes[name])
        if buffer is None:
            if name in values.spec.outputs:
                yield Finding(BugClass.WRONG_PLACE, f"output {name}", "there is no buffer of that name")
            continue
        memory = (Memory.INPUT,) if name in given else (Memory.OUTPUT, Memory.SYMMETRIC)
        if buffer.memory not in memory:
            yield Finding(BugClass.WRONG_PLACE, f"buffer {name}", f"it lies in {buffer.memory.value} memory")
        shape = schedule.shapes[name]
        flat = (int(np.prod(shape[:-1])), shape[-1]) if len(shape) == len(wanted[0]) + 1 else shape
        if (flat, buffer.dtype) != wanted:
            fact = f"it is {list(shape)} {buffer.dtype}, and {name} is {list(wanted[0])} {wanted[1]}"
            yield Finding(BugClass.WRONG_PLACE, f"buffer {name}", fact)


def _whole(schedule: Schedule, name: str, accesses: list[Access], alike: Alike) -> Access:
    """All of a buffer on each rank, as it is when the call ends."""
    shape, ranks = schedule.shapes[name], np.arange(alike.period)
    low, high = (tuple(ranks * 0 + one for one in ends) for ends in ([0] * len(shape), shape))
    last = max((int(one.version.max()) for one in accesses if one.buffer == name and len(one)), default=0)
    return Access(name, ranks, low, low, high, ranks * 0 + last)


def _output(schedule: Schedule, values: Values, memory: Cells, name: str, access: Access) -> Iterator[Finding]:
    """Every element is there, on every rank."""
    where = f"output {name}"
    cells = memory.cells_of(access)
    labels = memory.read(cells)
    if (wrong := labels <= UNKNOWN).any():
        lane = int(np.flatnonzero(wrong)[0])
        fact = "different things lie in a part of it" if labels[lane] == SEVERAL else "nothing makes a part of it"
        yield Finding(BugClass.WRONG_PLACE, where, fact, tile=_example(cells, lane))
        return
    found = memory.tile(cells, labels, tuple(range(len(cells.start))))
    if not isinstance(found, Tile):
        yield Finding(BugClass.WRONG_PLACE, where, found)
        return
    try:
        part = values.part(found, name)
    except Mismatch as mismatch:
        lanes = np.flatnonzero(mismatch.lanes) if mismatch.lanes is not None else [0]
        yield Finding(BugClass.WRONG_PLACE, where, mismatch.why, tile=_example(cells, int(lanes[0])))
        return
    shape = schedule.shapes[name]
    flat = list(cells.start)
    if len(shape) == len(part.start) + 1:  # of parts, one behind the other
        flat = [cells.start[0] * shape[1] + cells.start[1], *cells.start[2:]]
    wrong = ~part.on(cells.at)
    for start, place in zip(part.start, flat, strict=True):
        wrong |= start != place
    if wrong.any():
        fact = "other elements lie there than those of this place and rank"
        yield Finding(BugClass.WRONG_PLACE, where, fact, tile=_example(cells, int(np.flatnonzero(wrong)[0])))


def _example(cells: Access, lane: int) -> str:
    box = ", ".join(f"{int(a[lane])} : {int(b[lane])}" for a, b in zip(cells.low, cells.high, strict=True))
    return f"[{box}] on rank {int(cells.at[lane])}"
