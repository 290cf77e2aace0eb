"""Programs that share an SM have so few registers that all of them fit."""

from __future__ import annotations

import pytest

from lowering.host.gpu_fabric import GpuStream


@pytest.mark.parametrize(
    ("per_sm", "warps", "most"), [(4, 8, 64), (8, 4, 64), (2, 8, 128), (3, 8, 80), (2, 4, None), (1, 8, None)]
)
def test_registers_of_a_thread_are_limited_where_programs_share_an_sm(
    per_sm: int, warps: int, most: int | None
) -> None:
    found = GpuStream.most_registers(per_sm, {"num_warps": warps})
    assert found == ({} if most is None else {"maxnreg": most})
    assert most is None or per_sm * warps * 32 * most <= 65536
