"""From a line of a printed schedule to the lines of the emitted file that spell it, by the names which both have.

    wait x_full_arrived[m_segment, m // 1024] >= call     ->  wait_until(signals + X_FULL_ARRIVED + ..., call)
    m = (m_stage * 8 + m_rest % 8) * 128                  ->  m = (m_stage * GROUP_M + m_rest % GROUP_M) * TILE_M

Lines are those of the schedule with the names that the printer gives (`with_own_names`). Only names decide, in the functions that
the launch runs. A line that no name leads to has no link: nothing is guessed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from lowering.steps.closing import MAIN
from lowering.steps.words import kernel_name
from tilelink.schedule.memory import Buffer, Memory, Signal, Table
from tilelink.schedule.printing import Bound, Line
from tilelink.schedule.roles import Launch, Phase, Role, Who
from tilelink.schedule.steps import Call, Compute, For, If, Load, Move, Notify, Store, Wait

_WAITS = ("wait", "await")
_STORES = ("store", "send", "copy", "put")
_LOADS = ("load", "copy", "get")
_SETS_BACK = frozenset({"take_off", "clear_counts"})  # what a call leaves for the next one: no step says it
_SPELLED = {"dot": ("dot", "multiply"), "zeros": ("zeros",)}  # ops by the functions that printed code calls
_ENQUEUES = "enqueue"  # the method of the operator that has all launches


@dataclass(frozen=True)
class _Statement:
    """A statement without what stands in its body: its line, the names in it, what it assigns, and which functions it calls."""

    line: int
    names: frozenset[str]
    assigned: frozenset[str]
    called: tuple[str, ...]
    node: ast.stmt


class SourceMap:
    """An emitted file as statements by function."""

    def __init__(self, source: str) -> None:
        self.lines = source.splitlines()
        self.tree = ast.parse(source)
        self.functions = {node.name: node for node in self.tree.body if isinstance(node, ast.FunctionDef)}
        operator = next((node for node in self.tree.body if isinstance(node, ast.ClassDef) and _enqueues(node)), None)
        self.methods = {one.name: one for one in operator.body if isinstance(one, ast.FunctionDef)} if operator else {}
        self._known: dict[str, tuple[_Statement, ...]] = {}

    @cached_property
    def _constants(self) -> dict[str, int]:
        """Lines of the constants of the file, by name."""
        found: dict[str, int] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Assign):
                found |= {one.id: node.lineno for one in node.targets if isinstance(one, ast.Name)}
        return found

    def lines_of(self, line: Line) -> tuple[int, ...]:
        """Numbers of the lines, the first one is 1; none where no name leads to any."""
        match line.about:
            case Signal(name):
                return self._constant(name.upper())
            case Buffer(name, memory=memory) | Table(name, memory=memory):
                return self._buffer(name, memory)
        if line.launch is None:
            return ()
        found = sorted(set(self._in_launch(line, line.launch)))
        return tuple(found)

    def _constant(self, name: str) -> tuple[int, ...]:
        return (self._constants[name],) if name in self._constants else ()

    def _buffer(self, name: str, memory: Memory) -> tuple[int, ...]:
        """Where the operator allocates it, or takes it from its caller."""
        if memory is Memory.INPUT:
            call = self.methods.get("__call__")
            return (call.lineno,) if call is not None and name in {one.arg for one in call.args.args} else ()
        made = [one.line for method in ("__init__", "__call__") for one in self._of(method) if name in one.assigned]
        return tuple(made[:1])

    def _in_launch(self, line: Line, launch: Launch) -> Iterator[int]:
        hosts = [role for role in launch.roles if role.by_host]
        kernel = kernel_name(launch) if len(hosts) < len(launch.roles) else ""
        kernel = kernel if kernel in self.functions else ""
        if isinstance(line.about, Launch):
            names = {kernel} if kernel else {launch.stream} - {MAIN}
            calls = [one.line for one in self._of(_ENQUEUES) if names & one.names and one.called]
            yield from calls[:1]
            return
        if not kernel and len(hosts) < len(launch.roles):
            return
        if isinstance(line.about, Role):
            yield from self._role(line.about, kernel)
            return
        own = line.role.name if line.role is not None and line.role.name in self.functions else kernel
        reached = self._reached(own) if kernel else (_ENQUEUES,)
        statements = [one for name in reached for one in self._of(name)]
        if not kernel and launch.stream != MAIN:
            kinds = (ast.Assign, ast.For)
            statements = [one for one in statements if launch.stream in one.names or isinstance(one.node, kinds)]
        if isinstance(line.about, Phase):
            titled = list(self._titled(line.about.title, reached))
            yield from titled or self._titled(line.about.title, (kernel,))
            return
        functions = reached if own == kernel else (*reached, kernel)
        within = self._within(line.phase, functions)
        every = [one for name in dict.fromkeys(functions) for one in self._of(name)] if kernel else statements
        found = _best([one for one in every if one.line in within], line)
        alone = line.phase is not None and line.phase.who is not Who.EACH  # what one program does stands there alone
        yield from found if found or alone else _best(statements, line)

    def _within(self, phase: Phase | None, functions: tuple[str, ...]) -> range:
        """The lines behind the title of a phase, up to the next line that is a comment as far to the left, or the end of its
        function; none where no function has the title."""
        begins = list(self._titled(phase.title, functions)) if phase is not None else []
        if not begins:
            return range(0)
        begin = begins[0]
        indent = _indent(self.lines[begin - 1])
        for at in range(begin + 1, len(self.lines) + 1):
            text = self.lines[at - 1]
            left = _indent(text) < indent and text.strip()
            if left or (_indent(text) == indent and text.strip().startswith("# ")):
                return range(begin, at)
        return range(begin, len(self.lines) + 1)

    def _role(self, role: Role, kernel: str) -> Iterator[int]:
        if role.name in self.functions:
            yield self.functions[role.name].lineno
        elif role.by_host:
            comments = (
                number for number, text in enumerate(self.lines, 1) if text.strip().startswith(f"# {role.name}:")
            )
            yield from list(comments)[:1]
        elif kernel:
            yield self.functions[kernel].lineno

    def _titled(self, title: str, functions: Iterable[str]) -> Iterator[int]:
        """Lines in these functions that have the title of a phase as their comment."""
        for name in functions if title else ():
            node = self.functions.get(name) or self.methods.get(name)
            if node is not None and node.end_lineno is not None:
                within = range(node.lineno, node.end_lineno + 1)
                yield from (at for at in within if self.lines[at - 1].strip() == f"# {title}")

    def _reached(self, kernel: str) -> tuple[str, ...]:
        """The kernel, and the functions of the schedule that it runs; device helpers take no names of buffers and signals."""
        found, wanted = [kernel], [kernel]
        while wanted:
            named = {one.id for one in ast.walk(self.functions[wanted.pop()]) if isinstance(one, ast.Name)}
            new = [
                name for name in self.functions if name in named and name not in found and self._is_of_schedule(name)
            ]
            found += new
            wanted += new
        return tuple(found)

    def _is_of_schedule(self, name: str) -> bool:
        """Whether a function stands behind the line that begins the kernels of the schedule."""
        return self.functions[name].lineno > self._kernels_from

    @cached_property
    def _kernels_from(self) -> int:
        heads = (number for number, text in enumerate(self.lines, 1) if text.startswith("# ---- kernels of "))
        return next(heads, 0)

    def _of(self, function: str) -> tuple[_Statement, ...]:
        if function not in self._known:
            node = self.functions.get(function) or self.methods.get(function)
            found = _statements(node.body) if node is not None else iter(())
            self._known[function] = tuple(self._without_own_calls(one) for one in found)
        return self._known[function]

    def _without_own_calls(self, one: _Statement) -> _Statement:
        """Functions of the schedule spell steps themselves: who calls them spells none."""
        own = {name for name in one.called if name in self.functions and self._is_of_schedule(name)}
        return replace(one, called=tuple(name for name in one.called if name not in own)) if own else one


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _enqueues(node: ast.ClassDef) -> bool:
    return any(isinstance(one, ast.FunctionDef) and one.name == _ENQUEUES for one in node.body)


def _statements(body: Iterable[ast.stmt]) -> Iterator[_Statement]:
    for node in body:
        inner = [one for field in ("body", "orelse", "finalbody") for one in getattr(node, field, ())]
        heads: list[ast.AST] = [one for one in ast.iter_child_nodes(node) if one not in inner] if inner else [node]
        walked = [one for head in heads for one in ast.walk(head)]
        names = frozenset(one.id for one in walked if isinstance(one, ast.Name))
        names |= {one.attr for one in walked if isinstance(one, ast.Attribute)}
        yield _Statement(node.lineno, names, frozenset(_assigned(node)), tuple(_called(walked)), node)
        yield from _statements(inner)


def _assigned(node: ast.stmt) -> Iterator[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.For) else []
    for target in targets:
        for one in target.elts if isinstance(target, ast.Tuple) else [target]:
            if isinstance(one, ast.Name | ast.Attribute):
                yield one.id if isinstance(one, ast.Name) else one.attr


def _called(walked: Iterable[ast.AST]) -> Iterator[str]:
    for one in walked:
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Name | ast.Attribute):
            yield one.func.id if isinstance(one.func, ast.Name) else one.func.attr


def _best(statements: list[_Statement], line: Line) -> list[int]:
    """Lines of the statements that spell the step of `line` by more than a name, or else of those that do by a name."""
    plain = [one for one in statements if not _SETS_BACK & set(one.called)]
    for spells in (_spells, _may_spell):
        found = [one.line for one in plain if spells(one, line)]
        if found:
            return found
    return []


def _spells(one: _Statement, line: Line) -> bool:
    """Whether a statement spells the step of the line, as far as names tell."""
    waits = any(called.startswith(_WAITS) for called in one.called)
    match line.about:
        case Bound(name):
            return name in one.assigned and not one.called
        case Wait(signal):
            return waits and signal.upper() in one.names
        case Notify(signal):
            return not waits and bool(one.called) and not isinstance(one.node, ast.If) and signal.upper() in one.names
        case For(variable):
            return isinstance(one.node, ast.For) and variable in one.assigned
        case If():
            return isinstance(one.node, ast.If) and line.text.strip() == f"if {ast.unparse(one.node.test)}:"
        case Load(result):
            return result in one.assigned and any("load" in called for called in one.called)
        case Store(_, region):
            return _touches(one, region.buffer, _STORES)
        case Move(_, target):
            return any(_touches(one, region.buffer, _STORES) for region in target)
        case Call(function, results):
            return function in one.called and all(region.buffer in one.names for region in results)
        case Compute(results, op):
            made = bool(set(results) & one.assigned)
            return made and any(word in called for called in one.called for word in _SPELLED.get(op, (op,)))
    return False


def _may_spell(one: _Statement, line: Line) -> bool:
    """Whether a statement spells it in other words: the same value by an operator, the same buffer by a function for several."""
    match line.about:
        case Load(_, region):
            return _touches(one, region.buffer, _LOADS)
        case Compute(results, op) if op not in _SPELLED:
            return bool(set(results) & one.assigned)
    return False


def _touches(one: _Statement, buffer: str, by: tuple[str, ...]) -> bool:
    """Whether a statement calls a function of those names with the buffer or its descriptor."""
    companions = {name for name in one.names if name == buffer or name.startswith(f"{buffer}_")}
    how = any(word in called for called in one.called for word in by)
    return bool(companions & {buffer, f"{buffer}_desc", f"{buffer}_there", f"{buffer}_ring", f"{buffer}_peers"}) and how
