"""A user's own tile op: its tile space, its access maps and the `@triton.jit` function that computes one tile.

    m, n, k = tilelink.axes("m n k")

    @tilelink.op(reads={"x": (m, k), "w": (k, n)}, writes=(m, n), reference=lambda x, w: torch.relu(x @ w) ** 2)
    @triton.jit
    def squared_relu_matmul(x, w, m, n, num_m, num_n, num_k, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
        ...
        return tile      # [TILE_M, TILE_N], any float dtype

The axes of `writes` span the tile space; every other axis is reduced inside the body. The body receives, by name: each
tensor of `reads` as a pointer to its first element (row-major, whole extents), the first index of the tile along each
written axis (`m`, `n`), the end of each axis (`num_m`: mask against it), and `TILE_M`, `TILE_N`. It takes the parameters
it wants; the others are left out.

Tensors are global, so an axis that lies on several ranks must not change what the op means. There are four declarations:

    tiled=(m, n)    a tile reads along these written axes only what it writes, and does not care where it lies
    whole=(n,)      a tile reads all of this written axis, as in a softmax along the row
    sums=(k,)       the result is a sum over this reduced axis: if it is sharded, the result is Partial
    linear=("w",)   the result is linear in this operand: if it is Partial, so is the result

Without them a written axis is tiled if the reference shows it (see op_claims.py), and whole else; a reduced axis is whole, and
no operand may be Partial. What is whole may not be sharded. A declaration that the reference contradicts is refused.
Constants of the module, and functions of the user's that body and reference call, come along with their text (user_text.py).
Indices have 32 bits: a body for tensors of 2^31 elements widens its offsets, `m.to(tl.int64)`, itself.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import sympy

from tilelink.errors import BadUserOp
from tilelink.ir.dtype import DTYPES
from tilelink.ir.location import here
from tilelink.ir.names import split_names
from tilelink.ir.op_claims import Shown
from tilelink.ir.ops.elementwise import FUNCTIONS
from tilelink.ir.ops.op import Op
from tilelink.ir.ops.user_fold import UserFold
from tilelink.ir.ops.user_op import UserOp as UserOp
from tilelink.ir.user_text import kernel_text, reference_text

Axes: TypeAlias = sympy.Symbol | tuple[sympy.Symbol, ...]

_COUNTING = frozenset(  # names of steps around a tile
    [
        "rank",
        "call",
        "tile",
        "program",
        "half",
        "step",
        "peer",
        "chunk",
        "slot",
        "use",
        "number",
        "lane",
        "stream",
        "owner",
        "place",
    ]
)
# what steps of kernels are called (`lowering.steps.ops`): a function of the user's would take their place
STEPS = frozenset(
    [
        *FUNCTIONS,
        *(f"in_{dtype}" for dtype in DTYPES),
        *("zeros", "full", "dot", "copy", "trans", "halves", "as_row", "combined", "own_place"),
        *("attend", "attend_some", "attend_between", "attended", "log_of_weights", "merge_state"),
        *("in_base_2", "in_base_e"),
    ]
)
_LAWS = {  # what is not so if a claim is false
    "tiled": "a part of {0} gives another result than the same part of all of {0}",
    "sums": "the results for the parts of {0} do not add up to the result",
    "linear": "the results for two summands of {0} do not add up to the result",
}


def axes(names: str) -> tuple[sympy.Symbol, ...]:
    """Symbols for the axes of tile ops: `m, n, k = axes("m n k")`. Raises BadNames."""
    return tuple(sympy.Symbol(name, integer=True, nonnegative=True) for name in split_names(names, "axes"))


@dataclass(frozen=True, slots=True)
class Claims:
    """What the user says of axes and operands, as it was written."""

    whole: Axes = ()
    tiled: Axes = ()
    sums: Axes = ()
    linear: str | tuple[str, ...] = ()


def make_user_op(
    function: object,
    reads: Mapping[str, tuple[sympy.Symbol, ...]],
    writes: tuple[sympy.Symbol, ...],
    reference: Callable[..., object] | None,
    claims: Claims = Claims(),
) -> UserOp:
    """Check the declaration and keep its text. Raises BadUserOp."""
    name, parameters = jit_name(function, "@tilelink.op"), jit_parameters(function)
    written = tuple(str(axis) for axis in _tuple(writes))
    if not 1 <= len(written) <= 2 or len(set(written)) != len(written):
        raise BadUserOp(
            here(), name=name, reason=f"writes=({', '.join(written)})", legal="Legal: one or two different axes."
        )
    maps = access_maps(name, reads, written)
    check_parameters(name, parameters, maps, written)
    theirs = "" if reference is None else reference_text(reference, name)
    whole, sums, linear = _claimed(name, claims, maps, written, Shown(theirs, maps, written))
    return UserOp(name, parameters, maps, written, kernel_text(name, function), theirs, whole, sums, linear)


def jit_name(function: object, decorator: str) -> str:
    """The name of a jit function, the one below `decorator`. Raises BadUserOp."""
    plain = getattr(function, "fn", None)
    name: str = getattr(plain, "__name__", getattr(function, "__name__", str(function)))
    if plain is None or not hasattr(function, "arg_names"):
        reason, legal = "its body is not a @triton.jit function", f"Put @triton.jit below {decorator}."
        raise BadUserOp(here(), name=name, reason=reason, legal=legal)
    if name in STEPS:
        reason = f"a function is called {name}, as a step of kernels is"
        raise BadUserOp(here(), name=name, reason=reason, legal="Legal: another name.")
    return name


def jit_parameters(function: object) -> tuple[str, ...]:
    return tuple(function.arg_names)  # type: ignore[attr-defined]  # of a jit function


def access_maps(
    name: str, reads: Mapping[str, Axes], written: tuple[str, ...]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The axes of each tensor that is read, of an op that writes the axes `written`. Raises BadUserOp."""
    maps = tuple((tensor, tuple(str(axis) for axis in _tuple(index))) for tensor, index in reads.items())
    used = {axis for _, index in maps for axis in index}
    counting = sorted(_COUNTING & {*written, *used})
    if counting:
        reason = f"an axis is called {counting[0]}, as kernels call something that they count with"
        raise BadUserOp(here(), name=name, reason=reason, legal=f"Legal: any name but {', '.join(sorted(_COUNTING))}.")
    for tensor, index in maps:
        if not 1 <= len(index) <= 2:
            raise BadUserOp(
                here(), name=name, reason=f"{tensor!r} has {len(index)} dimensions", legal="Legal: one or two."
            )
        if len(set(index)) != len(index):
            raise BadUserOp(
                here(),
                name=name,
                reason=f"both dimensions of {tensor!r} are the axis {index[0]}",
                legal="Legal: an axis for each dimension; two axes may have the same extent.",
            )
    lost = [axis for axis in written if axis not in used]
    if lost:
        raise BadUserOp(
            here(),
            name=name,
            reason=f"no tensor has the axis {', '.join(lost)}, so its extent is unknown",
            legal="Legal: every written axis is an axis of some tensor that is read.",
        )
    return maps


def check_parameters(
    name: str,
    parameters: tuple[str, ...],
    reads: tuple[tuple[str, tuple[str, ...]], ...],
    written: tuple[str, ...],
    more: tuple[str, ...] = (),
) -> None:
    """Whether a body has parameters that it can be given, `more` among them. Raises BadUserOp."""
    tensors, used = [tensor for tensor, _ in reads], {axis for _, index in reads for axis in index}
    legal = [
        *tensors,
        *written,
        *(f"num_{axis}" for axis in sorted(used)),
        *(f"TILE_{axis.upper()}" for axis in written),
    ]
    legal += more
    unknown = [parameter for parameter in parameters if parameter not in legal]
    missing = [tensor for tensor in tensors if tensor not in parameters]
    if unknown or missing:
        raise BadUserOp(
            here(),
            name=name,
            reason=f"its body has the parameters ({', '.join(parameters)})",
            legal=f"Legal parameters: {', '.join(legal)}; the tensors {', '.join(tensors)} must be among them.",
        )


def _claimed(
    name: str, claims: Claims, reads: tuple[tuple[str, tuple[str, ...]], ...], writes: tuple[str, ...], shown: Shown
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Axes that are whole, axes that are summed, operands that pass summands on: what was claimed and what is shown."""
    reduced = tuple(dict.fromkeys(axis for _, index in reads for axis in index if axis not in writes))
    tensors = tuple(tensor for tensor, _ in reads)
    whole = _names(name, "whole", claims.whole, (*writes, *reduced))
    tiled = _names(name, "tiled", claims.tiled, writes)
    sums = _names(name, "sums", claims.sums, reduced)
    linear = _names(name, "linear", claims.linear, tensors)
    for axis in whole:
        if axis in (*tiled, *sums):
            reason = f"its axis {axis} is declared whole and {'tiled' if axis in tiled else 'a sum'}"
            raise BadUserOp(here(), name=name, reason=reason, legal="Legal: one of both.")
    laws = (("tiled", tiled, shown.tiled), ("sums", sums, shown.is_sum), ("linear", linear, shown.is_linear))
    for word, claimed, law in laws:
        for what in claimed:
            if law(what) is False:
                reason = f"{word}={what} does not hold for its reference: {_LAWS[word].format(what)}"
                raise BadUserOp(here(), name=name, reason=reason, legal=f"Leave {what} out, or correct the reference.")
    open_axes = [axis for axis in writes if axis not in tiled]
    return tuple(axis for axis in open_axes if axis in whole or not shown.tiled(axis)), sums, linear


def _names(name: str, word: str, given: object, legal: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(map(str, _tuple(given)))
    for unknown in names:
        if unknown not in legal:
            kind = {"tiled": "written axis", "sums": "reduced axis", "linear": "tensor"}.get(word, "axis")
            known = ", ".join(legal) or "none"
            raise BadUserOp(
                here(), name=name, reason=f"{word} names {unknown}, which is no {kind} of it", legal=f"Legal: {known}."
            )
    return names


def of_user(operation: Op) -> UserOp | None:
    """The functions of the user's that an operation is made of, if it is."""
    return operation.block if isinstance(operation, UserFold) else operation if isinstance(operation, UserOp) else None


def clashing(op: UserOp, other: UserOp) -> str:
    """Name of a function that both define differently, empty if there is none: an emitted file has both of them."""
    theirs = functions_of(other)
    return next((name for name, text in functions_of(op).items() if theirs.get(name, text) != text), "")


def functions_of(op: UserOp) -> dict[str, str]:
    """Functions by name, with their decorators, as they were written."""
    lines = op.body.splitlines()
    found = [node for node in ast.parse(op.body).body if isinstance(node, ast.FunctionDef)]
    return {one.name: "\n".join(lines[one.decorator_list[0].lineno - 1 : one.end_lineno]) for one in found}


def _tuple(index: object) -> tuple[object, ...]:
    """An index of one axis may be written without a tuple."""
    return index if isinstance(index, tuple) else (index,)
