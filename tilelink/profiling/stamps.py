"""Stamps: an emitted file whose kernels also write down when each program begins, ends a tile, waits and ends.

The text is changed, not the schedule: a parameter `stamps` for each kernel, and a store of the GPU's clock where something
ends. Each place in the source, and in a loop over tiles each turn of it, has a word of its own for each program; a later call
overwrites them. A timeline is no benchmark: stamps take time and registers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from tilelink.runtime.constants import constants_of, number

_CLOCK = '''
@triton.jit
def stamp(stamps, slot, PROGRAMS: tl.constexpr):
    """Write down the time, in ns of the GPU's clock."""
    now = tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    tl.store(stamps + slot * PROGRAMS + tl.program_id(0), now)
'''


class Moment(Enum):
    """What has just happened where a stamp stands."""

    BEGUN = "begun"  # the program runs
    REACHED = "reached"  # a wait begins
    AWAITED = "awaited"  # it is over
    TILE = "tile"  # a tile is computed and stored
    ROLE = "role"  # the program has done its part
    CLOSED = "closed"  # nothing is left to do


@dataclass(frozen=True, slots=True)
class Site:
    """A place in the source. Its stamps are `turns` words a program, from slot `first` on; `text` is the statement there.
    `kernel`: of a group of warps beside the first one of a program, the kernel that begins it."""

    moment: Moment
    function: str
    text: str
    first: int
    turns: int
    kernel: str = ""


@dataclass(frozen=True, slots=True)
class Stamped:
    """`source` with `slots` words for each of `programs` programs, in the attribute `stamps` of its operator."""

    source: str
    sites: tuple[Site, ...]
    slots: int
    programs: int


def stamped(source: str) -> Stamped:
    """The same file with stamps. `source`: what lowering emits for the target `triton`."""
    tree = ast.parse(source)
    grids = dict(_grids(tree))
    programs = max(grids.values(), default=1)
    edit = _Stamper(tree, frozenset(grids), programs)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for name in edit.stamped_functions(functions):
        edit.function(functions[name])
    tree.body[_first_function(tree) : _first_function(tree)] = ast.parse(_CLOCK).body
    _host(tree, frozenset(grids), max(1, edit.slots) * programs)
    return Stamped(ast.unparse(ast.fix_missing_locations(tree)), tuple(edit.sites), max(1, edit.slots), programs)


def _grids(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Kernels with tiles or communication, and how many programs they are launched with."""
    constants = constants_of(tree)
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "launch" and len(call.args) > 1:
            kernel, grid = call.args[:2]
            if isinstance(kernel, ast.Name) and kernel.id.endswith("_kernel") and isinstance(grid, ast.Tuple):
                yield kernel.id, _known(grid.elts[0], constants)


def _known(node: ast.expr, constants: dict[str, int]) -> int:
    found = number(node, constants)
    assert found is not None, f"{ast.unparse(node)} is no number"
    return found


def _first_function(tree: ast.Module) -> int:
    return next(index for index, node in enumerate(tree.body) if isinstance(node, ast.FunctionDef))


class _Stamper:
    """Puts stamps into functions; `sites` grows with them."""

    def __init__(self, tree: ast.Module, kernels: frozenset[str], programs: int) -> None:
        self.kernels = kernels
        self.programs = programs
        self.constants = constants_of(tree)
        self.sites: list[Site] = []
        self.slots = 0
        self.roles = frozenset(
            node.name
            for node in tree.body
            if isinstance(node, ast.FunctionDef) and "program" in [one.arg for one in node.args.args][-2:]
        )
        self.beside = dict(_groups(tree, kernels, self.roles))

    def stamped_functions(self, functions: dict[str, ast.FunctionDef]) -> list[str]:
        """Kernels and the roles that they call, in the order of the file."""
        wanted, found = list(self.kernels), set(self.kernels)
        while wanted:
            for name in self._named(functions[wanted.pop()]):
                if name not in found:
                    found.add(name)
                    wanted.append(name)
        return [name for name in functions if name in found]

    def function(self, function: ast.FunctionDef) -> None:
        function.args.args.append(ast.arg("stamps"))
        for node in ast.walk(function):
            match node:
                case ast.Call(func=ast.Name(id=name), args=arguments) if name in self.roles:
                    arguments.append(ast.Name("stamps"))
                case ast.Tuple(elts=[ast.Name(id=name), ast.Tuple(elts=arguments)]) if name in self.roles:  # a group
                    arguments.append(ast.Name("stamps"))
                case _:
                    pass
        is_kernel = function.name in self.kernels
        function.body = list(self._body(function, function.body, "", 1, is_kernel=is_kernel))
        if is_kernel:
            at = 1 + next(i for i, line in enumerate(function.body) if ast.unparse(line).startswith("program ="))
            function.body.insert(at, self._stamp(Moment.BEGUN, function, function.name, "", 1))
            function.body.append(self._stamp(Moment.CLOSED, function, function.name, "", 1))

    def _named(self, node: ast.AST) -> list[str]:
        """Roles that are called in `node`, or that groups of warps run."""
        return [one.id for one in ast.walk(node) if isinstance(one, ast.Name) and one.id in self.roles]

    def _body(
        self, function: ast.FunctionDef, body: list[ast.stmt], turn: str, turns: int, *, is_kernel: bool
    ) -> Iterator[ast.stmt]:
        """Statements with stamps around waits, behind roles, and at the end of each turn of a loop over tiles."""
        for statement in body:
            loop = _tile_loop(statement, self.constants)
            waits = _waits(statement)
            many = _most_turns(statement, self.constants) if waits else None
            if loop is not None:
                name, last, step = loop
                turns_here = -(-last // step)
                assert isinstance(statement, ast.For)
                inner = self._body(function, statement.body, f"{name} // {step}", turns_here, is_kernel=False)
                statement.body = list(inner)
                end = self._stamp(Moment.TILE, function, function.name, f"{name} // {step}", turns_here)
                statement.body.append(end)
                yield statement
            elif waits and _only_waits(statement):
                yield self._stamp(Moment.REACHED, function, waits[0], turn, turns)
                yield statement
                yield self._stamp(Moment.AWAITED, function, waits[0], turn, turns)
            elif many is not None:  # parts of a tile, each behind a wait
                assert isinstance(statement, ast.For)
                part = ast.unparse(statement.target)
                place = f"({turn}) * {many} + {part}" if turn else part
                statement.body = list(self._body(function, statement.body, place, turns * many, is_kernel=False))
                yield statement
            elif isinstance(statement, ast.If):
                statement.body = list(self._body(function, statement.body, turn, turns, is_kernel=is_kernel))
                statement.orelse = list(self._body(function, statement.orelse, turn, turns, is_kernel=is_kernel))
                yield statement
            else:
                yield statement
                for role in sorted(self.roles & set(_called(statement))) if is_kernel else ():
                    yield self._stamp(Moment.ROLE, function, role, turn, turns)

    def _stamp(self, moment: Moment, function: ast.FunctionDef, text: str, turn: str, turns: int) -> ast.stmt:
        site = Site(moment, function.name, text, self.slots, turns, self.beside.get(function.name, ""))
        self.sites.append(site)
        self.slots += turns
        slot = f"{site.first} + {turn}" if turn else str(site.first)
        return ast.parse(f"stamp(stamps, {slot}, {self.programs})").body[0]


def _groups(tree: ast.Module, kernels: frozenset[str], roles: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Functions of groups of warps that run beside the first group of a program, and their kernels."""
    for kernel in (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in kernels):
        for groups in (node for node in ast.walk(kernel) if isinstance(node, ast.List)):
            named = [
                one.elts[0].id
                for one in groups.elts
                if isinstance(one, ast.Tuple) and isinstance(one.elts[0], ast.Name)
            ]
            yield from ((name, kernel.name) for name in named if name in roles and name != named[0])


def _called(node: ast.AST) -> list[str]:
    """Last words of what is called in `node`: `dot` for tl.dot."""
    found = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
    named = (func for func in found if isinstance(func, ast.Name | ast.Attribute))
    return [func.id if isinstance(func, ast.Name) else func.attr for func in named]


def _waits(node: ast.stmt) -> list[str]:
    """Text of the waits in `node`."""
    calls = (one for one in ast.walk(node) if isinstance(one, ast.Call) and isinstance(one.func, ast.Name))
    return [ast.unparse(call) for call in calls if _is_wait(ast.unparse(call.func))]


def _is_wait(name: str) -> bool:
    return name.startswith(("wait_", "await_"))


def _only_waits(node: ast.stmt) -> bool:
    """Whether `node` only waits, fences, and computes what it waits for: no time of its own passes there."""
    match node:
        case ast.If(body=body, orelse=orelse) | ast.For(body=body, orelse=orelse):
            return all(map(_only_waits, [*body, *orelse]))
        case ast.Expr(value=ast.Call(func=ast.Name(id=name))):
            return _is_wait(name) or name.startswith("fence_")
        case ast.Assign():
            return not _called(node)
    return False


def _tile_loop(node: ast.stmt, constants: dict[str, int]) -> tuple[str, int, int] | None:
    """Variable, end and step of a loop in which a program takes tiles in turn."""
    if not isinstance(node, ast.For) or not isinstance(node.iter, ast.Call) or not isinstance(node.target, ast.Name):
        return None
    first, sizes = ast.unparse(node.iter.args[0]), node.iter.args[1:3]
    in_turns = ast.unparse(node.iter.func) == "range" and first.startswith("program")
    if len(sizes) != 2 or not (in_turns or ast.unparse(node.iter.func) == "tl.range"):
        return None
    end, step = _most(sizes[0], constants), _known(sizes[1], constants)
    assert end is not None, f"{ast.unparse(sizes[0])} has no bound"
    return node.target.id, end, step // 2 if "GROUP" in first else step  # of a program, whichever group has the tile


def _most_turns(node: ast.stmt, constants: dict[str, int]) -> int | None:
    """A bound on the turns of a loop from 0 on; None for other statements, and where nothing bounds it."""
    if not isinstance(node, ast.For) or not isinstance(node.iter, ast.Call) or len(node.iter.args) != 1:
        return None
    return _most(node.iter.args[0], constants)


def _most(node: ast.expr, constants: dict[str, int]) -> int | None:
    """An upper bound: of what is found on the device, the number that it is cut to."""
    match node:
        case ast.Name(id="rank"):
            return constants["NUM_RANKS"] - 1
        case ast.Call(func=ast.Attribute(attr="minimum"), args=arguments):
            return min((one for one in (_most(each, constants) for each in arguments) if one is not None), default=None)
    return number(node, constants)


def _host(tree: ast.Module, kernels: frozenset[str], words: int) -> None:
    """The operator has the stamps, and hands them to its kernels."""
    made = f"self.stamps = torch.zeros({words}, dtype=torch.int64, device=fabric.device)"
    for owner in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        for method in (node for node in owner.body if isinstance(node, ast.FunctionDef)):
            launched = False
            for call in (node for node in ast.walk(method) if isinstance(node, ast.Call)):
                if len(call.args) > 1 and isinstance(call.args[0], ast.Name) and call.args[0].id in kernels:
                    call.args.append(ast.parse("self.stamps", mode="eval").body)
                    launched = True
            if launched:
                init = next(one for one in owner.body if isinstance(one, ast.FunctionDef) and one.name == "__init__")
                if not any("self.stamps" in ast.unparse(line) for line in init.body):
                    at = 1 + next(i for i, line in enumerate(init.body) if ast.unparse(line) == "self.fabric = fabric")
                    init.body.insert(at, ast.parse(made).body[0])
