"""Annotations of parameters: `x: Tensor(M, K)`, `x: Annotated[Tensor, (M, K), Shard(0)]`, or the text of either."""

from __future__ import annotations

import ast
import inspect
import textwrap
import typing

from tilelink.errors import BadAnnotation, TileLinkError
from tilelink.ir.dtype import is_torch_dtype
from tilelink.ir.location import Location
from tilelink.ir.placement import Replicate
from tilelink.ir.tensor import Tensor

if typing.TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def declarations(function: Callable[..., object], scope: Mapping[str, object]) -> dict[str, Tensor]:
    """The tensor that each parameter of `function` declares, in order of the signature.

    `scope` holds the names that text may use besides globals and closure. Raises BadAnnotation and what Tensor raises.
    """
    lines = _lines(function)
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            raise BadAnnotation(
                lines[name],
                parameter=name,
                function=function.__name__,
                annotation=parameter.annotation,
                reason=": with * it stands for any number of them",
            )
    return {
        name: _declared(function, name, parameter.annotation, scope, lines[name])
        for name, parameter in inspect.signature(function).parameters.items()
    }


def _declared(
    function: Callable[..., object], name: str, annotation: object, scope: Mapping[str, object], location: Location
) -> Tensor:
    written, reason = annotation, ""
    if isinstance(annotation, str):
        try:
            annotation = _evaluate(function, annotation, scope, location)
        except TileLinkError:
            raise  # from Tensor, which says what is wrong with it
        except Exception as error:
            reason = f" ({error})"
    if isinstance(annotation, Tensor):
        return annotation
    if typing.get_origin(annotation) is typing.Annotated:
        base, *metadata = typing.get_args(annotation)
        shapes = [item for item in metadata if isinstance(item, tuple)]
        if base is Tensor and len(shapes) == 1:
            dtypes = [item for item in metadata if isinstance(item, str) or is_torch_dtype(item)] or [""]
            placements = [item for item in metadata if item not in (*dtypes, *shapes)] or [Replicate()]
            return Tensor(*shapes[0], placement=placements[0], dtype=dtypes[0], location=location)
    shown = "nothing" if written is inspect.Parameter.empty else written
    raise BadAnnotation(location, parameter=name, function=function.__name__, annotation=shown, reason=reason)


def _evaluate(function: Callable[..., object], text: str, scope: Mapping[str, object], location: Location) -> object:
    """Value of an annotation that is text, compiled at its place in the user's file, so that errors name that line."""
    cells = inspect.getclosurevars(function).nonlocals
    tree = ast.parse(text, location.file, mode="eval")
    ast.increment_lineno(tree, location.line - 1)
    return eval(compile(tree, location.file, "eval"), {**function.__globals__, **scope, **cells})


def _lines(function: Callable[..., object]) -> dict[str, Location]:
    """Where each parameter is written; the line of the function where its source cannot be read."""
    code = function.__code__
    first = Location(code.co_filename, code.co_firstlineno)
    found = dict.fromkeys(inspect.signature(function).parameters, first)
    try:
        source = textwrap.dedent("".join(inspect.getsourcelines(function)[0]))
        tree = ast.parse(source)
    except (OSError, SyntaxError):
        return found
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.arg in found and found[node.arg] is first:
            found[node.arg] = Location(code.co_filename, code.co_firstlineno + node.lineno - 1)
    return found
