"""What emitted files take from elsewhere: the text of the device helpers that they name, and imports of what they name."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterable, Iterator
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
    return "\n\n\n".join(text.replace("@triton.jit", f"@{jit}", 1) for text in texts)


@lru_cache(256)  # sections are the same in many files
def globals_of(module: str) -> frozenset[str]:
    """Names that `module` and its functions take from it, or from what it imports."""

    def names(table: symtable.SymbolTable) -> Iterator[str]:
        yield from (symbol.get_name() for symbol in table.get_symbols() if symbol.is_global())
        for inner in table.get_children():
            yield from names(inner)

    return frozenset(names(symtable.symtable(module, "emitted", "exec")))


def named_imports(imports: str, sections: Iterable[str]) -> str:
    """`imports` without what none of the `sections` of a module names."""
    names = {"annotations"}.union(*map(globals_of, sections))
    return _imports_of(imports, frozenset(name for name in names if name in imports))


@lru_cache(64)
def _imports_of(imports: str, names: frozenset[str]) -> str:
    """`imports` without what `names` does not have."""
    lines = imports.splitlines()
    for node in reversed(ast.parse(imports).body):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found = [alias for alias in node.names if (alias.asname or alias.name.split(".")[0]) in names]
            if len(found) < len(node.names):
                node.names, whole = found, slice(node.lineno - 1, node.end_lineno)
                lines[whole] = [ast.unparse(node)] if found else []
    return "\n".join(lines)
