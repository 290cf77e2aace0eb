"""What emitted files take from elsewhere: the text of the device helpers that they name, and imports of what they name."""

from __future__ import annotations

import ast
import re
import symtable
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path

_DEVICE = Path(__file__).parent / "device"


@cache
def _helpers(files: tuple[str, ...]) -> dict[str, str]:
    """name -> text with decorator, in the order of the files; a later file replaces what an earlier one has."""
    found: dict[str, str] = {}
    for file in files:
        found |= defined((_DEVICE / f"{file}.py").read_text())
    return found


@lru_cache(64)  # helpers are the same in many files
def defined(text: str) -> dict[str, str]:
    """name -> text with decorator of each function of a module."""
    lines = text.splitlines()
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    first = {node.name: min(decorator.lineno for decorator in node.decorator_list) for node in functions}
    return {node.name: "\n".join(lines[first[node.name] - 1 : node.end_lineno]) for node in functions}


def embed(module: str, files: tuple[str, ...], jit: str) -> str:
    """Text of every helper of `files` that `module` names, directly or through another helper, decorated with `jit`: what
    targets share is written with the decorator of stock Triton. Variables that are called like a helper do not name it."""
    helpers = _helpers(files)
    wanted: set[str] = set()

    def visit(text: str) -> None:
        for name in globals_of(text) & helpers.keys() - wanted:
            wanted.add(name)
            visit(helpers[name])

    visit(module)
    texts = (text for name, text in helpers.items() if name in wanted)
    return "\n\n\n".join(decorated(text, jit) for text in texts)


def decorated(text: str, jit: str) -> str:
    """Functions with the decorator of a target, written with that of stock Triton."""
    return text.replace("@triton.jit", f"@{jit}")


def embed_both(
    plain: Sequence[str], gluon: Sequence[str], files: tuple[str, ...], of_gluon: tuple[str, ...], jit: str
) -> tuple[str, Callable[[str], str]]:
    """Text of the helpers of two languages in one file, and what renames those that kernels in `gluon` call: they need some in
    a form of their own, which then has a name of its own."""
    first = embed("\n\n".join(plain), files, jit)
    second = embed("\n\n".join(gluon), (*files, *of_gluon), jit) if gluon else ""
    common = set(defined(first)) & set(defined(second))
    if all(defined(first)[name] == defined(second)[name] for name in common):
        missing = [text for name, text in defined(second).items() if name not in common]
        return "\n\n\n".join(filter(None, [first, *missing])), lambda text: text

    def renamed(text: str) -> str:
        return re.sub(r"\w+", lambda word: f"{word[0]}_in_turns" if word[0] in common else word[0], text)

    return f"{first}\n\n\n{renamed(second)}", renamed


@lru_cache(256)  # sections are the same in many files
def globals_of(module: str) -> frozenset[str]:
    """Names that `module` and its functions take from it, or from what it imports."""

    def names(table: symtable.SymbolTable) -> Iterator[str]:
        yield from (symbol.get_name() for symbol in table.get_symbols() if symbol.is_global())
        for inner in table.get_children():
            yield from names(inner)

    return frozenset(names(symtable.symtable(module, "emitted", "exec")))


def reached(text: str, users: Sequence[str]) -> str:
    """The classes and functions of `text` that `users` name, directly or through others. A method is named where something
    of its name is called; special ones are kept, and `symmetric`, by which the class of a fabric is known."""
    names, methods = set[str](), {"symmetric"}
    for user in users:
        names |= globals_of(user)
        methods |= _called(user)
    known = set(re.findall(r"\w+", text))
    return _reached(text, frozenset(names & known), frozenset(methods & known))


@lru_cache(64)  # many files need the same of their fabric
def _reached(text: str, names: frozenset[str], methods: frozenset[str]) -> str:
    lines, tree = text.splitlines(), ast.parse(text)
    while True:
        kept = list(enumerate(lines))
        for node, needed in _parts(tree, names, methods):
            if not needed:
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
                while first and not lines[first - 1].strip():
                    first -= 1
                kept = [(at, line) for at, line in kept if not first <= at < (node.end_lineno or 0)]
        rest = "\n".join(line for _, line in kept).strip("\n")
        more_names, more_methods = globals_of(rest) | names, _called(rest) | methods
        if (more_names, more_methods) == (names, methods):
            return rest
        names, methods = more_names, more_methods


def _parts(
    tree: ast.Module, names: frozenset[str], methods: frozenset[str]
) -> Iterator[tuple[ast.ClassDef | ast.FunctionDef, bool]]:
    """Classes, functions and methods of a module, each with whether it is needed."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node, node.name in names
        for method in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(method, ast.FunctionDef):
                yield method, method.name in methods or method.name.startswith("__")


_MODULES = {"torch", "dist", "tl", "gl", "triton", "driver", "symm_mem"}  # whose functions are no methods


@lru_cache(256)
def _called(module: str) -> frozenset[str]:
    """Methods that a module calls."""
    calls = (node.func for node in ast.walk(ast.parse(module)) if isinstance(node, ast.Call))
    return frozenset(func.attr for func in calls if isinstance(func, ast.Attribute) and _leftmost(func) not in _MODULES)


def _leftmost(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def named_imports(imports: str, sections: Iterable[str]) -> str:
    """`imports` without what none of the `sections` of a module names. The check of Triton's version is among them, and
    stays where Triton does."""
    names = {"annotations"}.union(*map(globals_of, sections))
    if "TRITON =" in imports and names & _OF_TRITON:
        names |= {"triton", "TRITON"}
    return _imports_of(imports, frozenset(name for name in names if name in imports))


_OF_TRITON = {"triton", "tl", "gl", "gluon"}


@lru_cache(64)
def _imports_of(imports: str, names: frozenset[str]) -> str:
    """`imports` without what `names` does not have."""
    lines = imports.splitlines()
    for node in reversed(ast.parse(imports).body):
        whole = slice(node.lineno - 1, node.end_lineno)
        if isinstance(node, ast.Import | ast.ImportFrom):
            found = [alias for alias in node.names if _bound(alias) in names]
            if len(found) < len(node.names):
                node.names = found
                lines[whole] = [ast.unparse(node)] if found else []
        elif not _binds_or_reads(node) & names:
            lines[whole] = []
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")


def _bound(alias: ast.alias) -> str:
    return alias.asname or alias.name.split(".")[0]


def _binds_or_reads(node: ast.stmt) -> set[str]:
    """What a statement among imports is there for: names that it imports, or reads and assigns."""
    imported = {
        _bound(alias) for one in ast.walk(node) if isinstance(one, ast.Import | ast.ImportFrom) for alias in one.names
    }
    return imported or {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
