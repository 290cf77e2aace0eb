"""docs/primitives.md: a row for each primitive, of what `primitive_facts.py` finds."""

from __future__ import annotations

from collections.abc import Callable

from tests.docs import primitive_facts as facts
from tests.docs.primitives import PRIMITIVES, Primitive

_Row = Callable[[Primitive], tuple[str, ...]]
NONE = "–"

_INTRO = """# Primitives

Every primitive of the programming model: which steps of a schedule stand in its place, how emitted files say it, what it
means in the emulator, and what runs it. The page is written by `pytest --update-golden tests/docs/test_primitives.py`: statements
are cut out of emitted files (examples 01 to 03, one schedule for each mover and transfer), meanings are docstrings, and
that tests, compiled kernels and checks on GPUs call the primitive is read from their source.

Ranks of one node address each other's memory, so a schedule moves bytes by stores, loads and copies, and orders them by
signals. "–" in the column of a target means that no file emitted for it says so. A file of one's own may still call the
primitive: under the compiler of Triton-distributed, on stock Triton through the shim, and in the emulator.

"""
_SCHEDULE = """## In a schedule, in emitted files, in the emulator

"AMD:" stands where a file for AMD differs.

"""
_RUNS = """
## What runs it

"Emulated" names one test of several that runs a kernel with the primitive on emulated ranks and compares values, or has the
race detector watch. "Compiled" is stock Triton for sm_90, to a binary. Checks on GPUs are those of
`tilelink/compat/check`, all equal unless a row says otherwise; every call is in
{results}.

"""
_SHIM = """
## In the dialect, and on stock Triton

Signatures are those of the API data, which the shim is checked against. Variants (for a warp, a block, a width) mean the
same.

"""


def page() -> str:
    """The whole page."""
    files = (f"`{path.relative_to(facts.ROOT)}` ({machine})" for machine, path in facts.RESULTS.items())
    schedule = _table(("primitive", "in steps", "stock Triton", "Triton-distributed", "in the emulator"), _schedule_row)
    runs = _table(("primitive", "emulated", "compiled", "checks on GPUs"), _runs_row)
    shim = _table(("primitive", "signature", "vendors", "on stock Triton, through the shim"), _shim_row)
    return _INTRO + _SCHEDULE + schedule + _RUNS.format(results=" and ".join(files)) + runs + _SHIM + shim


def _table(head: tuple[str, ...], row: _Row) -> str:
    lines = [head, tuple("---" for _ in head), *((f"`{one.name}`", *row(one)) for one in PRIMITIVES)]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n" for cells in lines)


def _schedule_row(one: Primitive) -> tuple[str, ...]:
    triton = facts.spelled(one.triton, "triton")
    distributed = facts.spelled(one.distributed, "triton-distributed")
    amd = facts.spelled(one.distributed, "triton-distributed", "amd")
    both = _code(distributed) + (f" AMD: {_code(amd)}" if amd and amd != distributed else "")
    return (one.schedule, _code(triton), both, facts.said(facts.emulated(one)))


def _runs_row(one: Primitive) -> tuple[str, ...]:
    results = facts.on_gpus()
    path, _, test = one.test.partition("::")
    compiled = ", ".join(_code(name) for name in facts.tests_of(one, facts.COMPILED)[:2])
    outcomes = {name: results.get(name, "not run yet") for name in facts.checks_of(one)}
    checks = "; ".join(
        f"{found}: {', '.join(name for name in outcomes if outcomes[name] == found)}"
        for found in dict.fromkeys(outcomes.values())
    )
    return (f"`{path.removeprefix('tests/')}::{test}`", compiled, checks or one.not_on_gpus)


def _shim_row(one: Primitive) -> tuple[str, ...]:
    first, *others = facts.functions(one)
    signature = _code(first.text()) + (f" and {len(others)} variant{'s' * (len(others) > 1)}" if others else "")
    vendors = dict.fromkeys(vendor.value for function in (first, *others) for vendor in function.vendors)
    return (signature, ", ".join(vendors), facts.said(facts.shimmed(one)))


def _code(text: str) -> str:
    return f"`{text}`" if text else NONE
