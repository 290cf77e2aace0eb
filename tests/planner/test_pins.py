"""A pin is honoured or refused, never passed over; what a schedule prints as its choices pins that schedule."""

from __future__ import annotations

import random
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

import topologies
from tests.planner.operators import ag_gemm, gemm_ar, gemm_rs, mlp
from tilelink import CommSms, CopyEngine, Fused, Landing, Library, Nest, OwnKernel, Protocol, TileShape, Transfer
from tilelink.elaborate.schedule import elaborated
from tilelink.errors import IllegalPin, NoLegalSchedule, UnknownPin
from tilelink.ir.calls import LibraryCollective, LibraryOp
from tilelink.ir.nodes import CopyProgram, Kernel
from tilelink.ir.spec import Matmul, bind
from tilelink.planner.fields import BY_NAME, OUTPUTS, pin_text
from tilelink.planner.pins import pin_names

if TYPE_CHECKING:
    from tilelink import Overlap, Schedule
    from tilelink.ir.spec import BoundSpec

OPERATORS = {operator.name: operator for operator in (ag_gemm, gemm_rs, gemm_ar, mlp)}
SIZES = {"M": 512, "K": 256, "N": 256, "H": 256, "F": 512}
TOPOLOGIES = ("laptop-switch", "laptop-mesh", "h200-nvswitch", "mi300x-full-mesh")


def _sizes(operator: Overlap) -> dict[str, int]:
    return {name: SIZES[name] for name in operator.spec.symbols()}


@cache
def _planned(operator: str, topology: str) -> Schedule:
    return _with(OPERATORS[operator], topology, {})


def _bound(operator: Overlap) -> BoundSpec:
    return bind(operator.spec, _sizes(operator), 4, "bf16")


def _with(operator: Overlap, topology: str, pin: dict[str, object]) -> Schedule:
    sizes: dict[str, Any] = _sizes(operator)
    return operator.plan(topology, 4, pin=pin, **sizes)


SLOW_AR = pytest.param("gemm_ar", marks=pytest.mark.slow)
NAMES = [
    "gemm_rs",
    pytest.param("ag_gemm", marks=pytest.mark.slow),
    SLOW_AR,
    pytest.param("mlp", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.quick(2)
def test_all_choices_pinned_back(name: str, topology: str) -> None:
    found = _planned(name, topology)
    assert _with(OPERATORS[name], topology, dict(found.choices)) == found


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["laptop-switch", "laptop-mesh"])
@pytest.mark.parametrize("name", ["ag_gemm", "gemm_rs", "gemm_ar"])
def test_each_choice_pinned_back(name: str, topology: str) -> None:
    """A pinned search may stop at a neighbour: as fast, as far as the model can tell."""
    found = _planned(name, topology)
    for field, value in found.choices:
        pinned = _with(OPERATORS[name], topology, {field: value})
        assert dict(pinned.choices)[field] == value
        assert abs(pinned.predicted_us / found.predicted_us - 1) < 0.01, field


def _matmuls(schedule: Schedule) -> set[str]:
    return {node.output.name for node in schedule.spec.nodes if isinstance(node.operation, Matmul)}


SHORT_PINS: list[tuple[str, object]] = [
    ("protocol", Protocol.SIMPLE),
    ("protocol", Protocol.LL),
    ("shots", 1),
    ("shots", 2),
    ("landing", Landing.POOLED),
    ("mover", Library()),
    ("mover", OwnKernel()),
    ("mover", CopyEngine()),
    ("mover", CommSms(2)),
    ("mover", CommSms(3)),  # not enumerated
    ("mover", Fused()),
    ("transfer", Transfer.PUSH),
    ("transfer", Transfer.PULL),
    ("chunks", 1),
    ("chunks", 2),
    ("chunks", 3),
    ("chunks", 5),
    ("chunks", 100000),
    ("nest", Nest.RANK_MAJOR),
    ("nest", Nest.CHUNK_MAJOR),
    ("compute", "triton"),
    ("compute", "library"),
    ("streams", "one"),
    ("streams", "peer"),
    ("tile", TileShape(32, 32, 32, 4, 2)),
    ("tile", TileShape(16, 128, 32, 4, 3)),  # not enumerated
    ("tile", "library"),
    ("group", 2),
    ("group", 7),
    ("sum", "epilogue"),
    ("sum", "kernel"),
]


# a scatter differs from a gather in what of its exchange can be pinned, and in its sum
QUICK = [("ag_gemm", *pin) for pin in SHORT_PINS]
QUICK += [("gemm_rs", *pin) for pin in SHORT_PINS if pin[0] in ("mover", "sum")]
ALL_PINS = [(name, *pin) for name in ("ag_gemm", "gemm_rs", "gemm_ar") for pin in SHORT_PINS]


@pytest.mark.parametrize(
    ("name", "field", "pin"),
    [pytest.param(*pin, marks=[] if pin in QUICK else [pytest.mark.slow]) for pin in ALL_PINS],
    ids=lambda item: pin_text(item),
)
@pytest.mark.parametrize("topology", ["laptop-switch", pytest.param("laptop-mesh", marks=pytest.mark.slow)])
@pytest.mark.quick(14)
def test_a_field_pinned_for_all_values(name: str, topology: str, field: str, pin: object) -> None:
    value = pin_text(pin)
    try:
        found = _with(OPERATORS[name], topology, {field: pin})
    except (IllegalPin, NoLegalSchedule) as refused:
        assert value in str(refused)
        return
    chosen = {full: text for full, text in found.choices if full.endswith(f".{field}")}
    assert value in chosen.values()
    free = {full.partition(".")[0] for full, text in chosen.items() if text != value}
    if field in ("shots", "protocol", "landing", "mover", "transfer", "chunks", "nest", "streams"):
        assert not free
    elif field != "sum":  # sums have a loop and tiles of their own
        assert not free & _matmuls(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ag_gemm", "gemm_rs"])
@pytest.mark.parametrize("topology", ["laptop-switch", "laptop-mesh"])
def test_a_field_pinned_for_one_value(name: str, topology: str) -> None:
    operator = OPERATORS[name]
    honoured = 0
    for full, texts in pin_names(_bound(operator), topologies.load(topology, 4)).items():
        for value in sorted(texts):
            try:
                found = _with(operator, topology, {full: value})
            except NoLegalSchedule as refused:
                assert f"{full}={value}" in str(refused.facts["pins"])
                continue
            if full != OUTPUTS.name:  # a promise, which a schedule may have no use for
                assert dict(found.choices)[full] == value
            honoured += 1
    assert honoured > 20


POOL = (
    *(
        "yes",
        "no",
        "library",
        "triton",
        "push",
        "pull",
        "whole",
        "halves",
        "late",
        "at once",
        "one",
        "peer",
        "own",
        "shared",
    ),
    *(
        "0",
        "1",
        "3",
        "5",
        "64",
        "100000",
        "04",
        "-1",
        "all",
        "item",
        "direct",
        "ll",
        "epilogue",
        "kernel",
        "fresh",
        "reused",
    ),
    *(
        "CopyEngine()",
        "CommSms(3)",
        "CommSms(0)",
        "CommSms(1000)",
        "Fused()",
        "Fused",
        "chunk by chunk",
        "rank by rank",
    ),
    *("32x32x32/4w2s", "16x128x32/4w3s", "32x64x0/4w1s", "24x64x32/4w2s", "128x256x64/8w3s"),
)
PATTERNS = {
    "chunks": r"\d+",
    "group": r"\d+",
    "mover": r"CommSms\(\d+\)",
    "tile": r"\d+x\d+x\d+/\d+w\d+s",
}


@cache
def listed(operator: Overlap, topology: str, name: str) -> list[str]:
    """The values that the message about a pin lists, without the words for the others."""
    with pytest.raises(IllegalPin) as caught:
        _with(operator, topology, {name: "nothing of the kind"})
    legal = str(caught.value.facts["legal"]).split(", ")
    cut = next((at for at, text in enumerate(legal) if text.startswith("or ")), len(legal))
    assert legal[:cut] and len(set(legal[:cut])) == cut
    return legal[:cut]


def names_of(operator: Overlap, topology: str) -> list[str]:
    """Pins with and without a value's name, as the message about an unknown one lists them."""
    with pytest.raises(UnknownPin) as caught:
        _with(operator, topology, {"nothing of the kind": "1"})
    names = str(caught.value.facts["legal"]).split(", ")
    assert len(set(names)) == len(names)
    return names


FEW = ("mover", "prefetch", "y_parts.transfer", "y.tail")  # of gemm_rs, in the quick suite
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 9))]


def some_pins(seed: int) -> tuple[Overlap, str, list[str], random.Random]:
    """An operator, a machine and some names of pins: known ones for seed 0, any for the others."""
    rng = random.Random(seed)
    if seed == 0:
        return gemm_rs, "laptop-switch", list(FEW), rng
    operator = rng.choice((ag_gemm, gemm_rs, gemm_ar))
    topology = rng.choice(("laptop-switch", "l20-pcie", "h200-nvswitch", "mi300x-full-mesh"))
    return operator, topology, rng.sample(names_of(operator, topology), 3), rng


@pytest.mark.parametrize("seed", SEEDS)
def test_every_value_that_a_message_lists_is_accepted(seed: int) -> None:
    operator, topology, names, rng = some_pins(seed)
    for pin in names:
        legal = listed(operator, topology, pin)
        for value in rng.sample(legal, min(len(legal), 4)):
            value, _, beside = value.partition(" with ")
            found = _with(operator, topology, {pin: value, **dict([beside.split("=")] if beside else [])})
            if pin != OUTPUTS.name:
                chosen = {full: text for full, text in found.choices if full == pin or full.endswith(f".{pin}")}
                assert value in chosen.values(), (pin, value, chosen)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.slow
def test_every_value_that_is_accepted_is_listed_or_described(seed: int) -> None:
    operator, topology, names, rng = some_pins(seed)
    for pin in names[:2]:
        legal = listed(operator, topology, pin)
        pattern = PATTERNS.get(pin.rpartition(".")[2], "")
        for value in rng.sample(POOL, 12):
            try:
                _with(operator, topology, {pin: value})
            except (IllegalPin, NoLegalSchedule):
                continue
            assert value in legal or re.fullmatch(pattern, value), (pin, value, legal)


OTHER_SPELLINGS = [
    *(("mover", text) for text in ("CommSms(02)", "CommSms(2", "CommSms()", "CommSms(2, 3)", "Library(1)", "fused()")),
    *(("tile", text) for text in ("032x32x32/4w2s", "32x32x32/4w2s1p", "32x32x32/4w2s0p", "32x32x48/4w2s")),
    *(("chunks", text) for text in ("02", "+2", "2.0", "0")),
]


@pytest.mark.parametrize(("name", "text"), OTHER_SPELLINGS)
def test_a_value_has_one_text(name: str, text: str) -> None:
    assert BY_NAME[name].parsed(text) is None
    with pytest.raises(IllegalPin):
        _with(gemm_rs, "laptop-switch", {name: text})


def test_lists_that_were_wrong() -> None:
    assert listed(ag_gemm, "laptop-switch", "prefetch") == ["no", "yes"]
    for pin in ("tile", "group", "tail"):
        assert "library" not in listed(ag_gemm, "laptop-switch", pin)
    with pytest.raises(IllegalPin, match="whole number from 1 to 128"):
        _with(ag_gemm, "laptop-switch", {"chunks": "many"})


def test_a_pinned_mover_excludes_schedules_without_movers() -> None:
    for topology in ("laptop-switch", "laptop-mesh"):
        found = _with(ag_gemm, topology, {"mover": Fused()})
        assert [exchange.mover for exchange in found.exchanges] == [Fused()]
        found = _with(ag_gemm, topology, {"x_full.transfer": "pull"})
        assert [exchange.transfer for exchange in found.exchanges] == [Transfer.PULL]


def test_pins_reach_the_nodes() -> None:
    found = _with(
        gemm_rs,
        "laptop-switch",
        {"mover": CommSms(3), "chunks": 2, "nest": Nest.RANK_MAJOR, "tile": TileShape(32, 64, 32, 4, 3), "group": 2},
    )
    (exchange,) = found.exchanges
    assert (exchange.mover, exchange.chunks, exchange.order.nest) == (CommSms(3), 2, Nest.RANK_MAJOR)
    kernel = next(kernel for kernel in found.kernels() if kernel.compute is not None and kernel.compute.name == "y")
    assert kernel.compute is not None
    assert (kernel.compute.axis("m").tile, kernel.compute.axis("n").tile) == (32, 64)
    assert (kernel.warps, kernel.stages, kernel.compute.order.group) == (4, 3, 2)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.quick(1)
def test_the_library_schedule_is_in_the_space(name: str, topology: str) -> None:
    """NCCL and cuBLAS, nothing overlapped: the planner never has to choose something that it predicts to be slower."""
    library = _with(OPERATORS[name], topology, {"algorithm": "library", "compute": "library"})
    assert not library.exchanges
    assert not elaborated(library).signals
    assert any(isinstance(launch, LibraryCollective) for launch in library.launches)
    assert any(isinstance(launch, LibraryOp) for launch in library.launches)
    assert not any(isinstance(launch, CopyProgram) for launch in library.launches)
    kernels = [launch.compute.name for launch in library.launches if isinstance(launch, Kernel) and launch.compute]
    assert not _matmuls(library) & set(kernels)
    assert _planned(name, topology).predicted_us <= library.predicted_us
