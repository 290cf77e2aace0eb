"""Steps of a tile by the user's own function, which gets addresses, and where its tile lies."""

from __future__ import annotations

from tilelink.elaborate.regions import Tiles, own_region, region
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import Operand, UserBody
from tilelink.ir.user_op import UserOp, functions_of, of_user
from tilelink.schedule.index import Index, Number, rank, replaced
from tilelink.schedule.memory import Region
from tilelink.schedule.steps import Compute, If, Load, Step


def functions(schedule: Schedule) -> str:
    """Source of the functions that the user wrote, each once."""
    found = dict[str, str]()
    for node in schedule.spec.nodes:
        op = of_user(node.operation)
        found |= functions_of(op) if op is not None else {}
    return "\n\n\n".join(found.values())


def user_body(tiles: Tiles, step: UserBody) -> tuple[Step, ...]:
    """Along an axis along which a tensor lies in parts the function counts from the start of the part; along any other axis it
    counts through the whole tensor."""
    op = next(op for op in _user_ops(tiles.schedule) if op.name == step.function)
    in_parts = {axis for _, one in step.operands for axis in one.index if axis in (one.slot, *one.local)}
    firsts: dict[str, Number] = {}
    arguments: dict[str, str | float | Index] = {name: name for name, _ in step.operands}
    for axis in tiles.role.axes:
        first, _ = tiles.span(axis.name)
        end = axis.extent
        if axis.segments > 1 and axis.name not in in_parts:
            first, end = tiles.segment(axis.name) * axis.extent + first, end * axis.segments
        firsts[axis.name] = first
        arguments |= {axis.name: first, f"num_{axis.name}": end}
        arguments[f"TILE_{axis.name.upper()}"] = tiles.width(axis.name) if axis.tile else 0
    loads = [load for name, operand in step.operands for load in _addressed(tiles, name, operand, firsts)]
    passed = tuple(arguments[name] for name in op.parameters)
    made = Compute((step.result,), step.function, passed)
    return (*loads, made, Compute((step.result,), "in_fp32", (step.result,)))


def _addressed(tiles: Tiles, name: str, operand: Operand, firsts: dict[str, Number]) -> tuple[Step, ...]:
    """The address from which the function counts: in the own tensor where the tile's segment is the own one."""

    def load(found: Region) -> Load:
        return Load(name, found, origin=_origin(found, operand, firsts))

    there = load(region(tiles, operand))
    if not operand.own:
        return (there,)
    own, segment = load(own_region(tiles, operand)), tiles.segment(operand.slot) if operand.slot else 0
    if not isinstance(segment, Index) or segment == rank:
        return (own,)
    return (If(segment, rank, (own,), (there,)),)


def _origin(found: Region, operand: Operand, firsts: dict[str, Number]) -> tuple[Number, ...]:
    """Where the region would begin for a tile whose first element is number 0 along each axis."""
    at_zero: dict[str, Number] = dict.fromkeys(firsts, 0)
    origin = [replaced(start, at_zero) for start in found.start]
    for dim, axis in enumerate(operand.index, start=len(origin) - len(operand.index)):
        if axis:
            origin[dim] = origin[dim] - replaced(firsts[axis], at_zero)
    return tuple(origin)


def _user_ops(schedule: Schedule) -> list[UserOp]:
    return [node.operation for node in schedule.spec.nodes if isinstance(node.operation, UserOp)]
