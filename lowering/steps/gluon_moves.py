"""Roles inside of programs with groups of warps, in Gluon: one more warp of each program moves rows to peers, through shared
memory.

    keys_send on a warp of each of the 132 programs below:
      move k[...] -> keys[...]@peer by descriptor, paced    load a piece of some rows, store it at the peer, and so on
      notify keys_arrived[...]@peer += 1                    behind a flush

`lowering/device/moves.py` has what the warp does.
"""

from __future__ import annotations

from dataclasses import replace

from lowering.steps.dtypes import element
from lowering.steps.gluon_programs import GluonPrograms
from lowering.steps.indices import Scope
from lowering.steps.late import needed
from tilelink.ir.nodes import PIECE_ROWS
from tilelink.schedule.index import Index, names_in
from tilelink.schedule.memory import Access, Region
from tilelink.schedule.roles import Role, Sms
from tilelink.schedule.steps import Move, Step

_NUMBER = "moves"  # that a warp has made so far
_FLAG = "piece_loaded"


class Moves(GluonPrograms):
    """The warp of a role. `staging`: the buffer whose pieces it moves, the sides of a piece, and how it lies in shared memory."""

    def __init__(self, outer: GluonPrograms, role: Role) -> None:
        super().__init__(outer.frame, type(outer.out)(), Scope(outer.frame.schedule, role.name, role.programs))
        self.blocks |= outer.blocks
        self.role, self.name = role, role.name.removesuffix("_send")
        self.staging: tuple[str, tuple[str, ...], str] = ("", (), "")

    def print(self, outer: GluonPrograms) -> tuple[str, list[str]]:
        """Allocates what the warp needs in the kernel; its function and the arguments of that."""
        self.out.line(f"{_NUMBER} = 0")
        for phase in self.role.phases:
            self.out.comment(phase.title or "rows of chunks")
            if phase.every:
                self.steps(phase.body)
                continue
            end, programs = self.end(self.role, phase), self.programs(self.role)
            loop = self.out.block(f"for tile in range(program, {end}, {programs}):")
            with loop, self.scope.inside("tile", phase.count, let=phase.let):
                self.let(needed(phase.let, phase.body))
                self.steps(phase.body)
        shared = f"{self.name}_pieces", f"{self.name}_{_FLAG}"
        what = f"Mover warp: push rows of {self.name} to peers."
        arguments = outer.function(f"{self.name}_moves", what, self, [], ("pieces", _FLAG, "program"))
        buffer, sides, layout = self.staging
        dtype = f"tl.{element(self.buffers[buffer])}"
        outer.out.line(f"{shared[0]} = gl.allocate_shared_memory({dtype}, [{', '.join(sides)}], {layout})")
        outer.out.line(f"{shared[1]} = piece_barrier()")
        return f"{self.name}_moves", [*arguments, *shared, "program"]

    def _refuse(self, step: Step) -> None:
        """A warp stores a few rows at a time, and nothing else."""

    def move(self, step: Move) -> None:
        (source,), (target,) = step.source, step.target
        if source.access is not Access.DESCRIPTOR or target.access is not Access.PACED:
            self.not_printed("a move of a warp by pointers", step, "Access.DESCRIPTOR to Access.PACED")
        value = f"{source.buffer}_piece"
        piece, there = _piece(source), _piece(target)
        name, row, col = self.described(value, piece, Move((piece,), (there,)))
        described = self.descriptors[name]
        part = target.start[:-2]
        if any(names_in(one) - {"rank"} for one in part):
            part = ()
        sides = self.regions.sides(value, there)
        peers = self.at_ranks(target.buffer, described.block, sides[-1].most, part)
        self.staging = source.buffer, described.block, described.layout
        first = target.start[-2] if part else self.row(target)
        where = [name, self.spell(row), self.spell(col), peers, self.spell(target.at), self.spell(first)]
        most = source.extent[-2]
        if isinstance(most, Index):  # of the last move, descriptors leave out rows that do not exist
            most = most.args[0]
        rows, few = self.spell(most), described.block[0]
        self.spell.constants.require(f"{rows} % {few} == 0", f"whole pieces of {self.name}")
        where += [self.spell(target.start[-1]), "pieces", _FLAG, _NUMBER, f"ROWS={rows}"]
        engine = self.role.engine
        assert isinstance(engine, Sms) and isinstance(engine.pace, int), "warps of programs on SMs"
        what = f"clocks from one piece of {self.name} to the next, so that links are not full"
        where.append(f"PACE={self.spell.number(f'{self.name}_pace', engine.pace, what)}")
        self.out.call("move_rows(", where)
        self.out.line(f"{_NUMBER} += 1")


def _piece(region: Region) -> Region:
    """The first rows of a region, which leave at once."""
    return replace(region, extent=(*region.extent[:-2], PIECE_ROWS, region.extent[-1]))
