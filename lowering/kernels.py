"""Kernel -> Triton: one function a role, and the kernel that hands programs to roles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from lowering.carried import Carried
from lowering.comm import comm_loop
from lowering.dialect import Dialect
from lowering.names import element_bytes, in_order
from lowering.numbers import Numbers
from lowering.source import Source
from lowering.tiles import tile_loop
from tilelink.ir.nodes import Kernel
from tilelink.ir.schedule import Schedule


@dataclass(frozen=True, slots=True)
class PrintedKernel:
    """Text of a kernel and what its launch must pass, by parameter name."""

    kernel: Kernel
    text: str
    parameters: tuple[str, ...]
    descriptors: dict[str, Descriptor]  # by parameter
    gluon: bool


class Descriptor(NamedTuple):
    """What the host makes: of tiles of `block` elements; in Gluon it says how they lie in shared memory."""

    buffer: str
    block: tuple[int, ...]
    sizes: tuple[str, ...]  # what those of the block are called
    layout: str = ""
    peer: int = -1  # whose buffer: of it, the part of this rank
    place: int = -1  # of a pool


def print_kernel(schedule: Schedule, dialect: Dialect, numbers: Numbers, kernel: Kernel) -> PrintedKernel:
    """The functions of `kernel` and of those joined to it, roles first."""
    out = Source()
    jit = dialect.decorator()
    roles: list[_Role] = []
    for comm in kernel.comm:
        body = Source()
        needed = comm_loop(schedule, dialect, numbers, comm, body)
        name = f"{comm.exchange}_send" if schedule.exchange(comm.exchange).source else comm.exchange
        items = bool(schedule.exchange(comm.exchange).slots)
        what = f"{'Send the items' if items else 'Move the chunks'} of {comm.exchange}."
        _print_role(out, jit, name, needed, body, what)
        programs = numbers.movers(schedule.exchange(comm.exchange), comm.programs)
        roles.append(_Role(name, comm.programs, programs, needed))
    descriptors: dict[str, Descriptor] = {}
    tuples: dict[str, list[str]] = {}
    tiles = []
    for one in schedule.joined_to(kernel):
        if one.compute is not None:
            role, found, several = _print_tiles(out, schedule, dialect, numbers, one)
            tiles.append(role)
            descriptors |= found
            tuples |= several
    carried = Carried(schedule, dialect, numbers, kernel)
    numbers.resident(kernel)
    wanted: list[list[str]] = [*(role.needed for role in (*roles, *tiles)), list(carried.scope.parameters)]
    parameters = _parameters([[one for name in some for one in tuples.get(name, [name])] for some in wanted])
    _print_entry(out, kernel, roles, tiles, parameters, carried, tuples)
    return PrintedKernel(kernel, out.text(), parameters, descriptors, in_gluon(dialect, kernel))


@dataclass(frozen=True, slots=True)
class _Role:
    """A printed function, the programs that call it, what their number is called, and the parameters that it needs."""

    name: str
    programs: int
    number: str
    needed: list[str]

    @property
    def arguments(self) -> list[str]:
        return in_order(self.needed)


def _print_tiles(
    out: Source, schedule: Schedule, dialect: Dialect, numbers: Numbers, kernel: Kernel
) -> tuple[_Role, dict[str, Descriptor], dict[str, list[str]]]:
    """The function of the tiles, its descriptors, and tuples of these that are parameters of it."""
    role = kernel.compute
    assert role is not None
    if not dialect.gluon:  # its programs compute their tiles one after the other
        role = replace(role, warpgroups=1)
    body = Source()
    scope = tile_loop(schedule, dialect, numbers, role, body, kernel.stages)
    for function in scope.functions:
        out.lines(function)
        out.line()
        out.line()
    printed = _Role(f"{role.name}_tiles", role.programs, numbers.programs(role), list(scope.parameters))
    how = f", warp-specialised: a producer warp loads, {role.warpgroups} consumer warpgroups alternate"
    what = f"Compute the tiles of {role.name}{how if role.warpgroups > 1 else ''}."
    _print_role(out, scope.decorator(), printed.name, printed.needed, body, what)
    found = {}
    for name, (buffer, _, block, sizes, peer, place) in scope.descriptors.items():
        size = element_bytes(schedule.buffer(buffer).dtype)
        layout = f"gl.NVMMASharedLayout({min(128, block[-1] * size)}, {8 * size})" if role.warpgroups > 1 else ""
        found[name] = Descriptor(buffer, block, sizes, layout, peer, place)
    return printed, found, scope.tuples


def in_gluon(dialect: Dialect, kernel: Kernel) -> bool:
    """Whether the kernel has warpgroups of its own, which Triton's language does not know."""
    return dialect.gluon and kernel.compute is not None and kernel.compute.warpgroups > 1


def _parameters(needed: list[list[str]]) -> tuple[str, ...]:
    names = dict.fromkeys(name for some in needed for name in some)
    if names.pop("call", "absent") is None:
        names["epoch"] = None
    return tuple(in_order(names))


def _print_role(out: Source, jit: str, name: str, needed: list[str], body: Source, what: str) -> None:
    out.line(jit)
    with out.function(name, [*in_order(needed), "program"], what):
        out.lines(body.text())
    out.line()
    out.line()


def _print_entry(
    out: Source,
    kernel: Kernel,
    comm: list[_Role],
    tiles: list[_Role],
    parameters: tuple[str, ...],
    carried: Carried,
    tuples: dict[str, list[str]],
) -> None:
    """Programs of a communication role come first; the others compute tiles, and go on with those of joined kernels."""
    out.line(carried.scope.dialect.decorator(parameters, in_gluon=in_gluon(carried.scope.dialect, kernel)))
    with out.function(kernel.name, list(parameters)):
        out.line("program = tl.program_id(0)")
        for name, several in tuples.items():
            out.call(f"{name} = (", several)
        if "epoch" in parameters:
            out.line("call = tl.load(epoch)")
        out.lines(carried.first.text().strip())
        roles, first = [*comm, *tiles[:1]], ""
        dies = carried.scope.numbers.dies(kernel.dies.count) if kernel.dies.count > 1 else ""
        for position, role in enumerate(roles):
            last = position == len(roles) - 1
            header = "" if len(roles) == 1 else "else:"
            if not last:
                header = f"{'el' if first else ''}if program < {f'{first} + ' if first else ''}{role.number}:"
            elif len(tiles) > 1 and role.programs < max(one.programs for one in tiles):
                header = f"if program < {role.number}:"
            start = f"program - {f'({first})' if '+' in first else first}" if first else "program"
            with out.maybe(header):
                out.call(f"{role.name}(", [*role.arguments, _by_die(dies, role, start) if last and tiles else start])
            first += f"{' + ' if first else ''}{role.number}"
        for role in tiles[1:]:
            idle = role.programs < max(one.programs for one in tiles)
            with out.maybe(f"if program < {role.number}:" if idle else ""):
                out.call(f"{role.name}(", [*role.arguments, _by_die(dies, role, "program")])
        out.lines(carried.last.text().strip())


def _by_die(dies: str, role: _Role, program: str) -> str:
    return f"by_die({program}, {role.number}, {dies})" if dies else program
