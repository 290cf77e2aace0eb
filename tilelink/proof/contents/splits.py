"""Reductions that several programs share, as if each share were a phase and a value of its own.

    k_share = tile % S                 ->  S phases, in which `k_share` is a number
    y = x @ w                          ->  y share q = x[:, k(q) : k(q + 1)] @ w[k(q) : k(q + 1)], and their sum is y, too

The first is so in whatever order positions come, the second of any cut of the reduction; here it is that of equal numbers of
steps. So this adds nothing to what is believed: steps that sum anything else make no value of the spec.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilelink.ir.spec import BoundNode, BoundSpec, BoundValue, Elementwise, Matmul, Slice
from tilelink.schedule.index import Index, Number, names_in, replaced
from tilelink.schedule.instance import with_indices
from tilelink.schedule.roles import Phase, Role, Schedule
from tilelink.schedule.steps import Compute, For, If, Step
from tilelink.schedule.walk import mapped, steps_in

TILE = Index("tile")


def with_shares(schedule: Schedule, spec: BoundSpec) -> tuple[Schedule, BoundSpec]:
    """Schedule and spec without positions that differ in their share. `schedule` has numbers for its dims."""
    cuts = set[tuple[int, int]]()  # programs that share a tile, and the extent of a step
    launches = []
    for launch in schedule.launches:
        roles = tuple(_apart(role, cuts) for role in launch.roles)
        launches.append(replace(launch, roles=roles))
    if not cuts:
        return schedule, spec
    nodes = tuple(one for node in spec.nodes for one in (*_shares(spec, node, cuts), node))
    return replace(schedule, launches=tuple(launches)), replace(spec, nodes=nodes)


def _apart(role: Role, cuts: set[tuple[int, int]]) -> Role:
    phases = list[Phase]()
    for phase in role.phases:
        loops = [step for step in steps_in(phase.body) if isinstance(step, For) and any(map(_multiplies, step.body))]
        shares = {name: value for name, value in phase.let if any(name in names_in(loop.count) for loop in loops)}
        if len(shares) != 1 or not isinstance(phase.count, int) or phase.first != 0:
            phases.append(phase)
            continue
        ((name, value),) = shares.items()
        splits = value.args[1] if isinstance(value, Index) and value.op == "%" and value.args[0] == TILE else 0
        if not isinstance(splits, int) or splits < 2 or phase.count % splits:
            phases.append(phase)
            continue
        cuts |= {(splits, size) for size in map(_extent, loops) if size}
        phases += (_of_share(phase, name, splits, number) for number in range(splits))
    return replace(role, phases=tuple(phases))


def _multiplies(step: Step) -> bool:
    return isinstance(step, Compute) and step.op == "dot"


def _extent(loop: For) -> int:
    """Of a step along k; 0 if it is none."""
    found = (one.args[1] for _, one in loop.let if isinstance(one, Index) and one.op == "*")
    return next((size for size in found if isinstance(size, int)), 0)


def _of_share(phase: Phase, name: str, splits: int, number: int) -> Phase:
    """Positions of one share: position i of them is i * splits + number of all."""
    known: dict[Number, Number] = {TILE % splits: number, TILE // splits: TILE, TILE: TILE * splits + number}

    def of_share(index: Number) -> Number:
        if isinstance(index, int) or index in known:
            return known.get(index, index)
        return Index(index.op, tuple(map(of_share, index.args))) if index.args else index

    assert isinstance(phase.count, int), "it has been looked at"
    found = with_indices(replace(phase, count=phase.count // splits), of_share)
    found = with_indices(found, lambda index: replaced(index, {name: number}))
    return replace(found, body=mapped(found.body, _taken))


def _taken(step: Step) -> tuple[Step, ...]:
    """Of a branch by numbers, what is taken."""
    if isinstance(step, If) and isinstance(step.left, int) and isinstance(step.right, int):
        return step.body if step.left == step.right else step.others
    return (step,)


def _shares(spec: BoundSpec, node: BoundNode, cuts: set[tuple[int, int]]) -> Iterator[BoundNode]:
    """What shares of a matmul are, and that they add up to it."""
    if not isinstance(node.operation, Matmul):
        return
    out, (left, right) = node.output, node.inputs
    x, w = spec.value(left), spec.value(right)
    depth, along = x.local[1], 1 if node.operation.transposed else 0
    for splits, size in sorted(cuts):
        steps, total = -(-depth // size), ""
        if steps < splits:  # another matmul is cut so: a share of this one would be nothing
            continue
        for part in range(splits):
            first, end = (min(depth, steps * number // splits * size) for number in (part, part + 1))
            name = f"{out.name} share {part} of {splits} in steps of {size}"
            a, b = _slice(x, 1, first, end, name), _slice(w, along, first, end, name)
            yield BoundNode(Slice(1, first, end), (left,), a, node.line)
            yield BoundNode(Slice(along, first, end), (right,), b, node.line)
            share = replace(out, name=name, dtype="fp32")
            yield BoundNode(node.operation, (a.name, b.name), share, node.line)
            if total:
                added = out if part == splits - 1 else replace(share, name=f"{name}, added")
                yield BoundNode(Elementwise("add"), (total, name), added, node.line)
                total = added.name
            else:
                total = name


def _slice(value: BoundValue, dim: int, first: int, end: int, of: str) -> BoundValue:
    def cut(shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[:dim], end - first, *shape[dim + 1 :])

    return replace(value, name=f"{value.name} for {of}", shape=cut(value.shape), local=cut(value.local))
