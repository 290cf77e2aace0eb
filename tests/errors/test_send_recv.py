"""Mistakes in send_recv: a distance that leads nowhere, and tensors of which ranks hold no parts of their own."""

from __future__ import annotations

from typing import Annotated

import pytest

import tilelink
import topologies
from tests.errors.blame import blamed_line
from tilelink import Partial, Replicate, Shard, Tensor, dims
from tilelink.errors import BadShift, NothingToSend
from tilelink.ir.placement import Placement

B, C = dims("B C")


def _sent(placement: Placement, by: int) -> tilelink.Overlap:
    def queue(x):  # type: ignore[no-untyped-def]
        return tilelink.send_recv(x, by=by)

    queue.__annotations__ = {"x": Annotated[Tensor, (B, C), placement]}
    return tilelink.overlap(queue)


@pytest.mark.parametrize("by", [0, 1.0, "1", True, None])
def test_a_distance_that_is_none(by: int) -> None:
    with pytest.raises(BadShift) as caught:
        _sent(Shard(0), by)
    assert caught.value.facts["by"] == by
    assert "by=1" in str(caught.value)
    assert "tilelink.send_recv(x, by=by)" in blamed_line(caught.value, __file__)


@pytest.mark.parametrize(("by", "ranks"), [(4, 4), (-2, 2), (6, 3)])
def test_a_distance_that_leads_back(by: int, ranks: int) -> None:
    operator = _sent(Shard(0), by)
    with pytest.raises(BadShift) as caught:
        operator.plan_for(topologies.load("laptop-switch", ranks), {"B": 12, "C": 8})
    assert f"on {ranks} ranks" in str(caught.value)
    assert f"1 to {ranks - 1}" in str(caught.value)
    assert "tilelink.send_recv(x, by=by)" in blamed_line(caught.value, __file__)


@pytest.mark.parametrize("placement", [Replicate(), Partial()], ids=str)
def test_nothing_to_send(placement: Placement) -> None:
    with pytest.raises(NothingToSend) as caught:
        _sent(placement, 1)
    assert (caught.value.facts["tensor"], caught.value.facts["placement"]) == ("x", placement)
    assert "Shard(dim)" in str(caught.value)
    assert "tilelink.send_recv(x, by=by)" in blamed_line(caught.value, __file__)


@pytest.mark.parametrize("placement", [Shard(0), Shard(1)], ids=str)
def test_the_placement_stays(placement: Placement) -> None:
    spec = _sent(placement, 1).spec
    assert [node.output.placement for node in spec.nodes] == [placement]
    assert spec.nodes[0].output.shape == spec.inputs[0].shape
