"""A Python file as the rules see it: imports, constants, kernels and host functions, launches, vendor."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from tilelink.dialect_api.errors import SourceNotPython
from tilelink.stubs.functions import described_in, module
from tilelink.stubs.model import Parameter, Signature, Vendor

_GLUON, _TRITON = "triton.experimental.gluon.language", "triton.language"  # of which the first has all that both have
_SPECIALIZE = f"{_TRITON}.warp_specialize"


_JIT = ("triton.jit", "triton.runtime.jit", "triton_dist.jit", "triton.experimental.gluon.jit")


@dataclass(frozen=True, slots=True)
class Definition:
    """One function of the file."""

    name: str
    node: ast.FunctionDef
    decorator: str  # the full path of the one that makes it a kernel, empty on the host
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
        positional = reversed((*arguments.posonlyargs, *arguments.args))
        pairs = [*zip(positional, reversed(arguments.defaults), strict=False)]
        pairs += [(word, one) for word, one in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if one]
        return {argument.arg: default for argument, default in pairs}

    @property
    def on_device(self) -> bool:
        return bool(self.decorator)


@dataclass(frozen=True, slots=True)
class Launch:
    """`kernel[grid](arguments)` or `stream.launch(kernel, grid, arguments)`, in a host function or at module level."""

    kernel: str  # a function of the file, or the import path of one
    grid: ast.expr
    call: ast.Call
    arguments: tuple[ast.expr, ...]
    within: Definition | None
    repeated: bool  # stands in a loop of its function

    def argument(self, kernel: Definition, name: str) -> ast.expr | None:
        """What is passed for a parameter, None if it is left to its default."""
        by_name = [word.value for word in self.call.keywords if word.arg == name]
        position = [argument.arg for argument in kernel.parameters].index(name)
        return next(iter((*by_name, *self.arguments[position : position + 1])), None)


@dataclass(slots=True)
class SourceFile:
    path: str
    tree: ast.Module
    vendor: Vendor
    imports: dict[str, str]  # local name: full import path
    definitions: dict[str, Definition] = field(default_factory=dict)  # by `Definition.key`
    launches: list[Launch] = field(default_factory=list)
    host_calls: list[tuple[ast.Call, Definition | None]] = field(default_factory=list)  # that are no launches

    def full_path(self, node: ast.expr) -> str:
        """`dl.wait` as `triton_dist.language.wait`; empty if it does not start at an import."""
        if isinstance(node, ast.Name):
            return self.imports.get(node.id, "")
        if isinstance(node, ast.Attribute):
            owner = self.full_path(node.value)
            return f"{owner}.{node.attr}" if owner else ""
        return ""

    def decorators(self, node: ast.FunctionDef) -> list[str]:
        """Full paths of the decorators of a function."""
        return [self.full_path(one.func if isinstance(one, ast.Call) else one) for one in node.decorator_list]

    def groups(self, call: ast.Call) -> list[ast.Call]:
        """What groups of warps run at once where `call` is one of `gl.warp_specialize([(function, (arguments)), ...])`."""
        found = []
        if self.full_path(call.func) == _SPECIALIZE and call.args and isinstance(call.args[0], ast.List):
            for group in call.args[0].elts:
                match group:
                    case ast.Tuple(elts=[function, ast.Tuple(elts=arguments)]):
                        found.append(ast.copy_location(ast.Call(function, arguments, []), group))
        return found

    def launches_of(self, kernel: Definition) -> list[Launch]:
        return [launch for launch in self.launches if launch.kernel == kernel.name]

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
    file = SourceFile(path, tree, vendor or _vendor(tree, imports), imports)
    file.definitions = {definition.key: definition for definition in _definitions(file, tree, "")}
    _collect_calls(file, {id(one.node): one for one in file.definitions.values()}, tree, None, repeated=False)
    return file


def _imports(tree: ast.Module) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:  # `import a.b` binds a; `import a.b as c` binds all of it
                top = alias.name.split(".")[0]
                found[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                star = alias.name == "*" and module(node.module) is not None
                for name in described_in(node.module) if star else (alias.name,):
                    found[alias.asname or name] = f"{node.module}.{name}"
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
            kernel = [path for path in file.decorators(node) if path in _JIT]
            yield Definition(node.name, node, kernel[-1] if kernel else "", owner)
        yield from _definitions(file, node, node.name if isinstance(node, ast.ClassDef) else owner)


def _collect_calls(
    file: SourceFile, by_node: dict[int, Definition], node: ast.AST, within: Definition | None, *, repeated: bool
) -> None:
    """Calls outside kernels, each with its innermost function; of launches also whether a loop repeats them."""
    if isinstance(node, ast.FunctionDef):
        within, repeated = by_node.get(id(node)), False
        if within is not None and within.on_device:
            return
    repeated = repeated or isinstance(node, ast.For | ast.While)
    if isinstance(node, ast.Call):
        launch = _launch(file, node, within, repeated)
        if launch is None:
            file.host_calls.append((node, within))
        else:
            file.launches.append(launch)
    for child in ast.iter_child_nodes(node):
        _collect_calls(file, by_node, child, within, repeated=repeated)


def _launch(file: SourceFile, call: ast.Call, within: Definition | None, repeated: bool) -> Launch | None:
    match call:
        case ast.Call(func=ast.Subscript(value=target, slice=grid)):
            known = isinstance(target, ast.Name) and target.id in file.definitions
            name = target.id if isinstance(target, ast.Name) and known else file.full_path(target)
            return Launch(name, grid, call, tuple(call.args), within, repeated) if name else None
        case ast.Call(func=ast.Attribute(attr="launch"), args=[ast.Name(id=name), grid, *arguments]):
            kernel = file.definitions.get(name)
            on_device = kernel is not None and kernel.on_device
            return Launch(name, grid, call, tuple(arguments), within, repeated) if on_device else None
        case _:
            return None


def bind(call: ast.Call, signature: Signature) -> list[tuple[Parameter, ast.expr]]:
    """By position up to the first `*`, then by keyword; what fits no parameter is left out."""
    plain = [] if any(isinstance(argument, ast.Starred) for argument in call.args) else call.args
    bound = list(zip(signature.parameters, plain, strict=False))
    rest = {parameter.name: parameter for parameter in signature.parameters[len(bound) :]}
    return bound + [(rest[word.arg], word.value) for word in call.keywords if word.arg in rest]
