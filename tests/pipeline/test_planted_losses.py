"""Losses that are planted in outputs are seen, right results are not refused: by `run`, by emitted files, and by `bench`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pytest
import torch

import lowering
import topologies
from benchmarks import planted_losses
from benchmarks.planted_losses import RESULTS, TEXTS, Subject, lossy, seen_by_bench, seen_by_file, seen_by_run
from lowering.selfcheck.compare import Comparison
from lowering.selfcheck.near import Near
from tests.bench.fakes import FakeDevice
from tilelink.adversary.subject import of_module
from tilelink.adversary.trials import Scenario, Trial, WrongResult, run_trial
from tilelink.bench import problem as bench_problem
from tilelink.bench.operators import declaration
from tilelink.bench.rows import Operator, Row
from tilelink.emulator import World
from tilelink.ir.schedule import Schedule
from tilelink.measuring import measure
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.run import run_emulated

RANKS = 2
CPU = torch.device("cpu")


def near_sum(x: torch.Tensor, w: torch.Tensor, ranks: int, dtype: torch.dtype) -> tuple[list[torch.Tensor], Near]:
    """Rounded summands of `x @ w` for `ranks` ranks, and what their sum should be."""
    parts = list(zip(Near(x).parts(ranks, 1), Near(w).parts(ranks, 0), strict=True))
    near = Near.sum([a.times(b).rounded(dtype) for a, b in parts]).rounded(dtype)
    return [(a.value.float() @ b.value.float()).to(dtype) for a, b in parts], near


def operands(m: int, k: int, n: int, dtype: torch.dtype, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(m, k, generator=generator).to(dtype),
        (torch.randn(k, n, generator=generator) * k**-0.5).to(dtype),
    )


def test_one_lost_piece_is_seen() -> None:
    """16 x 64 of 2048 x 4096 elements: the norm of the whole is off by no more than 1.1e-2 of it."""
    x, w = operands(2048, 32, 4096, torch.bfloat16)
    near = Near(x).times(Near(w)).rounded(torch.bfloat16)
    right = (x.float() @ w.float()).bfloat16()
    one = Comparison.of(right, near)
    assert one.equal and 0.5 < one.error <= 1 and one.elements == right.numel()
    lost = right.clone()
    lost[1600:1616, 640:704] = 0
    found = Comparison.of(lost, near)
    assert 950 < found.wrong <= 1024
    assert (found.block_rows, found.block_cols, found.block_wrong) == ((1600, 1615), (640, 703), found.wrong)
    assert found.rows[0] >= 1600 and found.rows[1] <= 1615 and found.cols[0] >= 640 and found.cols[1] <= 703
    assert "in rows 16" in found.text() and f"{found.wrong} of {right.numel()} elements" in found.text()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_summand_a_tile_or_a_row_is_seen(dtype: torch.dtype) -> None:
    """Of 8 ranks one summand of a piece is lost; a tile is that of other inputs; one row is that of another rank."""
    x, w = operands(8192, 64, 64, dtype)
    parts, near = near_sum(x, w, 8, dtype)
    right = torch.stack(parts).float().sum(0).to(dtype)
    assert Comparison.of(right, near).equal
    lost, stale, row = right.clone(), right.clone(), right.clone()
    lost[:16] = torch.stack(parts[:-1]).float().sum(0).to(dtype)[:16]
    assert Comparison.of(lost, near).wrong > 0.9 * 1024
    stale[128:256] = near_sum(*operands(8192, 64, 64, dtype, 1), 8, dtype)[1].value[128:256].to(dtype)
    assert Comparison.of(stale, near).wrong > 0.9 * 128 * 64
    row[5] = right[5 + 1024]
    found = Comparison.of(row, near)
    assert found.wrong > 0.9 * 64 and found.rows == (5, 5)


def test_what_counts_as_wrong() -> None:
    near = Near(torch.tensor([[1.0, -2.0, torch.nan, torch.inf]], dtype=torch.float64), torch.tensor([[0.1] * 4]))
    assert Comparison.of(torch.tensor([[1.05, -1.95, torch.nan, torch.inf]]), near).equal
    for column, value in enumerate([torch.nan, torch.inf, 1.0, -torch.inf]):
        wrong = torch.tensor([[1.0, -2.0, torch.nan, torch.inf]])
        wrong[0, column] = value
        found = Comparison.of(wrong, near)
        assert (found.wrong, found.cols, found.error) == (1, (column, column), torch.inf)
    anything = Near(torch.zeros(1, 2), torch.tensor([[torch.inf, torch.nan]]))
    assert Comparison.of(torch.tensor([[torch.nan, 7.0]]), anything).equal
    exact = Near(torch.tensor([1.0, 2.0]))
    assert Comparison.of(torch.tensor([1.0, 2.0]), exact).equal
    assert Comparison.of(torch.tensor([1.0, 2.0 + 1e-6]), exact).cols == (1, 1)
    with pytest.raises(ValueError, match=r"the result is \[3\] and should be \[2\]"):
        Comparison.of(torch.zeros(3), exact)


def planned(operator: Operator, row: Row) -> Schedule:
    pins = {"algorithm": "direct", "compute": "triton", "mover": "CopyEngine()", "transfer": "push"}
    pins |= {"tile": "32x64x32/4w1s", "prefetch": "no"}
    pins |= {"sum": "epilogue"} if operator is Operator.GEMM_RS else {}
    return declaration(operator).plan_for(topologies.load("laptop-switch", RANKS), row.sizes, "bf16", pins)


ROWS = {
    Operator.GEMM_RS: Row(Operator.GEMM_RS, "small", 64 * RANKS, 128, 32 * RANKS, "bf16"),
    Operator.AG_GEMM: Row(Operator.AG_GEMM, "small", 64 * RANKS, 32, 128 * RANKS, "bf16"),
}
PLANTED = [(operator, name) for operator in ROWS for name in TEXTS[operator]]


@pytest.mark.parametrize(("operator", "name"), PLANTED)
@pytest.mark.quick(2)
def test_run_names_what_is_lost_and_the_first_operation_that_is_off(operator: Operator, name: str) -> None:
    schedule = planned(operator, ROWS[operator])
    source = lowering.emit(schedule)
    result = run_emulated(schedule, TEXTS[operator][name](source))
    assert not result.equal
    assert [(one.call, one.rank, one.output) for one in result.differences] == [
        (call, rank, "out") for call in range(2) for rank in range(RANKS)
    ]
    # of AG+GEMM both parts of the rows have such a piece
    rows, pieces = ((0, 15), 1) if operator is Operator.GEMM_RS else ((0, 79), 2)
    for one in result.differences:
        assert one.rows == rows and one.cols == (0, 63) and 900 * pieces < one.wrong <= 1024 * pieces
    line = declaration(Operator.GEMM_RS).spec.nodes[0].output.location.line
    first = f"y [operators.py:{line}], in y_staged of rank 0" if "peer" in name else "out [operators.py:"
    assert f"first operation whose value is off: {first}" in result.first_off
    assert result.first_off in result.lines() and result.lines()[0].startswith("NOT equal: 2 emulated ranks, 2 calls")
    if operator is Operator.GEMM_RS and "peer" not in name:
        assert "(y_staged, y_parts before it: right)" in result.first_off


@pytest.mark.parametrize(("operator", "name"), PLANTED)
@pytest.mark.quick(1)
def test_verify_sees_it(operator: Operator, name: str) -> None:
    """By the check that the emitted file carries."""
    schedule = planned(operator, ROWS[operator])
    source = lowering.emit(schedule)
    trial = Trial(Scenario.CALLS, "oldest", calls=2)
    assert run_trial(of_module(load_source(source, "right"), "right"), trial).error is None
    error = run_trial(of_module(load_source(TEXTS[operator][name](source), "wrong"), "wrong"), trial).error
    assert isinstance(error, WrongResult)
    assert error.facts["output"] == "out" and "columns 0 to 63" in str(error)


@dataclass
class OneHost:
    """What rank 0 sees of emulated ranks that share a host: inputs that were made for any rank are those of the next call."""

    rank: int = 0
    num_ranks: int = RANKS
    device: torch.device = CPU
    is_loading: bool = False
    inputs: dict[int, list[torch.Tensor]] = field(default_factory=dict)

    def barrier(self) -> None: ...


def all_ranks(build: type, num_sms: int) -> type:
    """The operator of rank 0, whose calls are those of all ranks, and have ended when it returns."""

    class AllRanks:
        def __init__(self, host: OneHost) -> None:
            self.fabric = host
            self._world = World(RANKS, num_sms=num_sms, lazy_loading=True)
            self._operators = [build(fabric) for fabric in self._world.fabrics]
            for rank, operator in enumerate(self._operators):  # memory that holds nan before each call
                vars(self).update({f"{name}_{rank}": value for name, value in vars(operator).items()})

        def __call__(self, *inputs: torch.Tensor) -> torch.Tensor:
            listed = [list(inputs), *(self.fabric.inputs[rank] for rank in range(1, RANKS))]
            results = [operator(*given) for operator, given in zip(self._operators, listed, strict=True)]
            self._world.run()
            result: torch.Tensor = results[0]
            return result

    return AllRanks


def subject(operator: Operator, name: str, host: OneHost) -> Subject:
    """Right, or with a loss of this name. What its module makes for ranks is what the ranks get."""
    schedule = planned(operator, ROWS[operator])
    edit: Callable[[str], str] = TEXTS[operator].get(name, str)
    module = load_source(edit(lowering.emit(schedule)), schedule.name)
    make = module.make_inputs

    def make_inputs(rank: int, seed: int, device: torch.device) -> dict[str, torch.Tensor]:
        made: dict[str, torch.Tensor] = make(rank, seed, device)
        host.inputs[rank] = list(made.values())
        return made

    module.make_inputs = make_inputs  # type: ignore[attr-defined]
    build = all_ranks(operator_class(module), schedule.machine.num_sms)
    return Subject(name, schedule, module, lossy(build, RESULTS[name]) if name in RESULTS else build)


LOSSES = [(operator, name) for operator in ROWS for name in ("right", *TEXTS[operator], *RESULTS)]


@pytest.mark.parametrize(("operator", "name"), LOSSES)
@pytest.mark.quick(3)
def test_emitted_files_and_the_comparison_of_run_see_it(operator: Operator, name: str) -> None:
    host = OneHost()
    one = subject(operator, name, host)
    by_file, by_run = seen_by_file(one, host), seen_by_run(one, host)
    if name == "right":
        assert by_file == by_run == []
        return
    assert [facts["call"] for facts in by_file] == list(range(planted_losses.CALLS))
    assert by_run and by_run[-1]["call"] == 1
    assert all("elements are wrong, in rows" in facts["text"] for facts in (*by_file, *by_run))


@pytest.mark.parametrize("operator", list(planted_losses.CASES))
def test_what_is_pinned_on_gpus_is_legal(operator: Operator) -> None:
    row = planted_losses.rows(RANKS)[operator]
    declaration(operator).plan("h100-nvswitch", RANKS, "bf16", planted_losses.CASES[operator], None, **row.sizes)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[OneHost]:
    """Inputs that `bench` makes for any rank; a batch is one call."""
    host = OneHost()
    monkeypatch.setattr(measure, "calls_per_batch", lambda setting: 1)
    make_inputs, make_activations = bench_problem.make_inputs, bench_problem.make_activations

    def all_inputs(row: Row, rank: int, *rest: object) -> tuple[torch.Tensor, ...]:
        made = make_inputs(row, rank, *rest)  # type: ignore[arg-type]
        host.inputs[rank] = list(made)
        return made

    def activations(row: Row, rank: int, *rest: object) -> tuple[torch.Tensor, ...]:
        made = make_activations(row, rank, *rest)  # type: ignore[arg-type]
        host.inputs[rank] = [*made, *host.inputs[rank][len(made) :]]
        return made

    monkeypatch.setattr(bench_problem, "make_inputs", all_inputs)
    monkeypatch.setattr(bench_problem, "make_activations", activations)
    yield host


@pytest.mark.parametrize("operator", ROWS)
@pytest.mark.slow
def test_bench_sees_it(operator: Operator, recorded: OneHost) -> None:
    names = ["right", *TEXTS[operator], *RESULTS]
    each = [subject(operator, name, recorded) for name in names]
    failures = seen_by_bench(each, ROWS[operator], recorded, FakeDevice())
    assert failures.pop("right") == ""
    assert sorted(failures) == sorted(names[1:])
    assert all(text.startswith("wrong result before timing: rank 0: ") for text in failures.values()), failures


@pytest.mark.slow
def test_what_only_later_calls_lose_is_seen_by_bench(recorded: OneHost) -> None:
    """The first call is right, later ones have a tile of the call before, which had other activations."""
    right = subject(Operator.GEMM_RS, "right", recorded)

    def plant(out: torch.Tensor, before: torch.Tensor) -> None:
        if before.any():
            out[:16, :64] = before[:16, :64]

    late = replace(right, name="late", build=lossy(right.build, plant))
    failures = seen_by_bench([right, late], ROWS[Operator.GEMM_RS], recorded, FakeDevice())
    assert failures["right"] == ""
    assert failures["late"].startswith("wrong result after timing: rank 0: ")
