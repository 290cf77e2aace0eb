"""What is too large to plan: the cost model looks at every tile of a rank, so that time and memory grow with their number."""

from __future__ import annotations

from tilelink.errors import TooLargeToPlan
from tilelink.ir.spec import BoundSpec

MOST_ELEMENTS = 2**34  # of one value on one rank: 32 GiB of bf16, and planned in some ten seconds
MOST_TILES = 2**22  # of one loop on one rank; tiles of the largest shape are fewer for so many elements


def check_extent(spec: BoundSpec) -> None:
    """Every value is one that a rank can hold and the planner can go through. Raises TooLargeToPlan."""
    for value in (*spec.inputs, *(node.output for node in spec.nodes)):
        elements = 1
        for extent in value.local:
            elements *= extent
        if elements > MOST_ELEMENTS:
            raise TooLargeToPlan(
                function=spec.name,
                tensor=value.name,
                shape=", ".join(map(str, value.local)),
                size=f"{value.num_bytes / 2**30:,.0f}",
                most=f"{MOST_ELEMENTS:,}",
            )
