"""Tracing: an `@overlap` function is called once with symbolic tensors; what it does is recorded as a Spec."""

from __future__ import annotations

import cProfile
import inspect
import keyword
import sys
import textwrap
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, FunctionType

from tilelink.errors import (
    BadShape,
    BadUserOp,
    NotAFunction,
    NothingReturned,
    RoutedPlacement,
    SymbolicSize,
    UnreducedOutput,
)
from tilelink.ir.annotation import declarations
from tilelink.ir.location import Location, here
from tilelink.ir.ops.op import text
from tilelink.ir.placement import ByExpert, Partial
from tilelink.ir.routing import Routing
from tilelink.ir.spec import Node, Operation, Spec, Value
from tilelink.ir.tensor import Tensor
from tilelink.ir.user_op import clashing, of_user


class Trace:
    """Records the nodes of one call. Names are made up here and replaced by the user's variable names at the end."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.nodes: list[Node] = []

    def declare(self, name: str, declared: Tensor) -> Tensor:
        value = Value(name, declared.shape, declared.placement, declared.dtype, declared.location)
        self.values[name] = value
        return self._tensor(value)

    def record(self, operation: Operation, operands: Sequence[Tensor], location: Location) -> Tensor:
        """Append `operation(*operands)`; raises what its `dtype` and `infer` raise, and BadShape."""
        values = [self.values[operand.name] for operand in operands]
        self._check_functions(operation, location)
        for one in values:
            if len(one.shape) > operation.most_dims:
                what, legal = f"{operation.word} operand {one.name}", "1 or 2"
                raise BadShape(location, what=what, rank=len(one.shape), shape=text(one.shape), legal=legal)
        dtype = operation.dtype(values, location)
        shape, placement = operation.infer(values, location)
        name = self._fresh(operation.result(values[0]))
        value = Value(name, shape, placement, dtype, location)
        self.values[name] = value
        self.nodes.append(Node(operation, tuple(v.name for v in values), value))
        return self._tensor(value)

    def _check_functions(self, operation: Operation, location: Location) -> None:
        """The functions of all tile ops have names of their own. Raises BadUserOp."""
        op = of_user(operation)
        for node in self.nodes if op is not None else ():
            other = of_user(node.operation)
            if op is not None and other is not None and (name := clashing(op, other)):
                reason = f"an emitted file has all functions of a spec, and another one of it is called {name}, too"
                raise BadUserOp(location, name=op.name, reason=reason, legal="Rename one of them.")

    def _tensor(self, value: Value) -> Tensor:
        return Tensor(
            *value.shape,
            placement=value.placement,
            dtype=value.dtype,
            name=value.name,
            location=value.location,
            trace=self,
        )

    def _fresh(self, stem: str) -> str:
        name, count = stem, 1
        while name in self.values:
            count += 1
            name = f"{stem}_{count}"
        return name


def trace(function: Callable[..., object], scope: dict[str, object]) -> Spec:
    """Call `function` with symbolic tensors and return its Spec.

    `scope` holds the names that annotations may use besides globals and closure (the caller's locals).
    Raises NotAFunction, BadAnnotation, NothingReturned, UnreducedOutput, BadRouting and what the operations raise.
    """
    if not isinstance(function, FunctionType):
        raise NotAFunction(here(), value=repr(function))
    code = function.__code__
    location = Location(code.co_filename, code.co_firstlineno)
    recorder = Trace()
    parameters = [recorder.declare(name, declared) for name, declared in declarations(function, scope).items()]
    result, names = _call(function, parameters)
    outputs = result if isinstance(result, tuple) else (result,)
    for output in outputs:
        if not isinstance(output, Tensor) or output.trace is not recorder or output.name not in recorder.values:
            raise NothingReturned(location, function=function.__name__, value=repr(output))
        if isinstance(output.placement, ByExpert):
            given, legal = (
                f"its output {output.name} is ByExpert()",
                "tilelink.combine brings rows back to their tokens",
            )
            raise RoutedPlacement(output.location, op=function.__name__, given=given, legal=legal)
        if isinstance(output.placement, Partial):
            raise UnreducedOutput(output.location, function=function.__name__, tensor=output.name)
    computed = {node.output.name for node in recorder.nodes}
    if not outputs or any(output.name not in computed for output in outputs):
        raise NothingReturned(location, function=function.__name__, value="a parameter" if outputs else "nothing")
    returned = [output.name for output in outputs]
    rename = _rename(recorder, names, returned)
    return Spec(
        name=function.__name__,
        inputs=tuple(_renamed_value(recorder.values[parameter.name], rename) for parameter in parameters),
        nodes=tuple(_renamed(node, rename) for node in recorder.nodes),
        outputs=tuple(dict.fromkeys(rename[name] for name in returned)),
        source=_source(function),
        location=location,
    )


def _call(function: FunctionType, parameters: list[Tensor]) -> tuple[object, dict[str, str]]:
    """Result of the call, and the user's variable name of each tensor (the last one bound to it)."""
    names: dict[str, str] = {}

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "return" and frame.f_code is function.__code__:
            for variable, value in frame.f_locals.items():
                table = value.table if isinstance(value, Routing) else value
                if isinstance(table, Tensor):
                    names.setdefault(table.name, variable)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        keywords = function.__code__.co_kwonlyargcount
        positional = len(parameters) - keywords
        result = function(*parameters[:positional], **{p.name: p for p in parameters[positional:]})
    except TypeError as error:
        if not _asks_for_a_size(error):
            raise
        raise SymbolicSize(_line(error, function), function=function.__name__, reason=error) from error
    finally:
        sys.setprofile(before if callable(before) else None)
        if isinstance(before, cProfile.Profile):  # before Python 3.12 one that runs is in the place of a function
            before.enable()
    return result, names


def _asks_for_a_size(error: TypeError) -> bool:
    """Whether sympy, or Python about one of its symbols, has been asked for the value of a size."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return "sympy" in Path(last.filename).parts or "'Symbol' object" in str(error)


def _line(error: TypeError, function: FunctionType) -> Location:
    """The innermost line of the user's file that has raised `error`."""
    code = function.__code__
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == code.co_filename]
    return Location(code.co_filename, lines[-1] or code.co_firstlineno)


# Names that schedules and emitted files make up; a user's value of such a name is called `<name>_value` there.
_RESERVED_TEXT = """
    rank main self name tensor peer step chunk rows slot part left stream streams torch triton tl dist os sys json time
    item use argparse contextlib epoch counts signals signal_peers fabric last call program tile tiles done source target op
    rank_inputs reference Near Comparison list zip attention_of decoded merged_states combined grouped dispatched routing_of
    EXPERTS LENGTHS PAGES LOGS ELEMENTS
"""
_RESERVED_WORDS = frozenset(_RESERVED_TEXT.split())
_RESERVED_ENDS = (
    *("_ptr", "_desc", "_peers", "_tile", "_tiles", "_kernel", "_part", "_parts", "_left", "_right", "_first"),
    *(
        "_staged",
        "_shared",
        "_whole",
        "_settled",
        "_send",
        "_queue",
        "_segment",
        "_place",
        "_offsets",
        "_there",
        "_value",
        "_logs",
        "_means",
        "_state",
    ),
)


def safe_name(name: str) -> str:
    """`name`, or `<name>_value` where emitted files have a use of their own for it."""
    taken = name in _RESERVED_WORDS or keyword.iskeyword(name) or name.endswith(_RESERVED_ENDS)
    return f"{name}_value" if taken else name


def _rename(recorder: Trace, names: dict[str, str], returned: list[str]) -> dict[str, str]:
    """Computed values take the user's variable names; a returned value without one is called `out`."""
    computed = {node.output.name for node in recorder.nodes}
    rename: dict[str, str] = {}
    for name in recorder.values:  # inputs come first, so that they keep their names
        wanted = names.get(name, name) if name in computed else name
        if name in returned and name not in names:
            wanted = "out" if len(set(returned)) == 1 else f"out_{returned.index(name)}"
        wanted = safe_name(wanted)
        stem, count = wanted, 1
        while wanted in rename.values():
            count += 1
            wanted = f"{stem}_{count}"
        rename[name] = wanted
    return rename


def _renamed(node: Node, rename: dict[str, str]) -> Node:
    inputs = tuple(rename[name] for name in node.inputs)
    return Node(node.operation, inputs, _renamed_value(node.output, rename))


def _renamed_value(value: Value, rename: dict[str, str]) -> Value:
    return Value(rename[value.name], value.shape, value.placement, value.dtype, value.location)


def _source(function: Callable[..., object]) -> tuple[str, ...]:
    try:
        return tuple(textwrap.dedent(inspect.getsource(function)).rstrip().splitlines())
    except OSError:
        return (f"def {function.__name__}(...): ...  # typed in, no file",)
