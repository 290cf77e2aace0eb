"""Kernel -> Triton: one function a role, and the kernel that hands programs to roles."""

from __future__ import annotations

from dataclasses import dataclass

from lowering.carried import Carried
from lowering.comm import comm_loop
from lowering.dialect import Dialect
from lowering.operands import TileScope
from lowering.source import Source
from lowering.tiles import tile_loop
from tilelink.ir.nodes import Kernel
from tilelink.ir.schedule import Schedule

_ORDER = ("epoch", "counts", "signals", "signal_peers", "rank")


@dataclass(frozen=True, slots=True)
class PrintedKernel:
    """Text of a kernel and what its launch must pass, by parameter name."""

    kernel: Kernel
    text: str
    parameters: tuple[str, ...]
    descriptors: dict[str, tuple[str, tuple[int, ...]]]  # parameter -> buffer, block shape


def print_kernel(schedule: Schedule, dialect: Dialect, kernel: Kernel) -> PrintedKernel:
    """The functions of `kernel`, roles first."""
    out = Source()
    jit = dialect.decorator(with_rank=False)
    roles: list[tuple[str, int, list[str]]] = []
    for comm in kernel.comm:
        body = Source()
        needed = comm_loop(schedule, dialect, comm, body)
        name = f"{comm.exchange}_send" if schedule.exchange(comm.exchange).source else comm.exchange
        items = bool(schedule.exchange(comm.exchange).slots)
        what = f"{'Produce the items of' if items else 'Move'} {comm.exchange} on {comm.programs} SMs."
        _print_role(out, jit, name, needed, body, what)
        roles.append((name, comm.programs, needed))
    descriptors: dict[str, tuple[str, tuple[int, ...]]] = {}
    if kernel.compute is not None:
        body = Source()
        scope = tile_loop(schedule, dialect, kernel.compute, body)
        for function in scope.functions:
            out.lines(function)
            out.line()
            out.line()
        descriptors = _blocks(scope)
        needed = list(scope.parameters)
        what = f"Compute the tiles of {kernel.compute.name}."
        _print_role(out, jit, f"{kernel.compute.name}_tiles", needed, body, what)
        roles.append((f"{kernel.compute.name}_tiles", kernel.compute.programs, needed))
    carried = Carried(schedule, dialect, kernel)
    parameters = _parameters([*roles, ("", 0, list(carried.scope.parameters))])
    _print_entry(out, kernel, roles, parameters, carried)
    return PrintedKernel(kernel, out.text(), parameters, descriptors)


def _blocks(scope: TileScope) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {
        name: (buffer, tuple(scope.axis(axis).tile for axis in index))
        for name, (buffer, index) in scope.descriptors.items()
    }


def _sorted(names: list[str]) -> list[str]:
    """Tensors first, then the words of the signal protocol."""
    return [name for name in names if name not in _ORDER] + [name for name in _ORDER if name in names]


def _parameters(roles: list[tuple[str, int, list[str]]]) -> tuple[str, ...]:
    names = dict.fromkeys(name for _, _, needed in roles for name in needed)
    if names.pop("call", "absent") is None:
        names["epoch"] = None
    return tuple(_sorted(list(names)))


def _print_role(out: Source, jit: str, name: str, needed: list[str], body: Source, what: str) -> None:
    out.line(jit)
    arguments = [*_sorted([n for n in needed if n != "call"]), *(["call"] if "call" in needed else []), "program"]
    with out.block(f"def {name}({', '.join(arguments)}):"):
        out.line(f'"""{what}"""')
        out.lines(body.text())
    out.line()
    out.line()


def _print_entry(
    out: Source,
    kernel: Kernel,
    roles: list[tuple[str, int, list[str]]],
    parameters: tuple[str, ...],
    carried: Carried,
) -> None:
    out.line(carried.scope.dialect.decorator(with_rank="rank" in parameters))
    with out.block(f"def {kernel.name}({', '.join(parameters)}):"):
        out.line("program = tl.program_id(0)")
        if "epoch" in parameters:
            out.line("call = tl.load(epoch)")
        out.lines(carried.first.text().strip())
        first = 0
        for position, (name, programs, needed) in enumerate(roles):
            last = position == len(roles) - 1
            header = (
                ""
                if len(roles) == 1
                else "else:"
                if last
                else f"{'el' if first else ''}if program < {first + programs}:"
            )
            arguments = [*_sorted([n for n in needed if n != "call"]), *(["call"] if "call" in needed else [])]
            start = f"program - {first}" if first else "program"
            if last and kernel.compute is not None and kernel.dies.count > 1:
                start = f"by_die({start}, {programs}, {kernel.dies.count})"
            with out.maybe(header):
                out.call(f"{name}(", [*arguments, start])
            first += programs
        out.lines(carried.last.text().strip())
