"""What kernels and host code of an emitted file are, up to names and comments: the normal form that the replay compares."""

from __future__ import annotations

import ast
import re
import tempfile
from collections.abc import Iterable

_WARP = {"cuda": 32, "hip": 64}
_SYMBOL = re.compile(r'@(?:"[^"]*"|[\w$.-]+)')


def normal_ir(written: str, arch: str) -> str:
    """IR of a frontend as one function: helpers inlined, equal values computed once, names of functions numbered.

    Only passes that keep every access and every barrier, in order, run here. So neither helper functions and their
    arguments nor values that nobody uses make a difference.
    """
    return numbered_symbols(_tidied(written, arch))


def numbered_symbols(text: str) -> str:
    """`text` with functions called @f0, @f1, … in the order in which they appear."""
    names: dict[str, str] = {}
    return _SYMBOL.sub(lambda found: names.setdefault(found[0], f"@f{len(names)}"), text)


def _tidied(written: str, arch: str) -> str:
    from triton._C.libtriton import ir, passes
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend

    name = "cuda" if arch.startswith("sm_") else "hip"
    backend = make_backend(GPUTarget(name, int(arch[3:]) if name == "cuda" else arch, _WARP[name]))
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
        file.write(written)
        file.flush()
        module = ir.parse_mlir_module(file.name, context)
    module.context = context
    manager = ir.pass_manager(context)
    for add in (
        passes.common.add_inliner,
        passes.common.add_canonicalizer,
        passes.common.add_cse,
        passes.common.add_symbol_dce,
    ):
        add(manager)
    manager.run(module, "replay")
    return str(module.str_nodebug())


def beside_kernels(source: str, host: str) -> str:
    """What an emitted file has beside kernels and the host class `host`, which are seen at work: its fabric and its self-check.

    Docstrings and messages are left out, and names that the file gives are numbered in the order of their appearance.
    """
    tree = ast.parse(source)
    kept = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef) and not _apart(node, host)]
    rest = ast.Module(body=[_bare(node) for node in kept], type_ignores=[])
    return ast.unparse(ast.fix_missing_locations(_Numbered(_given(rest)).visit(rest)))


def _apart(node: ast.FunctionDef | ast.ClassDef, host: str) -> bool:
    """Whether it is a kernel or a device function, the host class, or what decorates that."""
    decorators = [ast.unparse(one) for one in node.decorator_list]
    return node.name == host or any(re.search(r"\bjit\b", one) for one in decorators)


def _bare(node: ast.stmt) -> ast.stmt:
    """`node` without docstrings, and with one text for all texts that are sentences."""
    for one in ast.walk(node):
        body = getattr(one, "body", None)
        if isinstance(body, list) and body and _is_text(body[0]):
            body[:] = body[1:] or [ast.Pass()]
        if isinstance(one, ast.JoinedStr):
            one.values = [piece for piece in one.values if not isinstance(piece, ast.Constant)]
        elif isinstance(one, ast.Constant) and isinstance(one.value, str) and " " in one.value:
            one.value = "…"
    return node


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _given(tree: ast.AST) -> frozenset[str]:
    """Names that the file itself gives: to functions, classes, parameters, variables and attributes."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                found.add(name)
    return frozenset(name for name in found if not name.startswith("__"))


class _Numbered(ast.NodeTransformer):
    """Gives names numbers in the order of their appearance."""

    def __init__(self, given: Iterable[str]) -> None:
        self._given = frozenset(given)
        self._numbers: dict[str, str] = {}

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field in ("name", "id", "arg", "attr"):
            name = getattr(node, field, None)
            if isinstance(name, str) and name in self._given:
                setattr(node, field, self._numbers.setdefault(name, f"n{len(self._numbers)}"))
        return super().generic_visit(node)
