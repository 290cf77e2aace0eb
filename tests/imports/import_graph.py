"""The import graph of a tree of source files, read from their text: nothing is imported.

An edge stands for each import statement, also under `TYPE_CHECKING` and in functions, and for each string that names a
module, which is how modules are imported late. To import a module runs the faces (`__init__`) of the packages that it lies in:
one edge for each of them that the importing module does not lie in itself, to what the face *runs*. A face has two nodes,
since what it has under `TYPE_CHECKING` and in functions is imported by nobody who imports a module of the package.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import networkx as nx

RUN = " (as it runs)"


def import_graph(root: Path, packages: Iterable[str]) -> nx.DiGraph[str]:
    """Nodes are names of modules, and for a package also `name + RUN`."""
    files = {_name(path.relative_to(root)): path for top in packages for path in sorted((root / top).rglob("*.py"))}
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(files)
    for module, path in files.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        graph.add_edges_from((module, found) for found in _edges(module, ast.walk(tree), files))
        if path.stem == "__init__":
            graph.add_edges_from((module + RUN, found) for found in _edges(module, _running(tree.body), files))
    return graph


def circles(graph: nx.DiGraph[str]) -> list[str]:
    """One circle of each knot of modules, as `a -> b -> a`."""
    knots = [knot for knot in nx.strongly_connected_components(graph) if len(knot) > 1]
    steps = [nx.find_cycle(graph.subgraph(knot)) for knot in knots]
    return sorted(" -> ".join([*(str(edge[0]) for edge in found), str(found[0][0])]) for found in steps)


def _name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _edges(module: str, nodes: Iterable[ast.AST], files: dict[str, Path]) -> Iterator[str]:
    for imported in _imported(module, nodes, files):
        if imported != module:
            yield imported
        parts = imported.split(".")
        for package in (".".join(parts[:length]) for length in range(1, len(parts))):
            if not f"{module}.".startswith(f"{package}."):
                yield package + RUN


def _imported(module: str, nodes: Iterable[ast.AST], files: dict[str, Path]) -> Iterator[str]:
    """The modules that statements among `nodes` name, as far as they are of the tree."""
    for node in nodes:
        match node:
            case ast.Import(names):
                yield from (alias.name for alias in names if alias.name in files)
            case ast.ImportFrom(name, names, level):
                package = module if files[module].stem == "__init__" else module.rpartition(".")[0]
                for _ in range((level or 1) - 1):
                    package = package.rpartition(".")[0]
                source = ".".join(filter(None, (package if level else "", name)))
                wanted = (f"{source}.{alias.name}" if f"{source}.{alias.name}" in files else source for alias in names)
                yield from (found for found in wanted if found in files)
            case ast.Constant(str() as text) if "." in text and text in files:
                yield text


def _running(body: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    """What is carried out when a module is imported: no functions, nothing for type checkers alone."""
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                pass
            case ast.If(test=ast.Name("TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
                yield from _running(statement.orelse)
            case ast.If() | ast.Try() | ast.With() | ast.ClassDef():
                yield statement
                for field in ("body", "orelse", "handlers", "finalbody"):
                    yield from _running(getattr(statement, field, ()))
            case ast.ExceptHandler():
                yield from _running(statement.body)
            case _:
                yield from ast.walk(statement)
