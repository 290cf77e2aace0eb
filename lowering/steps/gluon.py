"""Phases in ping-pong, in Gluon: a producer warp loads, and two consumer warpgroups alternate, each with a tile of its own.

The kernel allocates a ring buffer of operands and starts the three groups. `lowering/device/turns.py` has what they do with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lowering.steps.choices import Choice
from lowering.steps.dtypes import element
from lowering.steps.errors import NotOneByOne, NotPrinted
from lowering.steps.gluon_product import GROUP_WARPS, Product, check_tile, loads_of, product_of
from lowering.steps.gluon_programs import GluonPrograms, Own
from lowering.steps.gluon_rest import Rest, flushed
from lowering.steps.gluon_slices import paced
from lowering.steps.late import needed
from tilelink.ir.nodes import PIECE_ROWS
from tilelink.proof.happens_before.check import check
from tilelink.schedule.index import Number, names_in
from tilelink.schedule.memory import Access, Region
from tilelink.schedule.roles import GROUPED, Launch, Phase, PingPong, Plain, Role, Schedule
from tilelink.schedule.steps import Load, Move, Step, Store
from tilelink.schedule.walk import mapped, phases, read, steps_in, with_bodies, with_phases, written

_REGISTERS = (240, 24)  # of a thread of the groups that multiply, and of the one that loads: 504 for a thread of each
_ARCH = "sm_9"
GROUPS = 2  # that alternate


def in_gluon(role: Role) -> bool:
    """Whether a role has groups of warps of its own, which Triton's language does not know."""
    return any(isinstance(phase.pipelining, GROUPED) for phase in role.phases)


def check_alone(roles: Sequence[Role]) -> None:
    """Raises NotPrinted: the groups of a kernel are those of one role, which go through one phase of tiles."""
    for role in roles:
        found = [phase for phase in role.phases if isinstance(phase.pipelining, GROUPED)]
        if found and (len(roles) > 1 or len(found) > 1):
            what = "groups of warps beside other roles or phases of such"
            title = found[-1].title or "tiles"
            raise NotPrinted(what=what, role=role.name, step=title, legal="a launch of its own, pipelining=Plain()")


def for_gpu(schedule: Schedule, arch: str, gluon: bool) -> Schedule:
    """`schedule` as programs of a GPU of `arch` run it: where the language knows no `gluon`, one tile after the other, which
    stores tiles at once. Raises NotOneByOne if it is not proved so, and NotPrinted for NVIDIA GPUs whose tensor cores no single
    group of warps feeds."""
    if not gluon:
        return _proved(one_by_one(schedule), schedule, arch)
    for _, role, phase in phases(schedule):
        if isinstance(phase.pipelining, GROUPED) and not arch.startswith(_ARCH):
            what, legal = f"groups of warps, whose products are those of {_ARCH}0, on {arch}", "pipelining=Plain()"
            raise NotPrinted(what=what, role=role.name, step=phase.title or "tiles", legal=legal)
    return schedule


def _proved(plain: Schedule, schedule: Schedule, arch: str) -> Schedule:
    """`plain`, which is proved by itself where it is not `schedule`: a wait behind a product holds up the loads of the next tile,
    which ping-pong does ahead, so that programs could wait for each other. Entries of tables are not known here."""
    if plain != schedule and not schedule.tables and (found := check(plain)) is not None:
        raise NotOneByOne(schedule=schedule.name, arch=arch, refutation=str(found))
    return plain


def one_by_one(schedule: Schedule) -> Schedule:
    """`schedule` without groups of warps: programs compute one tile after the other, and store each at once. What warps beside
    groups would do, programs do first."""

    def at_once(step: Step) -> tuple[Step, ...]:
        match step:
            case Store(region=Region(access=Access.PACED)) | Load(region=Region(access=Access.PARTS)):
                return (replace(step, region=replace(step.region, access=Access.POINTER)),)
            case Move(source, target):
                ends = [tuple(replace(one, access=Access.POINTER) for one in some) for some in (source, target)]
                return (Move(ends[0], ends[1], step.notify),)
        return (step,)

    def plain(role: Role, phase: Phase) -> Phase:
        if not isinstance(phase.pipelining, GROUPED) and not role.inside:
            return phase
        return replace(phase, body=mapped(phase.body, at_once), pipelining=Plain())

    alone = with_phases(schedule, plain)
    return replace(alone, launches=tuple(map(_before_tiles, alone.launches)))


def _before_tiles(launch: Launch) -> Launch:
    """`launch`, in which the last role begins with what roles inside of its programs do, each part once."""
    *others, last = launch.roles
    inside = [phase for role in others if role.inside for phase in role.phases]
    if not inside:
        return launch
    roles = (role for role in others if not role.inside)
    return replace(launch, roles=(*roles, replace(last, phases=(*dict.fromkeys(inside), *last.phases))))


def pieces_flushed(schedule: Schedule) -> Schedule:
    """`schedule`, in which stores in pieces have arrived before their warpgroup goes on."""
    return with_bodies(schedule, lambda body: flushed(body) if paced(*body) else body)


def _of_groups(names: Own, pieces: bool) -> list[str]:
    """What groups that multiply share beside the ring buffer."""
    return [names.turns, names.leaving] if pieces else [names.turns]


def _short(role: Role) -> str:
    """What the functions of a role's groups are called after: `y_loads` of the role `y_tiles`."""
    return role.name.removesuffix("_kernel").removesuffix("_tiles")


class Turns(GluonPrograms):
    """Programs of a kernel with a phase in ping-pong."""

    def phase(self, role: Role, phase: Phase) -> None:
        if not isinstance(phase.pipelining, PingPong):
            super().phase(role, phase)
            return
        self.needs["program"] = ""
        self.out.comment(phase.title or f"tiles of {role.name}")
        for step in steps_in(phase.body):
            if any(region.buffer in self.packets for region in (*read(step), *written(step))):
                self.not_printed("packets in ping-pong", step, "Protocol.SIMPLE, pipelining=Plain()")
        product = product_of(role, phase, self.schedule.sizes)
        with self.scope.inside("tile", phase.count, let=phase.let):
            self._groups(role, phase, product)

    def _groups(self, role: Role, phase: Phase, product: Product) -> None:
        """The ring buffer, what the groups share, and the groups."""
        assert isinstance(phase.pipelining, PingPong)
        places = self.spell.number("stages", phase.pipelining.places, "stages of the ring buffer of operands")
        rings = self._rings(role, product, places)
        loads = self._loads(role, phase, product, rings)
        multiplies, rest = self._multiplies(role, phase, product, rings)
        own = _of_groups(self.own_names, bool(paced(*product.rest)))
        name = _short(role)
        if paced(*product.rest):
            self._leaving(role, rest)
        barriers = ", ".join((*self.own_names.ring, self.own_names.turns))
        self.out.line(f"{barriers} = ring_barriers({places}, {GROUPS})")
        with self.out.block("gl.warp_specialize("), self.out.block("["):
            for group in range(GROUPS):
                arguments = [*multiplies, *rings, *self.own_names.ring, *own, "program", str(group)]
                self.out.call(f"({name}_turns, (", arguments, ")),")
            self.out.call(f"({name}_loads, (", [*loads, *rings, *self.own_names.ring, "program"], ")),")
        self.out.line("    ],")
        self.out.line(f"    [{', '.join([str(GROUP_WARPS)] * GROUPS)}],  # warps of each warpgroup but the first")
        registers = ", ".join(map(str, [_REGISTERS[0]] * (GROUPS - 1) + [_REGISTERS[1]]))
        self.out.line(f"    [{registers}],  # registers a thread there; the first warpgroup keeps the rest")
        self.out.line(")")

    def _rings(self, role: Role, product: Product, places: str) -> list[str]:
        """Places of both operands in shared memory."""
        names, dtypes = list[str](), set[str]()
        for operand in (product.left, product.right):
            load = loads_of(operand)[0]
            descriptor, _, _ = self.described(load.result, load.region, load)
            buffer = self.buffers[load.region.buffer]
            block = ", ".join(self.descriptors[descriptor].block)
            name, dtype = f"{buffer.name}_ring", element(buffer)
            self.out.line(f"{name} = gl.allocate_shared_memory(tl.{dtype}, [{places}, {block}], {descriptor}.layout)")
            names.append(name)
            dtypes |= {element(self.buffers[one.region.buffer]) for one in loads_of(operand)}
        check_tile(role, product, dtypes)
        return names

    def ends(self, role: Role, phase: Phase) -> tuple[str, str]:
        """The end of the positions, and what a program is apart from its next one."""
        return self.end(role, phase), self.programs(role)

    def _loads(self, role: Role, phase: Phase, product: Product, rings: list[str]) -> list[str]:
        """The function of the group that loads; its arguments before the ring."""
        inner = self.inner()
        end, programs = inner.ends(role, phase)
        with inner.out.block(f"for tile in range(program, {end}, {programs}):"), inner.scope.inside():
            inner.let(needed(phase.let, (*product.before, product.loop)))
            inner.steps(product.before)
            left, row, _ = inner.operand(product.left, product)
            right, first, col = inner.operand(product.right, product)
            sizes = [f"STEPS={inner.rounds(product.loop)}", f"TRANSPOSED={product.transposed}"]
            where = [left, row, right, first if product.transposed else col]
            inner.out.call("load_steps(", [*where, *rings, *self.own_names.ring, f"tile // {programs}", *sizes])
        what = f"Producer warp: load the operands of the tiles of {_short(role)}."
        return self.function(f"{_short(role)}_loads", what, inner, [], (*rings, *self.own_names.ring, "program"))

    def operand(self, operand: Load | Choice, product: Product) -> tuple[str, str, str]:
        """The descriptor of an operand, and where its tiles begin: what does not depend on k counts."""
        if isinstance(operand, Load):
            descriptor, row, col = self.described(operand.result, operand.region, operand)
            return descriptor, self._fixed(row, product), self._fixed(col, product)
        found = self.chosen_descriptor(operand)
        if found is None:
            self.not_printed(
                "tiles of two buffers that lie apart by what changes with k", operand.branch, "equal columns"
            )
        before, instead, (source, row_text, col) = found
        self.decide(operand, before, instead)
        return source, row_text, self._fixed(col, product)

    def _fixed(self, index: Number, product: Product) -> str:
        """An index as text, if it is the same for all k."""
        return (
            ""
            if names_in(index) & {product.loop.variable, *(name for name, _ in product.loop.let)}
            else self.spell(index)
        )

    def _multiplies(self, role: Role, phase: Phase, product: Product, rings: list[str]) -> tuple[list[str], Rest]:
        """The function of the groups that multiply; its arguments before the ring, and what they send."""
        inner, pieces, names = self.inner(), bool(paced(*product.rest)), self.own_names
        end, programs = inner.ends(role, phase)
        header = f"for tile in range(program + GROUP * {programs}, {end}, {GROUPS} * {programs}):"
        with inner.out.block(header), inner.scope.inside():
            inner.let(needed(phase.let, product.rest))
            sizes = ["GROUP", f"STEPS={inner.rounds(product.loop)}", f"TRANSPOSED={product.transposed}"]
            inner.origin(product.result)
            arguments = [*rings, *names.ring, names.turns, f"tile // {programs}", *sizes]
            inner.out.call(f"{product.result}, {names.took if pieces else '_'} = multiply_in_turn(", arguments)
            if pieces:
                inner.out.line(f"{names.begun} = cycles()")
                with inner.out.block(f"if tile >= {end} - {programs}:"):
                    inner.out.line(f"{names.took} = 0  # the last tile: the other consumer has no product to disturb")
            rest = Rest(inner, product, GROUP_WARPS)
            rest.steps(product.rest)
        what = "Consumer warpgroup GROUP: compute every other tile of this program, and run its epilogue."
        own = _of_groups(names, pieces)
        last = (*rings, *names.ring, *own, "program", "GROUP")
        return self.function(f"{_short(role)}_turns", what, inner, [], last), rest

    def _leaving(self, role: Role, rest: Rest) -> None:
        """Where slices of the groups leave from: pieces of one buffer, as all have the same shape and type."""
        if len(rest.leaving) != 1:
            found = ", ".join(f"{width} columns of {dtype}" for dtype, width in sorted(rest.leaving))
            legal = "one type of what leaves in pieces, Access.POINTER for the others"
            raise NotPrinted(what=f"pieces of several shapes ({found})", role=role.name, step="tiles", legal=legal)
        (((dtype, _), cols),) = rest.leaving.items()
        rows = self.spell.number("piece_rows", PIECE_ROWS, "rows of a slice that one store sends to a peer")
        name = next(
            one
            for one in self.frame.order(self.needs)
            if one.endswith("_there") and one.removesuffix("_there") in self.there
        )
        height = self.spell.number(f"{rest.result}_rows", rest.rows, f"rows of tile {rest.result}")
        shape = f"[{GROUPS} * {height} // {rows}, {rows}, {cols}]"
        self.out.line(f"{self.own_names.leaving} = gl.allocate_shared_memory(tl.{dtype}, {shape}, {name}[0].layout)")
