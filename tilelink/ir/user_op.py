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
Indices have 32 bits: a body for tensors of 2^31 elements widens its offsets, `m.to(tl.int64)`, itself.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import sympy

from tilelink.errors import BadUserOp
from tilelink.ir.location import here
from tilelink.ir.names import split_names


def axes(names: str) -> tuple[sympy.Symbol, ...]:
    """Symbols for the axes of tile ops: `m, n, k = axes("m n k")`. Raises BadNames."""
    return tuple(sympy.Symbol(name, integer=True, nonnegative=True) for name in split_names(names, "axes"))


@dataclass(frozen=True, slots=True)
class UserOp:
    """A registered tile op. All fields are text, so that a schedule that uses it can be printed, stored and compared."""

    name: str
    parameters: tuple[str, ...]  # of the body, in order
    reads: tuple[tuple[str, tuple[str, ...]], ...]  # tensor parameter -> axis of each dimension
    writes: tuple[str, ...]
    body: str  # source of the @triton.jit function and of those it calls
    reference: str  # source of a torch expression or function of the tensors, empty if none was given

    @property
    def axes(self) -> tuple[str, ...]:
        """Written axes first, then those that the body reduces over."""
        seen = dict.fromkeys(self.writes)
        for _, index in self.reads:
            seen.update(dict.fromkeys(index))
        return tuple(seen)


def make_user_op(
    function: object,
    reads: Mapping[str, tuple[sympy.Symbol, ...]],
    writes: tuple[sympy.Symbol, ...],
    reference: Callable[..., object] | None,
) -> UserOp:
    """Check the declaration and keep its text. Raises BadUserOp."""
    plain = getattr(function, "fn", None)
    name = getattr(plain, "__name__", getattr(function, "__name__", str(function)))
    if plain is None or not hasattr(function, "arg_names"):
        raise BadUserOp(
            here(),
            name=name,
            reason="its body is not a @triton.jit function",
            legal="Put @triton.jit below @tilelink.op.",
        )
    parameters = tuple(function.arg_names)
    written = tuple(str(axis) for axis in _tuple(writes))
    if not 1 <= len(written) <= 2 or len(set(written)) != len(written):
        raise BadUserOp(
            here(), name=name, reason=f"writes=({', '.join(written)})", legal="Legal: one or two different axes."
        )
    maps = tuple((tensor, tuple(str(axis) for axis in _tuple(index))) for tensor, index in reads.items())
    used = {axis for _, index in maps for axis in index}
    for tensor, index in maps:
        if not 1 <= len(index) <= 2:
            raise BadUserOp(
                here(), name=name, reason=f"{tensor!r} has {len(index)} dimensions", legal="Legal: one or two."
            )
    lost = [axis for axis in written if axis not in used]
    if lost:
        raise BadUserOp(
            here(),
            name=name,
            reason=f"no tensor has the axis {', '.join(lost)}, so its extent is unknown",
            legal="Legal: every written axis is an axis of some tensor that is read.",
        )
    legal = [*reads, *written, *(f"num_{axis}" for axis in sorted(used)), *(f"TILE_{axis.upper()}" for axis in written)]
    unknown = [parameter for parameter in parameters if parameter not in legal]
    missing = [tensor for tensor in reads if tensor not in parameters]
    if unknown or missing:
        raise BadUserOp(
            here(),
            name=name,
            reason=f"its body has the parameters ({', '.join(parameters)})",
            legal=f"Legal parameters: {', '.join(legal)}; the tensors {', '.join(reads)} must be among them.",
        )
    return UserOp(name, parameters, maps, written, _source(function), _reference_source(reference, name))


def _tuple(index: object) -> tuple[object, ...]:
    """An index of one axis may be written without a tuple."""
    return index if isinstance(index, tuple) else (index,)


def _source(function: object) -> str:
    """Text of a jit function preceded by that of every jit function of the user's that it calls."""
    texts: dict[str, str] = {}

    def visit(jit: object) -> None:
        plain = jit.fn  # type: ignore[attr-defined]
        text = textwrap.dedent("".join(inspect.getsourcelines(plain)[0]))
        start = text.index("def ")
        for node in ast.walk(ast.parse(text[start:])):
            if isinstance(node, ast.Name) and node.id in plain.__globals__:
                called = plain.__globals__[node.id]
                if hasattr(called, "arg_names") and called.fn.__name__ not in texts and called is not jit:
                    visit(called)
        texts[plain.__name__] = "@triton.jit\n" + text[start:]

    visit(function)
    return "\n\n".join(text.rstrip() + "\n" for text in texts.values())


def _reference_source(reference: Callable[..., object] | None, name: str) -> str:
    if reference is None:
        return ""
    try:
        text = textwrap.dedent("".join(inspect.getsourcelines(reference)[0]))
    except (OSError, TypeError) as error:  # TypeError: built in, such as torch.relu
        raise BadUserOp(
            here(), name=name, reason="the source of its reference cannot be read", legal="Define it in a file."
        ) from error
    if text.lstrip().startswith("def "):
        return text.rstrip() + "\n"
    node = _lambda_in(text)
    if node is None:
        raise BadUserOp(here(), name=name, reason="its reference is not a function", legal="Legal: a def or a lambda.")
    return f"{name}_reference = {ast.unparse(node)}\n"


def _lambda_in(text: str) -> ast.Lambda | None:
    """The lambda in a decorator line: its text rarely parses alone, so try every prefix that starts at `lambda`."""
    start = text.find("lambda")
    for end in range(len(text), start, -1):
        try:
            tree = ast.parse(text[start:end].strip(), mode="eval")
        except (SyntaxError, ValueError):
            continue
        if isinstance(tree.body, ast.Lambda):
            return tree.body
    return None
