"""Mistakes in what `plan`, `emit` and the runtime are told: sizes, dtypes, ranks, topologies, pins, targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import pytest
import torch

import tilelink
from tests.errors.blame import blamed_line
from tests.planner.operators import ag_gemm, gemm_rs
from tilelink import CommSms, Shard, Tensor, dims
from tilelink.errors import (
    FabricUnavailable,
    IdlePin,
    IllegalPin,
    IllegalSize,
    MissingSize,
    NoLegalSchedule,
    NotDivisible,
    TargetNotForGpu,
    UnknownDtype,
    UnknownPin,
    UnknownSize,
    UnknownTarget,
)
from tilelink.runtime.run import run_cuda
from topologies import IllegalRanks, MalformedDescriptor, UnknownTopology, UnreadableDescriptor

if TYPE_CHECKING:
    from pathlib import Path

M, N, K = dims("M N K")
SIZES = {"M": 256, "K": 64, "N": 128}


@tilelink.overlap
def gather_and_multiply(x: Annotated[Tensor, (M, K), Shard(0)], w: Annotated[Tensor, (K, N), Shard(1)]) -> Tensor:
    return tilelink.matmul(tilelink.all_gather(x, dim=0), w)


@tilelink.overlap
def of_halves(x: Annotated[Tensor, (M / 2, K)]) -> Tensor:
    return tilelink.relu(x)


@tilelink.overlap
def in_fp8(x: Annotated[Tensor, (M, K), "fp8"]) -> Tensor:
    return tilelink.relu(x)


def _plan(**changes: Any) -> object:
    arguments: dict[str, Any] = {"topology": "laptop-switch", "num_ranks": 4, **SIZES, **changes}
    return gather_and_multiply.plan(**arguments)


def test_a_size_is_missing() -> None:
    with pytest.raises(MissingSize) as caught:
        gather_and_multiply.plan("laptop-switch", 4, M=256)
    assert caught.value.facts == {"function": "gather_and_multiply", "needed": "M, K, N", "missing": "K, N"}
    assert blamed_line(caught.value, __file__) == "@tilelink.overlap"
    assert "M, K, N" in str(caught.value)


def test_a_size_that_the_function_does_not_have() -> None:
    with pytest.raises(UnknownSize) as caught:
        _plan(n=128)
    assert caught.value.facts["name"] == "n"
    assert "Its sizes: M, K, N." in str(caught.value)
    assert blamed_line(caught.value, __file__) == "@tilelink.overlap"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (0, "it is zero"),
        (-256, "it is negative"),
        (256.0, "it is not an integer"),
        ("256", "it is not an integer"),
        (True, "it is not an integer"),
        (None, "it is not an integer"),
    ],
)
def test_a_size_that_is_none(value: object, reason: str) -> None:
    with pytest.raises(IllegalSize) as caught:
        _plan(M=value)
    assert caught.value.facts == {"name": "M", "value": value, "reason": reason}
    assert "Legal: integers from 1 to 2147418112." in str(caught.value)
    assert blamed_line(caught.value, __file__) == "@tilelink.overlap"


def test_more_rows_than_kernels_count() -> None:
    with pytest.raises(IllegalSize) as caught:
        of_halves.plan("laptop-switch", 2, M=2**32, K=16)
    assert (caught.value.facts["name"], caught.value.facts["value"]) == (M / 2, 2**31)
    assert "M / 2" in blamed_line(caught.value, __file__)


def test_an_expression_that_is_no_size() -> None:
    with pytest.raises(IllegalSize) as caught:
        of_halves.plan("laptop-switch", 2, M=255, K=16)
    assert caught.value.facts["name"] == M / 2
    assert caught.value.facts["reason"] == "it is not an integer"
    assert "M / 2" in blamed_line(caught.value, __file__)


@pytest.mark.parametrize(("size", "legal"), [(255, "252, 256"), (3, "4"), (254, "252, 256")])
def test_rows_that_ranks_do_not_divide(size: int, legal: str) -> None:
    with pytest.raises(NotDivisible) as caught:
        _plan(M=size)
    facts = caught.value.facts
    assert (facts["tensor"], facts["placement"], facts["size"], facts["num_ranks"]) == ("x", Shard(0), size, 4)
    assert facts["legal"] == legal
    assert f"Nearest legal M: {legal}." in str(caught.value)
    assert "x: Annotated[Tensor, (M, K), Shard(0)]" in blamed_line(caught.value, __file__)


@pytest.mark.parametrize("dtype", ["bf61", "fp8", "", torch.int8, None])
def test_unknown_dtype(dtype: object) -> None:
    with pytest.raises(UnknownDtype) as caught:
        _plan(dtype=dtype)
    assert caught.value.facts["dtype"] == dtype
    assert "Legal dtypes: bf16, fp16, fp32" in str(caught.value)
    if dtype == "bf61":
        assert "Did you mean 'bf16'?" in str(caught.value)


def test_unknown_dtype_of_a_tensor() -> None:
    with pytest.raises(UnknownDtype) as caught:
        in_fp8.plan("laptop-switch", 2, M=16, K=16)
    assert caught.value.facts["dtype"] == "fp8"
    assert '"fp8"' in blamed_line(caught.value, __file__)


def test_unknown_topology() -> None:
    with pytest.raises(UnknownTopology) as caught:
        _plan(topology="h200-nvswich")
    assert caught.value.facts["name"] == "h200-nvswich"
    assert "Did you mean 'h200-nvswitch'?" in str(caught.value)
    assert "laptop-mesh" in str(caught.value)


def test_topology_files(tmp_path: Path) -> None:
    with pytest.raises(UnreadableDescriptor) as unreadable:
        _plan(topology=str(tmp_path / "none.toml"))
    assert "h200-nvswitch" in str(unreadable.value.facts["legal"])
    file = tmp_path / "mine.toml"
    file.write_text("name = 'mine'\n[gpu\n")
    with pytest.raises(MalformedDescriptor) as malformed:
        _plan(topology=str(file))
    assert malformed.value.facts["file"] == str(file)
    assert str(malformed.value.facts["where"]).startswith("line 2")


@pytest.mark.parametrize("num_ranks", [0, 1, -4, 9, 2.0, "4", True])
def test_ranks_that_the_fabric_cannot_have(num_ranks: object) -> None:
    with pytest.raises(IllegalRanks) as caught:
        _plan(num_ranks=num_ranks)
    assert caught.value.facts["num_ranks"] == num_ranks
    assert caught.value.facts["topology"] == "laptop-switch"
    assert "Legal num_ranks: 2 to 8." in str(caught.value)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("movr", "mover"), ("x_ful.mover", "x_full.mover"), ("x_full.movre", "x_full.mover"), ("zzz", "")],
)
def test_unknown_pin(name: str, hint: str) -> None:
    with pytest.raises(UnknownPin) as caught:
        _plan(pin={name: "Fused()"})
    assert caught.value.facts["name"] == name
    assert (f"Did you mean {hint!r}?" in str(caught.value)) == bool(hint)
    for legal in ("mover", "transfer", "chunks", "nest", "tile", "group", "compute", "protocol"):
        assert f" {legal}," in str(caught.value)
    assert "matmul_out.tile" not in str(caught.value)
    assert "out.tile" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "legal"),
    [
        ("mover", "CommSms(0)", "Fused()"),
        ("mover", CommSms(8), "CommSms(4)"),  # laptop-switch has 8 SMs
        ("mover", "CommSms", "CopyEngine()"),
        ("x_full.transfer", "multimem", "push"),
        ("nest", "chunks", "chunk by chunk"),
        ("chunks", 0, "4"),
        ("chunks", -1, "4"),
        ("tile", "100x64x64/4w2s", "32x32x32/4w2s"),
        ("compute", "cublas", "library"),
        ("algorithm", "ring", "direct"),
        ("chunks", 1000, "4"),  # more than rows of a part
        ("chunks", "04", "4"),
        ("tile", "64x64x0/4w1s", "32x32x32/4w2s"),  # a matmul has steps along k
        ("prefetch", "library", "no"),
    ],
)
def test_illegal_pin(name: str, value: object, legal: str) -> None:
    with pytest.raises(IllegalPin) as caught:
        _plan(pin={name: value})
    assert caught.value.facts["name"] == name
    assert legal in str(caught.value.facts["legal"]).split(", ")
    assert f"Legal {name}: " in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("mover", "Fused", "Fused()"),
        ("mover", "fused()", "Fused()"),
        ("mover", "CopyEngine", "CopyEngine()"),
        ("mover", "CommSms(num_sms=4)", "CommSms(4)"),
        ("transfer", "Push", "push"),
        ("nest", "chunk-by-chunk", "chunk by chunk"),
        ("compute", "lib", "library"),
        ("algorithm", "Direct", "direct"),
        ("tail", "half", "halves"),
        ("compute", "zzz", ""),
    ],
)
def test_values_that_are_nearly_right(name: str, value: str, hint: str) -> None:
    with pytest.raises(IllegalPin) as caught:
        _plan(pin={name: value})
    assert (f"Did you mean {hint!r}?" in str(caught.value)) == bool(hint)


@pytest.mark.parametrize(
    ("name", "value", "applies"),
    [
        ("sum", "kernel", "sums of a reduce_scatter or an all_reduce"),
        ("out.sum", "epilogue", "sums of a reduce_scatter or an all_reduce"),
        ("slots", 4, "send_recv"),
        ("outputs", "reused", "an all_reduce whose result is an output"),
        ("count", "late", "matmuls whose tiles are sent"),
        ("loop", "own", "matmuls of one left operand"),
        ("out.mover", "Fused()", "here: x_full.mover"),
        ("x_full.tile", "64x64x64/4w4s", "here: out.tile"),
    ],
)
def test_pins_of_choices_that_the_spec_does_not_have(name: str, value: object, applies: str) -> None:
    with pytest.raises(IdlePin) as caught:
        _plan(pin={name: value})
    facts = caught.value.facts
    assert (facts["name"], facts["value"]) == (name, str(value))
    assert applies in str(facts["applies"])
    listed = str(facts["legal"]).split(", ")
    assert "x_full.mover" in listed and len(listed) == len(set(listed))


@pytest.mark.parametrize(
    "pin",
    [
        {"chunks": 60},  # 64 rows in chunks of two are fewer
        {"algorithm": "library", "mover": "Fused()"},  # a library call has no mover
        {"x_full.algorithm": "library", "x_full.chunks": 2},
        {"compute": "library", "tile": "64x64x64/4w4s"},  # nor has a library matmul tiles
        {"mover": "Fused()", "transfer": "push"},  # tiles make x before anything can be sent
        {"tile": "256x256x256/4w8s"},  # more shared memory than there is
    ],
    ids=str,
)
def test_pins_that_do_not_go_together(pin: dict[str, object]) -> None:
    with pytest.raises(NoLegalSchedule) as caught:
        _plan(pin=pin)
    facts = caught.value.facts
    assert (facts["function"], facts["topology"], facts["num_ranks"]) == ("gather_and_multiply", "laptop-switch", 4)
    assert facts["pins"] == ", ".join(f"{name}={value}" for name, value in pin.items())
    assert facts["reason"]
    assert "Drop one of the pins." in str(caught.value)


def test_what_is_legal_beside_the_other_pins() -> None:
    """Each value that is listed goes with the other pin."""
    with pytest.raises(NoLegalSchedule) as caught:
        _plan(pin={"mover": "Fused()", "transfer": "push"})
    (listed,) = (line for line in str(caught.value).splitlines() if "Legal beside the others: " in line)
    found = dict(
        one.split("=", 1) for one in listed.split("Legal beside the others: ")[1].removesuffix(".").split("; ")
    )
    assert found["transfer"] == "pull" and "CopyEngine()" in found["mover"].split(", ")
    for mover in found["mover"].split(", "):
        _plan(pin={"mover": mover, "transfer": "push"})


def test_unknown_target() -> None:
    with pytest.raises(UnknownTarget) as caught:
        ag_gemm.emit("tritn", topology="laptop-switch", num_ranks=2, **SIZES)
    assert caught.value.facts["target"] == "tritn"
    assert "Did you mean 'triton'?" in str(caught.value)
    assert "Known targets: triton" in str(caught.value)


def test_a_target_for_other_gpus() -> None:
    """It had given a file that does not load."""
    with pytest.raises(TargetNotForGpu) as caught:
        ag_gemm.emit("triton-nvshmem", topology="mi300x-full-mesh", num_ranks=8, **SIZES)
    assert "triton-nvshmem' is not for gfx942" in str(caught.value)
    for legal in str(caught.value).split("Legal targets: ")[1].removesuffix(".").split(", "):
        assert ag_gemm.emit(legal, topology="mi300x-full-mesh", num_ranks=8, **SIZES)


def test_no_gpu_to_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = gemm_rs.plan("laptop-switch", 4, M=256, K=64, N=128)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(FabricUnavailable) as caught:
        run_cuda(schedule, "")
    assert caught.value.facts["num_ranks"] == 4
    assert "--device cpu" in str(caught.value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(FabricUnavailable) as caught:
        run_cuda(schedule, "")
    assert "this machine has 2 GPUs" in str(caught.value)
    assert "Legal --ranks here: 2 to 2" in str(caught.value)
