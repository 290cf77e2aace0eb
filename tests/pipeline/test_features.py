"""Every row of the table of features: planned, printed, proved, emulated, compiled, and planned without pins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import lowering
import topologies
from lowering.targets import TARGETS
from tests.pipeline.feature import Feature, Unpinned
from tests.pipeline.features import FEATURES, planned
from tests.pipeline.file_checks import bare_numbers, cited_elsewhere, undefined, unused
from tests.pipeline.workloads import STOCK_FIRST
from tilelink.ir.schedule import Schedule
from tilelink.planner.aliases import without_aliases
from tilelink.proof.verify import verify
from tilelink.runtime.aot import compile_launch, record
from tilelink.runtime.load import load_source
from tilelink.runtime.run import run_emulated

MACHINES = {"sm_90": "h200-nvswitch", "gfx942": "mi300x-full-mesh"}


def case(*values: object, name: str, quick: bool) -> Any:
    shown = "-".join([name, *map(str, values[1:])])
    return pytest.param(*values, id=shown, marks=[] if quick else [pytest.mark.slow])


ROWS = [case(name, name=name, quick=row.quick) for name, row in FEATURES.items()]


def runs() -> Iterator[Any]:
    """Row, number of ranks, dtype, target: a quick row is run once in the quick suite. A target is another spelling of the same
    steps, so that those behind the first one run on the first number of ranks, with the first dtype."""
    for name, row in FEATURES.items():
        first = (row.ranks[0], row.dtypes[0])
        for ranks in row.ranks:
            for dtype in row.dtypes:
                for target in TARGETS if (ranks, dtype) == first else TARGETS[:1]:
                    one = (ranks, dtype, target)
                    yield case(name, *one, name=name, quick=row.quick and one == (*first, TARGETS[0]))


def builds() -> Iterator[Any]:
    """Row and architecture: files of rows with sizes of real layers are compiled for both vendors' GPUs."""
    for name, row in FEATURES.items():
        for arch in MACHINES if row.real else ("sm_90",):
            yield case(name, arch, name=name, quick=row.quick and bool(row.ptx))


def unpinned() -> Iterator[Any]:
    for name, row in FEATURES.items():
        for number, one in enumerate(row.unpinned):
            yield case(name, number, name=name, quick=one.quick)


def matches(patterns: tuple[str, ...], text: str) -> str:
    """The first expression that does not match behind where the one before it has, or nothing."""
    at = 0
    for pattern in patterns:
        found = re.compile(pattern).search(text, at)
        if found is None:
            return pattern
        at = found.end()
    return ""


@pytest.mark.parametrize("name", ROWS)
def test_the_schedule_has_it(name: str) -> None:
    row, schedule = FEATURES[name], planned(name)
    shown = str(schedule)
    assert row.steps or row.never or row.source  # a row says what there is to see
    assert matches(row.steps, shown) == "", shown
    assert [pattern for pattern in row.never if re.search(pattern, shown)] == [], shown
    assert Schedule.from_json(schedule.to_json()) == schedule


@pytest.mark.parametrize("name", ROWS)
def test_it_is_proved(name: str) -> None:
    proof = verify(planned(name))
    assert proof.proved, "\n".join(proof.lines())


@pytest.mark.parametrize(("name", "ranks", "dtype", "target"), list(runs()))
def test_it_gives_what_torch_gives(name: str, ranks: int, dtype: str, target: str) -> None:
    row, schedule = FEATURES[name], planned(name, ranks, dtype)
    result = run_emulated(schedule, lowering.emit(schedule, target), calls=row.calls, seed=ranks)
    assert result.equal, f"{result.lines()}\n{schedule}"


@pytest.mark.parametrize("target", STOCK_FIRST)
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.quick(8)
def test_the_file_has_it_and_explains_itself(name: str, target: str) -> None:
    row, source = FEATURES[name], lowering.emit(planned(name), target)
    stock = target == TARGETS[0]
    assert [pattern for pattern in row.source if stock and not re.search(pattern, source)] == []
    assert [text for text in row.stock_only if (text in source) is not stock] == []
    assert cited_elsewhere(source) == set()
    assert unused(source) == set()
    assert bare_numbers(source) == []
    assert undefined(source) == ""


@pytest.mark.parametrize(("name", "arch"), list(builds()))
def test_it_compiles(name: str, arch: str) -> None:
    """Ahead of time, without a GPU; kernels fit the shared memory of the machine that they are planned for."""
    row = FEATURES[name]
    topology = MACHINES[arch] if row.real else row.topology
    schedule = at_full_size(row, topology) if row.real else planned(name)
    limit = topologies.load(topology).gpu.shared_bytes_per_sm
    launches = record(load_source(lowering.emit(schedule), "feature"), schedule.num_ranks)
    kernels = {launch.kernel.__name__: launch for launch in launches}  # type: ignore[attr-defined]
    compiled = [compile_launch(launch, arch) for launch in kernels.values()]
    assert compiled
    assert all(one.metadata.shared <= limit and {"cubin", "hsaco"} & set(one.asm) for one in compiled)
    if row.ptx and arch == "sm_90":
        assert sum(all(text in one.asm["ptx"] for text in row.ptx) for one in compiled) == 1


def at_full_size(row: Feature, topology: str) -> Schedule:
    assert row.real is not None
    pins = {**row.pins, **row.real.pins}
    return row.operator.plan_for(topologies.load(topology, 4), row.real.sizes, row.dtypes[0], pins)


@pytest.mark.parametrize(("name", "number"), list(unpinned()))
def test_it_is_planned(name: str, number: int) -> None:
    """Where no pin asks for it; and what else could be pinned is expected to take longer."""
    row = FEATURES[name]
    where = row.unpinned[number]
    schedule = plan_there(row, where, {})
    wanted = without_aliases(schedule.spec, topologies.load(where.topology, where.ranks), where.choices)
    assert wanted.items() <= dict(schedule.choices).items()
    assert matches(where.steps, str(schedule)) == "", str(schedule)
    if where.instead:
        assert schedule.predicted_us < where.ratio * plan_there(row, where, where.instead).predicted_us


def plan_there(row: Feature, where: Unpinned, pins: dict[str, str] | Any) -> Schedule:
    machine = topologies.load(where.topology, where.ranks)
    operator = where.operator or row.operator
    return operator.plan_for(machine, where.sizes, row.dtypes[0], {**where.pins, **pins})
