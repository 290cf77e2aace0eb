"""The product of a phase in ping-pong: what the group that loads and the groups that multiply agree on.

if segment != rank: wait arrived[segment] >= call for x_full
y = zeros(128, 128)
for k_tile < 64: k = k_tile * 64:
  left = x_full[segment, m : +128, k : +64] by descriptor
  right = w[k : +64, n : +128] by descriptor
  y = dot(left, right, y)
store y -> ...                                       the rest
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lowering.steps.choices import Choice, choice_of
from lowering.steps.errors import NotPrinted
from tilelink.ir.dtype import DTYPES
from tilelink.schedule.index import Index, Number, names_in, replaced
from tilelink.schedule.memory import Access
from tilelink.schedule.roles import Phase, PingPong, Role, Sms, Who
from tilelink.schedule.steps import Compute, For, If, Load, Step, Sync, Wait
from tilelink.schedule.walk import steps_in

GROUP_WARPS = 4  # which issue the matrix products of Hopper together (PTX ISA, wgmma)
ROWS, LEAST_COLS, MOST_COLS = 64, 16, 256  # of a product that one instruction computes
Sizes = Mapping[str, int]  # what names of sizes stand for
TENSOR_CORES = tuple(row.torch for row in DTYPES.values() if row.tensor_cores)


@dataclass(frozen=True, slots=True)
class Product:
    """`result` of `rows` x `cols` = left x right over the rounds of `loop`, each of `step` along k. `before` waits for the
    operands, `rest` is what comes behind. `transposed`: the right operand lies as [columns, k]."""

    result: str
    rows: int
    cols: int
    left: Load | Choice
    right: Load | Choice
    loop: For
    step: int
    transposed: bool
    before: tuple[Step, ...]
    rest: tuple[Step, ...]


def product_of(role: Role, phase: Phase, sizes: Sizes) -> Product:
    """The product of a phase in ping-pong, of a schedule with such `sizes`. Raises NotPrinted."""
    _check_phase(role, phase)
    number = next((number for number, step in enumerate(phase.body) if _multiplies(step)), None)
    if number is None:
        raise _refused(role, "a phase in ping-pong without a product", phase.title or "tiles", "a loop over `dot`")
    loop, head = phase.body[number], phase.body[:number]
    if not isinstance(loop, For):
        raise _refused(
            role, "a product in ping-pong without a loop over k", "dot", "a loop over k, of one round as well"
        )
    zeros = [step for step in head if isinstance(step, Compute)]
    before = tuple(step for step in head if not isinstance(step, Compute))
    if len(zeros) != 1 or zeros[0].op != "zeros" or not all(map(_only_waits, before)):
        what = "something else than waits in front of a product in ping-pong"
        raise _refused(role, what, phase.title or "tiles", "waits, and zeros for the sums")
    left, right, transposed = _operands(role, loop, zeros[0].results[0])
    step = _step(role, loop, (left, right), transposed, sizes)
    rows, cols = (whole(extent, sizes) for extent in zeros[0].shape)
    return Product(
        zeros[0].results[0], rows, cols, left, right, loop, step, transposed, before, phase.body[number + 1 :]
    )


def loads_of(operand: Load | Choice) -> tuple[Load, ...]:
    """The load of an operand, or both of which a branch chooses."""
    return (operand.first, operand.second) if isinstance(operand, Choice) else (operand,)


def _refused(role: Role, what: str, step: str, legal: str) -> NotPrinted:
    return NotPrinted(what=what, role=role.name, step=step, legal=f"{legal}, or pipelining=Plain()")


def _check_phase(role: Role, phase: Phase) -> None:
    how, title = phase.pipelining, phase.title or "tiles"
    assert isinstance(how, PingPong) and isinstance(role.engine, Sms)
    if phase.every or phase.who is not Who.EACH or phase.first != 0:
        raise _refused(role, "ping-pong of positions that each program does", title, "positions in turn, from 0 on")
    if how.warps != GROUP_WARPS or role.engine.warps != how.warps:
        what = f"ping-pong of groups of {how.warps} warps, in programs of {role.engine.warps}"
        raise _refused(role, what, title, f"PingPong({GROUP_WARPS}, places) and Sms(warps={GROUP_WARPS})")
    if role.engine.per_sm != 1:
        raise _refused(role, "ping-pong of programs that share an SM", title, "Sms(per_sm=1)")


def _multiplies(step: Step) -> bool:
    return any(isinstance(one, Compute) and one.op == "dot" for one in steps_in((step,)))


def _only_waits(step: Step) -> bool:
    return all(isinstance(one, Wait | Sync | If | For) for one in steps_in((step,)))


def _operands(role: Role, loop: For, result: str) -> tuple[Load | Choice, Load | Choice, bool]:
    """What `left`, `right`, and the dot of a round are, in any order of the loads."""
    bound = frozenset({loop.variable, *(name for name, _ in loop.let)})
    loads: dict[str, Load | Choice] = {}
    turned: set[str] = set()
    legal = "loads of two operands, one of them transposed at most, and y = dot(left, right, y)"
    for step in loop.body:
        match step:
            case Load():
                loads[step.result] = step
                continue
            case If() if (choice := choice_of(step, bound)) is not None:
                loads[choice.first.result] = choice
                continue
            case Compute(results=(name,), op="trans", operands=(operand,)) if name == operand and name in loads:
                turned.add(name)
                continue
            case Compute(results=(name,), op="dot", operands=(str(left), str(right), total)) if step is loop.body[-1]:
                if name == total == result and {left, right} == set(loads) and left not in turned:
                    return loads[left], loads[right], right in turned
        break
    raise _refused(role, "a round of a product in ping-pong that does something else", f"for {loop.variable}", legal)


def _step(role: Role, loop: For, operands: tuple[Load | Choice, ...], transposed: bool, sizes: Sizes) -> int:
    """Elements of a round along k: both operands go on by so many, through all of k."""
    let, variable, found = dict(loop.let), Index(loop.variable), set[int]()
    for operand, back in zip(operands, (1, 1 if transposed else 2), strict=True):
        for region in (load.region for load in loads_of(operand)):
            most = whole(region.extent[-back], sizes)
            start = replaced(replaced(region.start[-back], let), sizes)
            others = [one for place, one in enumerate(region.start) if place != len(region.start) - back]
            steady = not any(names_in(one) & {loop.variable, *let} for one in (*others, region.at))
            if region.access is not Access.DESCRIPTOR or start != variable * most or not steady:
                what = "an operand in ping-pong that does not go through k by descriptor, tile by tile"
                raise _refused(role, what, f"for {loop.variable}", "Access.DESCRIPTOR, from k = 0 on in whole tiles")
            found.add(most)
    if len(found) != 1 or 0 in found:
        raise _refused(role, "operands of unequal extents along k", f"for {loop.variable}", "tiles of one extent")
    return found.pop()


def whole(extent: Number, sizes: Sizes) -> int:
    """The extent of a tile that may stick out of its buffer; 0 if it is none."""
    found = replaced(extent, sizes)
    if isinstance(found, int):
        return found
    numbers = [one for one in found.args if isinstance(one, int)] if found.op == "min" else []
    return min(numbers, default=0)


def check_tile(role: Role, product: Product, dtypes: set[str]) -> None:
    """Raises NotPrinted for tiles that the tensor cores of a warpgroup do not multiply."""
    if product.rows % ROWS or not LEAST_COLS <= product.cols <= MOST_COLS:
        legal = f"a multiple of {ROWS} rows and {LEAST_COLS} to {MOST_COLS} columns"
        raise _refused(role, f"a product in ping-pong of {product.rows} x {product.cols}", product.result, legal)
    if len(dtypes) != 1 or not dtypes <= set(TENSOR_CORES):
        what = f"a product in ping-pong of {' and '.join(sorted(dtypes))}"
        raise _refused(role, what, product.result, f"both operands {' or '.join(TENSOR_CORES)}")
