"""A user's own fold over an axis: what makes the state of a block of it, how states are merged, and what a whole state gives.

    m, v = tilelink.axes("m v")

    @tilelink.fold(
        reads={"x": (m, v)}, over=v, state={"top": float("-inf"), "weight": 0.0},
        merge=merge, finish=logsumexp, reference=lambda x: torch.logsumexp(x, 1),
    )
    @triton.jit
    def row_logsumexp(x, m, v, num_m, num_v, TILE_M: tl.constexpr, TILE_V: tl.constexpr):
        ...
        return top, weight      # [TILE_M] each: the state of x[m : m + TILE_M, v : v + TILE_V]

    @triton.jit
    def merge(top, weight, more_top, more_weight): ...      # one state of two; the second one has seen what comes behind

    @triton.jit
    def logsumexp(top, weight): ...                          # the result of a state that has seen all

The body gets what that of a tile op gets (`tilelink.ir.user_op`), of the own part of each tensor: `v` is the first element of
the block, and those from `num_v` on do not exist. Where the parts of `over` lie on ranks, `first_v` elements come before the own
ones, and there are `all_v` on all ranks. `finish` takes parts of the state by name, and `all_v`. Parts are fp32.

`state` gives the numbers of a state that has seen nothing. `merge` is associative, and leaves a state as it is if the other one
has seen nothing; it need not be commutative, as states are merged in the order of elements. It computes each row by itself.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, overload

import sympy

from tilelink.errors import BadUserOp
from tilelink.ir.location import here
from tilelink.ir.ops.user_fold import FoldResult, UserFold
from tilelink.ir.ops.user_op import UserOp
from tilelink.ir.tensor import Tensor, record
from tilelink.ir.user_op import access_maps, check_parameters, jit_name, jit_parameters
from tilelink.ir.user_text import kernel_text, reference_text

_DECORATOR = "@tilelink.fold"
_STEPS = ("split", "block", "state")  # what kernels count around a block
_MOST_PARTS = 8


def make_user_fold(
    function: object,
    reads: Mapping[str, tuple[sympy.Symbol, ...]],
    over: sympy.Symbol,
    state: Mapping[str, float],
    merge: object,
    finish: object | Mapping[str, object] | None,
    reference: Callable[..., object] | None,
) -> UserFold:
    """Check the declaration and keep its text. Raises BadUserOp."""
    name, parameters, axis = jit_name(function, _DECORATOR), jit_parameters(function), str(over)
    written = (_row_axis(name, reads, axis), axis)
    maps = access_maps(name, reads, written)
    _check_state(name, state, (*reads, *written), written)
    check_parameters(name, parameters, maps, written, (f"first_{axis}", f"all_{axis}"))
    merging = _jit(name, "merge", merge)
    if len(jit_parameters(merge)) != 2 * len(state):
        reason = f"{merging} has the parameters ({', '.join(jit_parameters(merge))})"
        legal = f"Legal: {2 * len(state)}, the parts {', '.join(state)} of one state and those of another."
        raise BadUserOp(here(), name=name, reason=reason, legal=legal)
    given = finish if isinstance(finish, Mapping) and finish else {"": finish or None}
    finishes = tuple(_finish(name, word, one, tuple(state), axis) for word, one in given.items())
    functions = [one for one in (function, merge, *given.values()) if one is not None]
    text = kernel_text(name, *dict.fromkeys(functions))
    _check_returns(name, text, {name: len(state), merging: len(state), **{one.function: 1 for one in finishes}})
    theirs = "" if reference is None else reference_text(reference, name)
    block = UserOp(name, parameters, maps, written, text, theirs, whole=(), sums=(), linear=())
    parts = tuple((part, float(number)) for part, number in state.items())
    return UserFold(block, axis, parts, merging, finishes)


def _row_axis(name: str, reads: Mapping[str, tuple[sympy.Symbol, ...]], over: str) -> str:
    """The one axis of all tensors that is not folded over."""
    axes = {str(axis) for index in reads.values() for axis in (index if isinstance(index, tuple) else (index,))}
    rows = sorted(axes - {over})
    if over not in axes or len(rows) != 1:
        reason = f"over={over}, and its tensors have the axes {', '.join(sorted(axes)) or 'none'}"
        raise BadUserOp(here(), name=name, reason=reason, legal=f"Legal: {over}, and one more, which the result has.")
    return rows[0]


def _check_state(name: str, state: Mapping[str, float], taken: tuple[str, ...], axes: tuple[str, ...]) -> None:
    legal = f"Legal: one to {_MOST_PARTS} parts, a number each, with names that no tensor and no axis has."
    clash = [part for part in state if part in taken or not part.isidentifier()]
    if not 1 <= len(state) <= _MOST_PARTS or clash:
        raise BadUserOp(here(), name=name, reason=f"state has the parts {', '.join(state) or 'none'}", legal=legal)
    for part, number in state.items():
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise BadUserOp(here(), name=name, reason=f"part {part} of a state begins with {number!r}", legal=legal)
    for axis in axes:
        if axis in _STEPS:
            reason = f"an axis is called {axis}, as kernels call something that they count with"
            raise BadUserOp(here(), name=name, reason=reason, legal=f"Legal: any name but {', '.join(_STEPS)}.")


def _jit(name: str, word: str, function: object) -> str:
    if not hasattr(function, "arg_names") or not hasattr(function, "fn"):
        reason = f"{word}={function!r} is not a @triton.jit function"
        raise BadUserOp(here(), name=name, reason=reason, legal="Put @triton.jit above it.")
    return jit_name(function, _DECORATOR)


def _finish(name: str, word: str, function: object, parts: tuple[str, ...], over: str) -> FoldResult:
    """What makes a result, called `word` if there are several."""
    if function is None:
        if len(parts) > 1:
            reason = f"it has no finish, and a state of {len(parts)} parts"
            raise BadUserOp(
                here(), name=name, reason=reason, legal="Legal: finish=, which makes the result of a state."
            )
        return FoldResult(word or name, "", parts)
    found = _jit(name, "finish", function)
    legal = (*parts, f"all_{over}")
    unknown = [one for one in jit_parameters(function) if one not in legal]
    if unknown or not jit_parameters(function) or (word and not word.isidentifier()):
        reason = f"{found} has the parameters ({', '.join(jit_parameters(function))})"
        raise BadUserOp(here(), name=name, reason=reason, legal=f"Legal parameters: {', '.join(legal)}.")
    return FoldResult(word or name, found, jit_parameters(function))


def _check_returns(name: str, text: str, counts: Mapping[str, int]) -> None:
    """Functions return as many tensors as they should, where their text shows it. Raises BadUserOp."""
    for function in ast.parse(text).body:
        if not isinstance(function, ast.FunctionDef) or function.name not in counts:
            continue
        wanted = counts[function.name]
        for node in ast.walk(function):
            if not isinstance(node, ast.Return):
                continue
            many = len(node.value.elts) if isinstance(node.value, ast.Tuple) else 1
            called = isinstance(node.value, ast.Call)  # which may return several
            if many != wanted and not (called and wanted > 1):
                reason = f"{function.name} returns {many} tensor{'s' * (many > 1)}"
                raise BadUserOp(here(), name=name, reason=reason, legal=f"Legal: {wanted}, of [TILE_M] each.")


@overload
def fold(
    reads: Mapping[str, tuple[sympy.Symbol, ...]],
    *,
    over: sympy.Symbol,
    state: Mapping[str, float],
    merge: object,
    finish: Mapping[str, object],
    reference: Callable[..., object] | None = ...,
) -> Callable[[object], Callable[..., tuple[Tensor, ...]]]: ...
@overload
def fold(
    reads: Mapping[str, tuple[sympy.Symbol, ...]],
    *,
    over: sympy.Symbol,
    state: Mapping[str, float],
    merge: object,
    finish: object | None = ...,
    reference: Callable[..., object] | None = ...,
) -> Callable[[object], Callable[..., Tensor]]: ...


def fold(
    reads: Mapping[str, tuple[sympy.Symbol, ...]],
    *,
    over: sympy.Symbol,
    state: Mapping[str, float],
    merge: object,
    finish: object | Mapping[str, object] | None = None,
    reference: Callable[..., object] | None = None,
) -> Callable[[object], Callable[..., Any]]:
    """Register a fold of the user's; tilelink.ir.user_fold has the conventions. Raises BadUserOp.

    `reads` gives the axes of each tensor: `over`, and the one of the result [M], fp32. The function makes the state of a block.
    `state` gives the numbers of its parts before anything has been seen, `merge` makes one state of two, `finish` the result of a
    whole one: several by name make several results. `reference` is a torch function of whole tensors, or of several results a
    tuple. For tensors of int32 checks draw numbers of elements of `over`.
    """

    def decorate(function: object) -> Callable[..., Any]:
        made = make_user_fold(function, reads, over, state, merge, finish, reference)

        def call(*tensors: Tensor) -> Tensor | tuple[Tensor, ...]:
            if len(tensors) != len(reads):
                reason, legal = f"called with {len(tensors)} tensors", f"It reads: {', '.join(reads)}."
                raise BadUserOp(here(), name=made.word, reason=reason, legal=legal)
            found = [record(replace(made, number=one), tensors, made.word) for one in range(len(made.finishes))]
            return tuple(found) if isinstance(finish, Mapping) else found[0]

        return call

    return decorate
