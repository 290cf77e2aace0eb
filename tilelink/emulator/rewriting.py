"""From the source of a `@triton.jit` function to a Python function that the interpreter can call.

    before                      after
    x = e                       x = __value__(e)         # runtime values are tensors, as in the compiler
    N: tl.constexpr = e         N = __constant__(e)
    while test:                 __spin_0 = __enter__((), bare)
        body                    while test:
                                    if __again__(__spin_0, {}):
                                        break
                                    body
                                __leave__(__spin_0)
    if test:                    __branch_1 = __if__(test, ("x",), "")
        body                    if __branch_1:
                                    try:
                                        body
                                    finally:
                                        __end_if__(__branch_1)

The code is compiled under the file and lines of the original, so that frames and tracebacks show the emitted
file. It is cached per function; each world executes it in fresh globals.
"""

from __future__ import annotations

import ast
import inspect
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import triton.language as tl
from triton.runtime.jit import get_jit_fn_file_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import CodeType, FunctionType

# names that a rewritten function finds in its globals
VALUE, CONSTANT, ENTER, AGAIN, LEAVE = "__value__", "__constant__", "__enter__", "__again__", "__leave__"
IF, END_IF = "__if__", "__end_if__"

_cache: WeakKeyDictionary[FunctionType, tuple[str, CodeType]] = WeakKeyDictionary()


def code_of(jit: Any) -> CodeType:
    """A module that defines the rewritten function of a JITFunction under its own name."""
    cached = _cache.get(jit.fn)
    if cached is not None and cached[0] == jit.src:
        return cached[1]
    tree = ast.parse(jit.src)
    file, first_line = get_jit_fn_file_line(jit)
    tree = ast.fix_missing_locations(_Rewrite().visit(tree))
    ast.increment_lineno(tree, first_line - 1)
    code = compile(tree, file, "exec")
    _cache[jit.fn] = (jit.src, code)
    return code


def globals_of(jit: Any, names: dict[str, object], replaced: dict[int, object]) -> dict[str, object]:
    """What the function sees: the names of its module and closure, constants unwrapped, and `names`; `replaced` has what
    stands for an object, by its `id`."""
    visible = {**jit.fn.__globals__, **inspect.getclosurevars(jit.fn).nonlocals, **names}
    visible = {name: value.value if isinstance(value, tl.constexpr) else value for name, value in visible.items()}
    return {name: replaced.get(id(value), value) for name, value in visible.items()}


def define(jit: Any, visible: dict[str, object]) -> Callable[..., object]:
    """Execute the rewritten definition in the globals `visible`."""
    namespace: dict[str, Callable[..., object]] = {}
    exec(code_of(jit), visible, namespace)
    return namespace[jit.fn.__name__]


class _Rewrite(ast.NodeTransformer):
    def __init__(self) -> None:
        self._names = 0  # that were made up

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.decorator_list = []
        node.returns = None
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            argument.annotation = None
        self.generic_visit(node)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        self.generic_visit(node)
        node.value = _call(VALUE, node.value)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        self.generic_visit(node)
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        wrapper = CONSTANT if ast.unparse(node.annotation).endswith("constexpr") else VALUE
        return ast.copy_location(ast.Assign([node.target], _call(wrapper, node.value)), node)

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        spin = self._name("spin")
        names = sorted(_assigned(node.body))
        self.generic_visit(node)
        # locals() builds a dictionary at each call: not in the common loop that assigns nothing
        variables: ast.expr = _call("locals") if names else ast.Dict([], [])
        listed = ast.Tuple([ast.Constant(name) for name in names], ast.Load())
        bare = ast.Constant(all(isinstance(statement, ast.Pass) for statement in node.body))
        enter = ast.Assign([ast.Name(spin, ast.Store())], _call(ENTER, listed, bare))
        again = ast.If(_call(AGAIN, ast.Name(spin, ast.Load()), variables), [ast.Break()], [])
        leave = ast.Expr(_call(LEAVE, ast.Name(spin, ast.Load())))
        node.body = [ast.copy_location(again, node), *node.body]
        return [ast.copy_location(enter, node), node, ast.copy_location(leave, node)]

    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        names = ast.Tuple([ast.Constant(name) for name in sorted(_assigned(node.body))], ast.Load())
        obstacle = ast.Constant("it has an `else`" if node.orelse else _leaves(node.body))
        self.generic_visit(node)
        branch = self._name("branch")
        enter = ast.Assign([ast.Name(branch, ast.Store())], _call(IF, node.test, names, obstacle))
        end = ast.Expr(_call(END_IF, ast.Name(branch, ast.Load())))
        guarded = ast.Try(body=node.body, handlers=[], orelse=[], finalbody=[end])
        node.test, node.body = ast.Name(branch, ast.Load()), [ast.copy_location(guarded, node)]
        return [ast.copy_location(enter, node), node]

    def _name(self, what: str) -> str:
        self._names += 1
        return f"__{what}_{self._names - 1}"


def _leaves(body: Iterable[ast.stmt]) -> str:
    """Why some threads cannot run `body` alone: it is left for good. Empty if it is not."""
    left = (ast.Return, ast.Break, ast.Continue)
    return "it is left for good" if any(isinstance(node, left) for one in body for node in ast.walk(one)) else ""


def _assigned(body: Iterable[ast.stmt]) -> set[str]:
    nodes = (node for statement in body for node in ast.walk(statement))
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])
