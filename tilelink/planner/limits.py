"""What is too large to plan: the cost model looks at every tile of a rank, so that time and memory grow with their number."""

from __future__ import annotations

from tilelink.errors import TooLargeToPlan
from tilelink.ir.spec import BoundSpec

MOST_ELEMENTS = 2**36  # of one value on one rank: 128 GiB of bf16, about what a GPU holds
MOST_TILES = 2**21  # of one loop on one rank: what 128x256 tiles cut so many elements into, planned in a minute


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
