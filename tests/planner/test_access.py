"""How tiles are loaded: through a descriptor where its coordinates, which have 32 bits, reach every row."""

from __future__ import annotations

import pytest

import topologies
from tests.planner.operators import gemm_ar
from tilelink.ir.choices import NONE
from tilelink.ir.expand import expand
from tilelink.ir.spec import bind
from tilelink.ir.steps import Access
from tilelink.planner.access import Space, access_of
from tilelink.planner.layout import Problem
from tilelink.planner.structure import Structure


@pytest.mark.parametrize(("rows", "access"), [(2**28, Access.DESCRIPTOR), (2**29, Access.POINTER)])
def test_rows_of_the_parts_of_four_ranks(rows: int, access: Access) -> None:
    spec = bind(gemm_ar.spec, {"M": rows, "K": 64, "N": 64}, 4, "bf16")
    graph = expand(spec, {})
    structure = Structure(spec, topologies.load("h200-nvswitch", 4), (), frozenset(), (), graph, ())
    problem = Problem(structure, NONE)
    space = Space({"m": rows, "n": 64}, {}, {"m": 128, "n": 64})
    assert access_of(problem, "y", ("m", "n"), space, (rows, 64)) is access
