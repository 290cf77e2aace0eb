"""Names of dims in the steps of planned schedules: what they are, that printed code follows them when a choice is edited."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

import topologies
from lowering.steps.planned import lower_planned
from tests.elaborate.test_meaning import CASES, sampled
from tests.pipeline.workloads import load
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.nodes import ComputeRole
from tilelink.ir.schedule import Schedule as Planned
from tilelink.proof.happens_before.check import checked
from tilelink.runtime.run import run_emulated
from tilelink.schedule.errors import DerivedDim, NotAMultiple, UnknownDim
from tilelink.schedule.index import Index, Number, names_in, subindices, value_of
from tilelink.schedule.instance import instantiated, with_indices, with_origins
from tilelink.schedule.memory import Dim
from tilelink.schedule.printing import printed
from tilelink.schedule.walk import all_steps, indices

GEMM_RS = "03_gemm_rs.py:gemm_rs"


def gemm_rs(sizes: dict[str, int], ranks: int = 2, **pins: str) -> Planned:
    machine = topologies.load("laptop-switch", ranks)
    return load(GEMM_RS).plan_for(machine, sizes, "bf16", {"algorithm": "direct", "compute": "triton", **pins})


def some(seed: int, number: int) -> Iterator[Planned]:
    drawn = random.Random(seed)
    for name, ranks, topology in drawn.sample(CASES, number):
        try:
            yield sampled(name, ranks, topology, drawn.randrange(3))
        except (LookupError, IndexError):
            continue  # a spec that has no schedule there


def test_derived_dims_are_what_the_planner_has() -> None:
    for planned in some(1, 20):
        sizes = elaborated(planned).sizes
        roles = [kernel.compute for kernel in planned.kernels() if kernel.compute is not None]
        for role in roles:
            _as_planned(role, f"{role.name}_".upper() if len(roles) > 1 else "", sizes)
        for exchange in planned.exchanges:
            for what, value in (("ROWS", exchange.rows), ("CHUNK_ROWS", exchange.chunk_rows)):
                assert sizes.get(f"{exchange.name}_{what}".upper(), value) == value


def _as_planned(role: ComputeRole, before: str, sizes: dict[str, int]) -> None:
    expected = {"NUM_TILES": role.num_tiles, "PROGRAMS": role.programs, f"GROUP_{role.order.major}": role.order.group}
    for axis in role.axes:
        expected |= {f"{axis.name}_SIZE": axis.extent, f"{axis.name}_TILES": axis.tiles, f"TILE_{axis.name}": axis.tile}
    for name, value in expected.items():
        assert sizes.get(f"{before}{name}".upper(), value) == value


@pytest.mark.slow
def test_names_make_no_difference() -> None:
    """Numbers that know their names are the numbers, also when names are put in and replaced again."""
    for planned in some(2, 12):
        named = elaborated(planned)
        numbers = instantiated(named)
        assert not numbers.dims and instantiated(with_origins(named)) == numbers
        names = {dim.name for dim in named.dims}
        left = {one.op for step in all_steps(numbers) for index in indices(step) for one in subindices(index)}
        assert not names & left
        assert checked(named) == checked(numbers)


def test_every_dim_is_used_and_what_code_relies_on_holds() -> None:
    for planned in some(3, 20):
        named = elaborated(planned)
        found = set[str]()

        def noted(index: Number, found: set[str] = found) -> Number:
            found |= names_in(index)
            return index

        with_indices(replace(named, dims=()), noted)
        for dim in reversed(named.dims):
            found |= names_in(dim.size) if dim.name in found else frozenset()
            assert dim.name in found, f"{dim.name} of {planned.choices}"
            assert all(named.sizes[dim.name] % value_of(by, named.sizes) == 0 for by in dim.multiples)


def test_other_values() -> None:
    """Choices and sizes may be others; what follows from them, and what the steps rely on, may not."""
    named = elaborated(gemm_rs({"M": 64, "K": 64, "N": 64}, mover="Fused()", transfer="push", tile="16x16x16/4w1s"))
    half = instantiated(named, {"PROGRAMS": 2, "TILE_N": 32})
    assert checked(half).refutation is None and half != instantiated(named)
    for wrong, sizes in ((UnknownDim, {"TILE": 16}), (DerivedDim, {"N_TILES": 3}), (NotAMultiple, {"TILE_N": 48})):
        with pytest.raises(wrong):
            instantiated(named, sizes)


def test_dims_print_as_they_follow() -> None:
    dims = (Dim("M", 48), Dim("TILE_M", 16, "rows of a tile", chosen=True), Dim("TILES", Index("M") // Index("TILE_M")))
    named = elaborated(gemm_rs({"M": 64, "K": 64, "N": 64}))
    lines = printed(replace(named, dims=(*named.dims, *dims))).splitlines()
    assert "  TILE_M = 16  # rows of a tile" in lines and "  TILES = M // TILE_M = 3" in lines


# ---- edited files --------------------------------------------------------------------------------------------------------


def edits(text: str) -> Iterator[tuple[str, str]]:
    """(constant, the file with another value for it) for each choice of a file."""
    section = re.search(r"# choices of the planner.*?\n(.*?)\n\n", text, re.S)
    for line in section.group(1).splitlines() if section else ():
        found = re.match(r"(\w+) = tl\.constexpr\((\d+)\)", line)
        assert found is not None, line
        name, value = found.group(1), int(found.group(2))
        power = "TILE" in name or "BLOCK" in name
        for other in sorted({value * 2, value // 2, value + 1}):
            if other >= (16 if "TILE" in name else 1) and not (power and other & (other - 1)):
                yield name, text.replace(line, line.replace(f"({value})", f"({other})"))


def wrong_edits(planned: Planned) -> list[str]:
    """Choices whose other values give wrong results. What does not fit is refused: by an assert, or for the machine."""
    found = []
    for name, text in edits(lower_planned(planned)):
        try:
            equal = run_emulated(planned, text, calls=2).equal
        except AssertionError:
            continue
        except ValueError as error:
            assert "this schedule is for" in str(error)
            continue
        found += [] if equal else [name]
    return found


@pytest.mark.slow
def test_a_file_follows_an_edited_choice() -> None:
    sizes = {"M": 128, "K": 64, "N": 96}
    pins = {"mover": "Fused()", "transfer": "push", "tile": "16x32x16/4w1s", "chunks": "2", "group": "1"}
    planned = gemm_rs(sizes, 2, **pins)
    text = lower_planned(planned)
    names = {name for name, _ in edits(text)}
    assert {"TILE_M", "TILE_N", "TILE_K", "GROUP_M", "PROGRAMS", "Y_PARTS_CHUNKS"} <= {
        name.removeprefix("Y_") if "TILE" in name or "GROUP" in name or name == "Y_PROGRAMS" else name for name in names
    }
    assert wrong_edits(planned) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_files_follow_edited_choices(seed: int) -> None:
    for planned in some(10 + seed, 2):
        assert wrong_edits(planned) == []
