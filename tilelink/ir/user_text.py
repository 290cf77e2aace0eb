"""The text of a user's functions, complete: what they take from their module, or from a function around them, is written in.

An emitted file has the text of tile ops and of references, and nothing else of the user's files. So a constant becomes the
first line of the function that uses it, a name of Triton or torch is spelled from `tl` or `torch`, and a function of the user's
comes along with its own text. Anything else is refused where the op is declared, at the line that uses it.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import math
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, ModuleType

from tilelink.errors import BadUserOp
from tilelink.ir.captured import Captured
from tilelink.ir.location import Location, here

_IN_FILE = "Define it in a file."
_TAKES = (
    "Legal: numbers, texts and tl.constexpr of them; names of {library}; functions of yours that stand in a file. Give anything "
    "else to the op as a tensor."
)


@dataclass(frozen=True)
class _Source:
    """A function as its file has it: `text` from its `def` on, at the margin, of which the first line is `line` of `file`."""

    text: str
    file: str
    line: int

    def at(self, node: ast.AST) -> Location:
        return Location(self.file, self.line + getattr(node, "lineno", 1) - 1)


def kernel_text(op: str, *functions: object) -> str:
    """Text of jit functions, each behind that of every jit function of the user's that it calls. Raises BadUserOp."""
    texts: dict[str, str] = {}
    seen: dict[str, object] = {}

    def visit(jit: object) -> str:
        plain: FunctionType = jit.fn  # type: ignore[attr-defined]
        name = plain.__name__
        source = _source(plain, op)
        if seen.setdefault(name, jit) is not jit:
            reason = f"it calls two functions called {name!r}, and an emitted file has one of a name"
            raise BadUserOp(source.at(ast.Pass()), name=op, reason=reason, legal="Rename one of them.")
        if name not in texts:
            captured, scope = Captured(source.text), _scope(plain)
            for outer, use in captured.names().items():
                if outer in scope:
                    _take(captured, outer, scope[outer], visit, _Place(op, source.at(use)))
                elif not hasattr(builtins, outer):
                    raise _undefined(op, outer, source.at(use))
            texts[name] = f"@triton.jit\n{captured.text()}"
        return name

    for function in functions:
        visit(function)
    return "\n\n".join(text.rstrip() + "\n" for text in texts.values())


@dataclass(frozen=True)
class _Place:
    """Where an outer name is used, for messages."""

    op: str
    location: Location

    def refuse(self, name: str, value: object, library: str) -> BadUserOp:
        kind = f"the module {value.__name__}" if isinstance(value, ModuleType) else f"a {type(value).__qualname__}"
        reason = f"it uses {name!r} of your file, {kind}, which an emitted file does not have"
        return BadUserOp(self.location, name=self.op, reason=reason, legal=_TAKES.format(library=library))


def _take(captured: Captured, name: str, value: object, visit: Callable[[object], str], place: _Place) -> None:
    """Write what a kernel means by the outer `name`. Raises BadUserOp."""
    spelled = _spelled(value, "triton.language", "tl") or _spelled(value, "triton", "triton")
    if spelled is None and hasattr(value, "arg_names") and hasattr(value, "fn"):
        spelled = visit(value)
    if spelled is not None:
        if spelled != name:
            captured.spell(name, spelled)
        return
    literal = _literal(value)
    if literal is not None:
        if captured.in_signature(name):
            captured.spell(name, literal)
        else:
            captured.put_in_front(f"{name}: tl.constexpr = {literal}")
        return
    uses = captured.attributes(name) if isinstance(value, ModuleType) else []
    found = [_literal(getattr(value, use.attr, None)) for use in uses]
    if not found or None in found:
        raise place.refuse(name, value, "triton and triton.language")
    for use, text in zip(uses, found, strict=True):
        captured.spell_one(use, str(text))


def reference_text(reference: object, op: str) -> str:
    """Text of a reference, which makes one function when it is run where `torch` is known. Raises BadUserOp."""
    if not isinstance(reference, FunctionType):
        raise _unreadable(op)
    text = _lines(reference, op)[0]
    if text.startswith("def "):
        return _complete(reference, _source(reference, op), op, ())
    node = _lambda_in(text)
    if node is None:
        raise BadUserOp(
            _line_of(reference), name=op, reason="its reference is not a function", legal="Legal: a def or a lambda."
        )
    as_def = f"def {op}_reference({ast.unparse(node.args)}):\n    return {ast.unparse(node.body)}\n"
    place = _line_of(reference)
    complete = _complete(reference, _Source(as_def, place.file, place.line), op, ())
    return complete if complete != as_def else f"{op}_reference = {ast.unparse(node)}\n"


def _complete(function: FunctionType, source: _Source, op: str, around: tuple[FunctionType, ...]) -> str:
    """Text of a plain function with what it takes from outside. `around`: the functions that it is a part of."""
    captured, scope = Captured(_without_annotations(source.text)), _scope(function)
    for name, use in captured.names().items():
        if name not in scope:
            if hasattr(builtins, name):
                continue
            raise _undefined(op, name, source.at(use))
        value = scope[name]
        spelled = _spelled(value, "torch", "torch")
        literal = _literal(value) if spelled is None else spelled
        if spelled is not None or (literal is not None and captured.in_signature(name)):
            captured.spell(name, str(literal))
        elif literal is not None:
            captured.put_in_front(f"{name} = {literal}")
        elif isinstance(value, ModuleType) and value.__name__.partition(".")[0] in sys.stdlib_module_names:
            captured.put_in_front(f"import {value.__name__} as {name}")
        elif value is function or value in around:
            pass  # it calls itself
        elif isinstance(value, FunctionType) and _lines(value, op)[0].startswith("def "):
            inner = _complete(value, _source(value, op), op, (*around, function))
            captured.put_in_front(inner if value.__name__ == name else f"{inner}{name} = {value.__name__}")
        else:
            raise _Place(op, source.at(use)).refuse(name, value, "torch")
    return captured.text()


def _without_annotations(text: str) -> str:
    """Annotations say nothing to torch, and may name what only the user's file has: `object` takes the place of these."""
    captured = Captured(text)
    for annotation in captured.annotations():
        names = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
        if annotation.lineno == annotation.end_lineno and any(
            not hasattr(builtins, name) for name in names - {"torch"}
        ):
            captured.spell_one(annotation, "object")
    return captured.text()


def _lines(function: FunctionType, op: str) -> tuple[str, int]:
    """Text of a function at the margin, and the number of its first line. Raises BadUserOp where there is no file."""
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError) as error:
        raise _unreadable(op) from error
    return textwrap.dedent("".join(lines)), max(first, 1)


def _source(function: FunctionType, op: str) -> _Source:
    text, first = _lines(function, op)
    skipped = next(number for number, line in enumerate(text.splitlines()) if line.startswith("def "))
    return _Source("".join(text.splitlines(keepends=True)[skipped:]), function.__code__.co_filename, first + skipped)


def _line_of(function: FunctionType) -> Location:
    return Location(function.__code__.co_filename, function.__code__.co_firstlineno)


def _scope(function: FunctionType) -> dict[str, object]:
    """What outer names mean to a function: those of the functions around it, and those of its module."""
    scope: dict[str, object] = dict(function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            scope[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            scope.pop(name, None)
    return scope


def _spelled(value: object, module: str, root: str) -> str | None:
    """`value` as a path from the module that an emitted file knows as `root`; None if it is not of that module."""
    top = sys.modules.get(module)
    if top is None:
        return None
    if isinstance(value, ModuleType):
        paths = [value.__name__]
    elif isinstance(value, int | float | str | bool | type(None)):
        return None
    else:
        inner = getattr(value, "fn", value)  # of a jit function
        name, owner = getattr(inner, "__name__", ""), getattr(inner, "__module__", None) or module
        paths = [f"{module}.{name}", f"{module}.nn.functional.{name}", f"{owner}.{name}"]
        paths += [f"{module}.{text}" for text, found in vars(top).items() if found is value]
    for path in paths:
        if path == module or path.startswith(f"{module}."):
            names = path[len(module) :].strip(".").split(".") if path != module else []
            found: object = top
            for name in names:
                found = getattr(found, name, None)
            if found is value:
                return ".".join([root, *names])
    return None


def _literal(value: object) -> str | None:
    """`value` as Python spells it; None unless it is a number, a text, a truth value or None, or a constexpr of one."""
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    if hasattr(value, "item") and getattr(value, "shape", None) == ():  # a scalar of numpy
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value) if type(value) in (int, float, str, bool, type(None)) else None


def _undefined(op: str, name: str, location: Location) -> BadUserOp:
    reason = f"it uses {name!r}, which is not defined where the op is declared"
    return BadUserOp(location, name=op, reason=reason, legal="Define it before.")


def _unreadable(op: str) -> BadUserOp:
    return BadUserOp(here(), name=op, reason="the source of its reference cannot be read", legal=_IN_FILE)


def _lambda_in(text: str) -> ast.Lambda | None:
    """The lambda in a decorator line: its text rarely parses alone, so try every prefix that starts at `lambda`."""
    start = text.find("lambda")
    for end in range(len(text), start, -1):
        try:
            tree = ast.parse(text[start:end].strip(), mode="eval")
        except (SyntaxError, ValueError):
            continue
        if isinstance(tree.body, ast.Lambda):
            return tree.body
    return None
