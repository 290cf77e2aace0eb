"""The cases reach every kind of node, member of an enum and value of a flag that a schedule can have."""

from __future__ import annotations

import pytest

from tests.replay import surface
from tests.replay.cases import Case, cases
from tests.replay.coverage import features, possible
from tilelink.ir import calls, nodes, order, steps
from tilelink.planner.aliases import ALIASES

NEVER = {
    "CollectiveCall": "only its subclasses are launches",
    "PacketCollective.protocol=SIMPLE": "packets have another protocol",
    "SumPackets.protocol=SIMPLE": "as above",
    "StateMerge.protocol=SIMPLE": "as above",
    "SumPackets.protocol=LL128": "kernels of their own move lines",
    "StateMerge.protocol=LL128": "as above",
    "StateMerge.merged given": "numbers have names where text is made, behind the schedule",
    "Exchange.kind=REDUCE": "a relation of the library, which is no exchange",
    "Notify.place=HERE": "what is raised is at a peer",
    "Notify.place=OWN": "as above",
    "Notify.place=TOKEN": "peers are told of rows behind all tiles",
}
# cases which, between them, have all that cases have: the test need not plan every one
COVER = (
    "bench ag_gemm: few rows, h800-2-nodes x16, triton-distributed",
    "spec reduce_scaled: planned, h200-nvswitch x4, triton",
    "spec three: one launch, h200-nvswitch x4, triton",
    "bench ag_gemm: no prefetch, two an SM, h200-nvswitch x4, triton",
    "spec to_next: planned, h200-nvswitch x4, triton",
    "spec user_op_sums_what_is_gathered: copies, h200-nvswitch x4, triton",
    "bench ag_gemm: few rows, mi300x-full-mesh x8, triton",
    "bench gemm_ar: many rows, h100-nvswitch x4, triton",
    "bench ag_gemm: many rows, l20-pcie x2, triton",
    "bench gemm_ar: many rows, l20-pcie x8, triton",
    "bench mlp: many rows, l20-pcie@2 x16, triton",
    "bench gemm_rs: split along k, h200-nvswitch x4, triton",
    "bench gemm_ar: in place, SMs in, copies out, h200-nvswitch x4, triton",
    "bench gemm_rs: few rows, h200-nvswitch x4, triton",
    "torch a fused gate and up: planned, h200-nvswitch x4, triton",
    "bench ag_gemm: numbered words of tiles, h200-nvswitch x4, triton",
    "06_user_op.py:ag_squared_relu: library, h200-nvswitch x4, triton",
    "bench gemm_ar: few rows, h200-nvswitch x8, triton",
    "bench gemm_ar: two shots of words of tiles, h200-nvswitch x4, triton",
    "torch numbers: planned, h200-nvswitch x4, triton",
    "bench ag_gemm: many rows, mi300x-full-mesh x8, triton",
    "bench ag_gemm: few rows, laptop-switch x4, triton",
    "bench gemm_rs: many rows, b200-nvswitch x2, triton",
    "bench gemm_ar: one shot, h200-nvswitch x4, triton",
    "bench ag_gemm: numbered words, h200-nvswitch x4, triton",
    "bench gemm_rs: numbered words of tiles, h200-nvswitch x4, triton",
    "bench gemm_rs: library, chunk by chunk, h200-nvswitch x4, triton",
    "07_ag_moe.py:ag_moe: own tiles first, h200-nvswitch x4, triton",
    "08_moe_rs.py:moe_rs: many rows, h200-nvswitch x4, triton",
    "09_ep_layer.py:ep_layer: receiver, h200-nvswitch x4, triton",
    "09_ep_layer.py:ep_layer: needed rows, h200-nvswitch x4, triton",
    "09_ep_layer.py:ep_layer: needed over nodes, h800-2-nodes x16, triton-nvshmem",
    "09_ep_layer.py:ep_layer: placed rows, h200-nvswitch x4, triton",
    "07_ag_moe.py:ag_moe: columns, h200-nvswitch x4, triton",
    "bench gemm_rs: library, then fused pull, h200-nvswitch x4, triton",
    "13_prefill.py:prefill: cooperative, by heads, h200-nvswitch x2, triton",
    "13_prefill.py:prefill: cooperative, ragged, h200-nvswitch x2, triton",
    "13_prefill.py:prefill: keys by warps, h200-nvswitch x2, triton",
    "13_prefill.py:prefill: by library, part by part, h200-nvswitch x2, triton",
    "12_flash_decode.py:decode_and_project: with its projection, h200-nvswitch x2, triton",
    "12_flash_decode.py:merge: given states, h200-nvswitch x2, triton",
    "12_flash_decode.py:flash_decode: packets with numbers, h200-nvswitch x2, triton",
    "bench ag_gemm: puts of a stream, h800-2-nodes x16, triton-nvshmem",
    "bench ag_gemm: words by multicast, h200-nvswitch x4, triton",
    "bench gemm_ar: lines, h200-nvswitch x4, triton",
)


def test_about_250_cases_on_every_axis() -> None:
    found = cases()
    assert 200 <= len(found) <= 300
    assert {case.num_ranks for case in found} >= {2, 3, 4, 8, 16}
    assert {case.target for case in found} == {"triton", "triton-distributed", "triton-nvshmem"}
    assert {case.dtype for case in found} == {"bf16", "fp16", "fp32"}
    assert len({case.topology for case in found}) >= 8


def test_every_algorithm_is_pinned_or_planned() -> None:
    pinned = {value for case in cases() for name, value in case.pins if name.endswith("algorithm")}
    assert pinned >= {*ALIASES, "direct"}


@pytest.mark.slow
def test_all_kinds_of_nodes_and_values_occur() -> None:
    by_name = {case.name: case for case in cases()}
    found: set[str] = set()
    for name in COVER:
        found |= features(_schedule(by_name[name]))
    everything = possible((nodes, steps, calls, order))
    assert everything - found == set(NEVER)


def _schedule(case: Case) -> object:
    return surface.plan(case.operator, case.topology, case.num_ranks, dict(case.sizes), case.dtype, dict(case.pins))
