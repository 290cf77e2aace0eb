"""Values of the user that are called as buffers of states are: each keeps its own memory."""

from __future__ import annotations

import lowering
import tilelink
import topologies
from tests.pipeline.attention_specs import sizes_of
from tests.pipeline.fold_specs import cross_entropy
from tilelink import Overlap, Shard, Tensor, dims
from tilelink.runtime.run import run_emulated

B, S, Q, G, D, T, V = dims("B S Q G D T V")
SIZES = {"B": 1, "S": 64, "Q": 4, "G": 2, "D": 16, "T": 16, "V": 64}


def runs(operator: Overlap, pins: dict[str, str]) -> bool:
    schedule = operator.plan_for(topologies.load("h100-nvswitch", 2), sizes_of(operator, SIZES), "bf16", pins)
    return run_emulated(schedule, lowering.emit(schedule), calls=2).equal


def test_logarithms_of_parts() -> None:
    @tilelink.overlap
    def prefill(
        q: Tensor(B, S, Q, D, placement=Shard(1)),  # type: ignore[valid-type]
        out_logs: Tensor(B, S, G, D, placement=Shard(1)),  # type: ignore[valid-type]
        v: Tensor(B, S, G, D, placement=Shard(1)),  # type: ignore[valid-type]
    ) -> Tensor:
        return tilelink.attention(q, tilelink.all_gather(out_logs, dim=1), tilelink.all_gather(v, dim=1))

    assert runs(prefill, {"out.compute": "library", "mover": "CopyEngine()"})


def test_states_of_decode() -> None:
    @tilelink.overlap
    def decode(
        out_means: Tensor(B, Q, D),  # type: ignore[valid-type]
        out_logs: Tensor(B, S, G, D, placement=Shard(1)),  # type: ignore[valid-type]
        v: Tensor(B, S, G, D, placement=Shard(1)),  # type: ignore[valid-type]
    ) -> Tensor:
        return tilelink.all_reduce(tilelink.attention(out_means, out_logs, v))

    assert runs(decode, {})


def test_states_of_a_fold() -> None:
    @tilelink.overlap
    def loss(
        out_top: Tensor(T, V, placement=Shard(1)),  # type: ignore[valid-type]
        out_weight_state: Tensor(T, dtype="int32"),  # type: ignore[valid-type]
    ) -> Tensor:
        found, _ = cross_entropy(out_top, out_weight_state)
        return tilelink.all_reduce(found)

    assert runs(loss, {})
