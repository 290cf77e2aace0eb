"""What holds of the text of every emitted file: names that are defined and used, numbers that have names."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import lowering

_LOWERING = Path(lowering.__file__).parent


def prose(source: str) -> Iterator[str]:
    """Docstrings and comments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def between(source: str, first: str, last: str) -> str:
    """A part of a file, by the titles of its sections; from its start if `first` has no section."""
    start = source.find(f"# ---- {first}")
    return source[max(0, start) : source.index(f"# ---- {last}")]


@cache
def ours() -> frozenset[str]:
    """Names of functions, classes and methods that files may embed."""
    found: set[str] = set()
    for path in (*(_LOWERING / "device").glob("*.py"), *(_LOWERING / "host").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                found.add(node.name)
    return frozenset(found)


def cited_elsewhere(source: str) -> set[str]:
    """Names of ours that docstrings and comments cite, and the file does not have."""
    tree = ast.parse(source)
    bound = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    bound |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    cited = {name for words in prose(source) for name in re.findall(r"`(\w+)`", words)}
    return (cited & ours()) - bound


def unused(source: str) -> set[str]:
    """Functions, methods and classes that nothing in the file uses."""
    tree = ast.parse(source)
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    used |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | {"symmetric"}
    here = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    return {name for name in here - used if not name.startswith("__")}


def undefined(source: str) -> str:
    """What ruff says of names that are not defined, or not used: also names that only code on GPUs reads."""
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "F", "-"]
    linted = subprocess.run(command, input=source, capture_output=True, text=True)
    return linted.stdout if linted.returncode else ""


def _explained(node: ast.Constant, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether a number in kernels or host code says itself what it is: small, a keyword's, a shape's, or an index."""
    if isinstance(node.value, bool) or not isinstance(node.value, int) or -4 <= node.value <= 4:
        return True
    above = parents[node]
    inside = parents.get(above)
    if isinstance(above, ast.keyword):
        return above.arg in ("num_warps", "num_stages", "per_sm")
    if isinstance(above, ast.Assign):  # attributes of the class
        return ast.unparse(above.targets[0]) in ("NUM_RANKS", "NUM_SMS")
    if isinstance(above, ast.BinOp):  # the last slices of a tile
        return isinstance(above.right, ast.Name) and "SLICE" in above.right.id
    layout = "Layout" in ast.unparse(inside if isinstance(above, ast.List) and inside else above)
    shape = isinstance(above, ast.Tuple) or ast.unparse(above).partition("(")[0].endswith(".view")
    registers = isinstance(above, ast.List) and "warp_specialize" in ast.unparse(inside) if inside else False
    return layout or shape or registers or isinstance(above, ast.Subscript)


def bare_numbers(source: str) -> list[str]:
    """Numbers in kernels and host code that have no name, with their lines."""
    if "# ---- kernels of" not in source:
        return []
    tree = ast.parse(between(source, "kernels of", "fabric"))
    bodies = {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "squared_relu_matmul"
    }
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    return [
        f"{ast.unparse(parents[node])} ({node.lineno})"
        for top in tree.body
        if getattr(top, "name", "") not in bodies  # the user's own text
        for node in ast.walk(top)
        if isinstance(node, ast.Constant) and not _explained(node, parents)
    ]
