"""Inputs of operators with experts, what they should give by definition, and ids that change between batches."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.bench.fakes import FakeDevice, doubling, problem, record, result, row_result
from tests.pipeline.expert_specs import by_definition
from tilelink.bench.contender import Setting
from tilelink.bench.expert_baselines import expert_baselines
from tilelink.bench.grouped_experts import by_experts, placed, shown, sums
from tilelink.bench.operators import declaration
from tilelink.bench.problem import changes, make_activations, make_inputs, reference
from tilelink.bench.record import ExpertFacts, read
from tilelink.bench.routings import DRAWINGS, Routing
from tilelink.bench.rows import WITH_EXPERTS, Operator, Row, select
from tilelink.ir.placement import Replicate, Shard
from tilelink.ir.spec import bind
from tilelink.measuring.contender import Contender, Inputs, Kind, Mode
from tilelink.measuring.device import Call, Outputs
from tilelink.measuring.measure import Options, measure_row

CPU, RANKS = torch.device("cpu"), 2


def small(operator: Operator, routing: Routing = Routing.HOT4) -> Row:
    (row,) = select([operator], ["8x16x12x6x3"], "fp32", RANKS, [routing])
    return row


def every_rank(row: Row, seed: int = 3) -> list[Inputs]:
    return [make_inputs(row, rank, RANKS, seed, CPU) for rank in range(RANKS)]


def whole(row: Row, ranks: list[Inputs]) -> list[torch.Tensor]:
    """Inputs put together as the declaration places them, in float64."""
    spec = bind(declaration(row.operator).spec, row.sizes, RANKS, row.dtype)
    found = []
    for value, parts in zip(spec.inputs, zip(*ranks, strict=True), strict=True):
        if isinstance(value.placement, Replicate):
            assert all(torch.equal(part, parts[0]) for part in parts)
            found.append(parts[0])
        else:
            assert isinstance(value.placement, Shard)
            found.append(torch.cat(parts, value.placement.dim))
    return [one if one.dtype == torch.int32 else one.double() for one in found]


@pytest.mark.parametrize("operator", WITH_EXPERTS, ids=lambda one: one.value)
def test_the_reference_is_the_definition(operator: Operator) -> None:
    """Token by token, on whole tensors."""
    row = small(operator)
    ranks = every_rank(row)
    wanted = by_definition(operator.value, whole(row, ranks)).chunk(RANKS, 1 if operator is Operator.AG_MOE else 0)
    for rank in range(RANKS):
        found = reference(row, ranks, rank)
        torch.testing.assert_close(found.value, wanted[rank], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("operator", WITH_EXPERTS, ids=lambda one: one.value)
def test_fresh_activations_have_ids_that_nothing_is_timed_with(operator: Operator) -> None:
    row = small(operator)
    inputs = make_inputs(row, 1, RANKS, 3, CPU)
    fresh = make_activations(row, 1, RANKS, 4, CPU)
    assert len(fresh) == (2 if operator is Operator.AG_MOE else 3)
    assert all(one.shape == other.shape and one.dtype == other.dtype for one, other in zip(fresh, inputs, strict=False))
    assert not any(torch.equal(one, other) for one, other in zip(fresh, inputs, strict=False))
    assert not any(torch.equal(fresh[1], row.ids(number, 1, RANKS)) for number in range(DRAWINGS))


@pytest.mark.parametrize("operator", WITH_EXPERTS, ids=lambda one: one.value)
def test_ids_change_in_place_and_drawings_stay(operator: Operator) -> None:
    row = small(operator)
    inputs = make_inputs(row, 1, RANKS, 3, CPU)
    change = changes(row, 1, RANKS, inputs)
    assert change is not None
    assert torch.equal(inputs[1], row.ids(0, 1, RANKS))
    for number in (1, 2, 3, 4, 6):
        change(number)
        assert torch.equal(inputs[1], row.ids(number % DRAWINGS, 1, RANKS))
    inputs[1].fill_(-1)
    change(0)
    assert inputs[1].min() >= 0


def test_weights_of_a_token_add_up_to_one_and_every_rank_has_the_same_where_it_has_all_tokens() -> None:
    first, second = every_rank(small(Operator.MOE_RS))
    assert torch.equal(first[2], second[2])
    torch.testing.assert_close(first[2].sum(1), torch.ones(8))
    first, second = every_rank(small(Operator.EP_LAYER))
    assert not torch.equal(first[2], second[2])


def test_a_plain_row_changes_nothing() -> None:
    (row,) = select([Operator.GEMM_RS], ["8x16x12"], "fp32", RANKS)
    assert changes(row, 0, RANKS, make_inputs(row, 0, RANKS, 3, CPU)) is None


def test_each_batch_comes_behind_a_change_and_rounds_begin_with_other_ones() -> None:
    device, changed, rounds = FakeDevice(), list[int](), list[list[int]]()

    def note(step: str, contender: str) -> None:
        rounds.append(list(changed))  # of the step before
        changed.clear()

    contenders = [doubling(device, name, 5000.0) for name in "ab"]
    measure_row(device, replace(problem(), change=changed.append), contenders, Options(rounds=3), note)
    found = [numbers for numbers in rounds if numbers]
    assert found == [[0, 1, 2, 3]] * 2 + [[1, 2, 3, 4]] * 2 + [[2, 3, 4, 5]] * 2  # one that is not timed, then three


def test_what_a_contender_shows_is_compared() -> None:
    """Results in another order, with the order beside them, which is no number to fill with nan."""
    device = FakeDevice()

    def prepare(setting: Setting) -> Call:
        out = torch.zeros(1)

        def call() -> Outputs:
            device.clock_us += 9.0
            out.copy_(setting.x * 2)
            return out, torch.tensor([0])

        return call

    right = Contender("right", Kind.BASELINE, Mode.GRAPH, prepare, shown=shown)
    (found,) = measure_row(device, problem(), [right], Options(rounds=3), lambda step, name: None)
    assert (found.failure, found.median_us) == ("", 9.0)


def test_order_of_experts() -> None:
    ids = torch.tensor([[2, 0], [0, 1], [2, 0]])
    order, ends = by_experts(ids, 4)
    assert order.tolist() == [1, 2, 5, 3, 0, 4]  # stable
    assert ends.tolist() == [3, 4, 6, 6]
    rows = torch.arange(6.0)[:, None]
    assert torch.equal(placed(rows[order], order), rows)


def test_sums_leave_out_what_is_of_no_local_expert() -> None:
    ids, weights = torch.tensor([[0, 2], [3, 1]]), torch.tensor([[0.5, 0.25], [1.0, 2.0]])
    rows = torch.tensor([[float("nan")], [8.0], [3.0], [float("nan")]])
    assert sums(rows, ids, weights, 2, 2).tolist() == [[2.0], [3.0]]


def test_a_package_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for spec, failure in ((None, "missing: no module triton_kernels here"), (object(), "")):
        monkeypatch.setattr("importlib.util.find_spec", lambda name, spec=spec: spec)
        one = next(one for one in expert_baselines(Operator.EP_LAYER) if one.name == "triton_kernels")
        assert one.failure.startswith(failure) and bool(one.failure) == bool(failure)
    assert "triton_kernels" not in {one.name for one in expert_baselines(Operator.AG_MOE)}


def test_results_with_experts_are_written_and_read(tmp_path: Path) -> None:
    facts = ExpertFacts(128, 8, "zipf", 0.61, 40)
    row = replace(row_result("ep_layer", "qwen3-30b-a3b-m16", result("planned", 5.0, "ours")), experts=facts)
    assert row.key == "ep_layer qwen3-30b-a3b-m16 zipf bf16"
    written = record(row, row_result("mlp", "llama3-8b"))
    written.write(tmp_path / "r.json")
    assert read(tmp_path / "r.json") == written
    data = json.loads((tmp_path / "r.json").read_text())
    for one in data["rows"]:
        del one["experts"]  # a file of before
    (tmp_path / "r.json").write_text(json.dumps(data))
    assert read(tmp_path / "r.json").rows[0].experts is None
