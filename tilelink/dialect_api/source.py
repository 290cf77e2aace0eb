"""A Python file as the rules see it: imports, constants, kernels and host functions, launches, vendor."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from tilelink.dialect_api.errors import SourceNotPython
from tilelink.dialect_api.functions import described_in, module
from tilelink.dialect_api.model import Vendor

_JIT = {"triton.jit": "TRITON", "triton.runtime.jit": "TRITON", "triton_dist.jit": "DIST"}
_JIT |= {"triton.experimental.gluon.jit": "GLUON"}
_GLUON, _TRITON = "triton.experimental.gluon.language", "triton.language"  # of which the first has all that both have
_SPECIALIZE = f"{_TRITON}.warp_specialize"


class Kind(Enum):
    HOST = "host"
    TRITON = "@triton.jit"
    DIST = "@triton_dist.jit"
    GLUON = "@gluon.jit"


@dataclass(frozen=True, slots=True)
class Definition:
    """One function of the file."""

    name: str
    node: ast.FunctionDef
    kind: Kind
    not_specialized: tuple[str, ...]  # of the decorator
    owner: str = ""  # its class

    @property
    def key(self) -> str:
        return f"{self.owner}.{self.name}" if self.owner else self.name

    @property
    def parameters(self) -> tuple[ast.arg, ...]:
        arguments = self.node.args
        return (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)

    @property
    def defaults(self) -> dict[str, ast.expr]:
        arguments = self.node.args
        positional = (*arguments.posonlyargs, *arguments.args)
        given = positional[len(positional) - len(arguments.defaults) :]
        pairs = list(zip(given, arguments.defaults, strict=True))
        pairs += [(arg, d) for arg, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None]
        return {arg.arg: default for arg, default in pairs}

    @property
    def on_device(self) -> bool:
        return self.kind is not Kind.HOST


@dataclass(frozen=True, slots=True)
class Launch:
    """`kernel[grid](arguments)` or `stream.launch(kernel, grid, arguments)`, in a host function or at module level."""

    kernel: str  # a function of the file, or the import path of one
    grid: ast.expr
    call: ast.Call
    arguments: tuple[ast.expr, ...]
    within: Definition | None
    repeated: bool  # stands in a loop of its function


@dataclass(frozen=True, slots=True)
class SourceFile:
    path: str
    tree: ast.Module
    vendor: Vendor
    imports: dict[str, str]  # local name: full import path
    definitions: dict[str, Definition]  # by `Definition.key`
    launches: tuple[Launch, ...]
    host_calls: tuple[tuple[ast.Call, Definition | None], ...]

    def full_path(self, node: ast.expr) -> str:
        """`dl.wait` as `triton_dist.language.wait`; empty if it does not start at an import."""
        if isinstance(node, ast.Name):
            return self.imports.get(node.id, "")
        if isinstance(node, ast.Attribute):
            owner = self.full_path(node.value)
            return f"{owner}.{node.attr}" if owner else ""
        return ""

    def groups(self, call: ast.Call) -> tuple[ast.Call, ...]:
        """What groups of warps run at once where `call` is one of `gl.warp_specialize([(function, (arguments)), ...])`."""
        if self.full_path(call.func) != _SPECIALIZE or not call.args or not isinstance(call.args[0], ast.List):
            return ()
        found = []
        for group in call.args[0].elts:
            match group:
                case ast.Tuple(elts=[function, ast.Tuple(elts=arguments)]):
                    found.append(ast.copy_location(ast.Call(function, arguments, []), group))
                case _:
                    pass
        return tuple(found)

    def imported_modules(self) -> Iterator[str]:
        """Paths after `import` and `from`, everywhere in the file."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield node.module or ""

    def kernels(self) -> tuple[Definition, ...]:
        return tuple(definition for definition in self.definitions.values() if definition.on_device)

    def entries(self) -> tuple[Definition, ...]:
        """Device functions that are launched here, or that no other device function of the file calls."""
        called: set[str] = set()
        for node in (node for kernel in self.kernels() for node in ast.walk(kernel.node)):
            if isinstance(node, ast.Call):
                called |= {one.func.id for one in (node, *self.groups(node)) if isinstance(one.func, ast.Name)}
        launched = {launch.kernel for launch in self.launches}
        return tuple(kernel for kernel in self.kernels() if kernel.name in launched or kernel.name not in called)


def parse(text: str, path: str, vendor: Vendor | None = None) -> SourceFile:
    """Read a file. `vendor` overrules what its imports say. Raises SourceNotPython."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        line, column = (error.lineno or 1, error.offset or 1) if isinstance(error, SyntaxError) else (1, 1)
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise SourceNotPython(path=path, line=line, column=column, reason=reason) from error
    imports = _imports(tree)
    draft = SourceFile(path, tree, vendor or _vendor(tree, imports), imports, {}, (), ())
    definitions = {definition.key: definition for definition in _definitions(draft, tree, "")}
    launches: list[Launch] = []
    host_calls: list[tuple[ast.Call, Definition | None]] = []
    full = SourceFile(path, tree, draft.vendor, imports, definitions, (), ())
    for call, within, repeated in _host_calls(tree, definitions):
        launch = _launch(full, call, within, repeated)
        if launch is None:
            host_calls.append((call, within))
        else:
            launches.append(launch)
    return SourceFile(path, tree, draft.vendor, imports, definitions, tuple(launches), tuple(host_calls))


def _imports(tree: ast.Module) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                # `import a.b` binds a; `import a.b as c` binds all of it
                found[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [(alias.name, alias.asname or alias.name) for alias in node.names if alias.name != "*"]
            if not names and module(node.module) is not None:
                names = [(name, name) for name in described_in(node.module)]
            found |= {local: f"{node.module}.{name}" for name, local in names}
    return {name: path.replace(_GLUON, _TRITON, 1) for name, path in found.items()}


def _vendor(tree: ast.Module, imports: dict[str, str]) -> Vendor:
    """Of the SHMEM library whose module is imported, whose constants are used, or on whose GPUs its imports exist."""
    paths = list(imports.values())
    named = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    if any("libmori_shmem_device" in path for path in paths) or any(name.startswith("MORI_") for name in named):
        return Vendor.MORI
    marks = ("triton_dist.language.extra.hip", "triton_dist.kernels.amd", "pyrocshmem")
    if any(path.startswith(marks) for path in paths):
        return Vendor.ROCSHMEM
    return Vendor.NVIDIA


def _definitions(file: SourceFile, scope: ast.AST, owner: str) -> Iterator[Definition]:
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, ast.FunctionDef):
            kind = Kind.HOST
            names: tuple[str, ...] = ()
            for decorator in node.decorator_list:
                target = decorator.func if isinstance(decorator, ast.Call) else decorator
                found = _JIT.get(file.full_path(target))
                if found:
                    kind, names = Kind[found], _not_specialized(decorator)
            yield Definition(node.name, node, kind, names, owner)
        yield from _definitions(file, node, node.name if isinstance(node, ast.ClassDef) else owner)


def _not_specialized(decorator: ast.expr) -> tuple[str, ...]:
    if not isinstance(decorator, ast.Call):
        return ()
    lists = [word.value for word in decorator.keywords if word.arg == "do_not_specialize"]
    return tuple(
        item.value
        for value in lists
        if isinstance(value, ast.List | ast.Tuple)
        for item in value.elts
        if isinstance(item, ast.Constant) and isinstance(item.value, str)
    )


def _host_calls(
    tree: ast.Module, definitions: dict[str, Definition]
) -> Iterator[tuple[ast.Call, Definition | None, bool]]:
    """Calls outside kernels, each with its innermost function and whether a loop repeats it."""
    by_node = {id(definition.node): definition for definition in definitions.values()}

    def visit(
        node: ast.AST, within: Definition | None, repeated: bool
    ) -> Iterator[tuple[ast.Call, Definition | None, bool]]:
        if isinstance(node, ast.FunctionDef):
            within, repeated = by_node.get(id(node)), False
            if within is not None and within.on_device:
                return
        if isinstance(node, ast.For | ast.While):
            repeated = True
        if isinstance(node, ast.Call):
            yield node, within, repeated
        for child in ast.iter_child_nodes(node):
            yield from visit(child, within, repeated)

    yield from visit(tree, None, False)


def _launch(file: SourceFile, call: ast.Call, within: Definition | None, repeated: bool) -> Launch | None:
    if isinstance(call.func, ast.Subscript):
        target = call.func.value
        name = target.id if isinstance(target, ast.Name) and target.id in file.definitions else file.full_path(target)
        return Launch(name, call.func.slice, call, tuple(call.args), within, repeated) if name else None
    if isinstance(call.func, ast.Attribute) and call.func.attr == "launch" and len(call.args) >= 2:
        kernel = call.args[0]
        known = file.definitions.get(kernel.id) if isinstance(kernel, ast.Name) else None
        if known is not None and known.on_device:
            return Launch(known.name, call.args[1], call, tuple(call.args[2:]), within, repeated)
    return None
