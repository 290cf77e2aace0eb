"""What is replayed: workloads x pins x topology x target x ranks, built from tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.replay.mechanisms import FEW_ROWS, FULL, MECHANISMS, SMALL

STOCK, DISTRIBUTED, NVSHMEM = "triton", "triton-distributed", "triton-nvshmem"
Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One emitted file. `operator` is a reference that `surface.operator` understands."""

    group: str
    operator: str
    what: str
    topology: str
    num_ranks: int
    target: str
    dtype: str
    sizes: tuple[tuple[str, int], ...]
    pins: Pairs

    @property
    def name(self) -> str:
        machine = f"{self.topology} x{self.num_ranks}"
        dtype = "" if self.dtype == "bf16" else f" {self.dtype}"
        return f"{self.operator}: {self.what}{dtype}, {machine}, {self.target}"


def cases() -> tuple[Case, ...]:
    """All cases; no two have one name."""
    found = [
        *_planned(),
        *_mechanisms(),
        *_examples(),
        *_dtypes(),
        *_k_major(),
        *_torch(),
        *_own(),
        *_experts(),
        *_attention(),
        *_decode(),
        *_folds(),
        *_large(),
    ]
    assert len({case.name for case in found}) == len(found), "two cases have one name"
    return tuple(found)


def _case(
    group: str,
    operator: str,
    what: str,
    machine: tuple[str, int],
    sizes: Mapping[str, int],
    pins: Mapping[str, str] | None = None,
    target: str = STOCK,
    dtype: str = "bf16",
) -> Case:
    given = tuple((pins or {}).items())
    return Case(group, operator, what, *machine, target, dtype, tuple(sizes.items()), given)


# ranks go round, so that each number of them is seen with each operator and kind of machine
_MACHINES = (
    ("h200-nvswitch", (2, 4, 8)),
    ("h100-nvswitch", (8, 2, 4)),
    ("mi300x-full-mesh", (8, 4, 2)),
    ("a100-nvswitch", (4, 8, 2)),
    ("b200-nvswitch", (8, 2, 4)),
    ("l20-pcie", (2, 4, 8)),
    ("laptop-switch", (4, 2, 8)),
    ("h800-2-nodes", (16, 16, 16)),
)
_MLP_MACHINES = (("h200-nvswitch", 4), ("mi300x-full-mesh", 8), ("l20-pcie@2", 16), ("h800-2-nodes", 16))


def _planned() -> Iterator[Case]:
    """What the planner chooses: many rows, few rows."""
    for number, operator in enumerate(("ag_gemm", "gemm_rs", "gemm_ar")):
        for place, (topology, ranks) in enumerate(_MACHINES):
            machine = topology, ranks[number]
            yield _case("planned", f"bench {operator}", "many rows", machine, FULL[operator])
            target = (STOCK, DISTRIBUTED)[place % 2]
            yield _case("planned", f"bench {operator}", "few rows", machine, FEW_ROWS[operator], target=target)
    for topology, ranks_of_mlp in _MLP_MACHINES:
        machine = topology, ranks_of_mlp
        for what, sizes in (("many rows", FULL["mlp"]), ("few rows", FEW_ROWS["mlp"])):
            yield _case("planned", "bench mlp", what, machine, sizes)
    reused = {"outputs": "reused"}
    yield _case("planned", "bench gemm_ar", "outputs reused", ("h200-nvswitch", 4), FULL["gemm_ar"], reused)
    yield _case("planned", "bench queue", "planned", ("h200-nvswitch", 4), {"B": 8100, "C": 128})


def _mechanisms() -> Iterator[Case]:
    """Every mechanism, in both languages."""
    for operator, label, sizes, pins, topology in MECHANISMS:
        for target in (STOCK, DISTRIBUTED):
            yield _case("mechanisms", f"bench {operator}", label, (topology, 4), sizes, pins, target)
    amd = ("copies push", "fused push", "fused pull", "in place, one kernel", "numbered words")
    for operator, label, sizes, pins, topology in MECHANISMS:
        if label in amd and topology == "h200-nvswitch" and operator != "mlp":
            given = {name: value for name, value in pins.items() if name != "tile"}
            yield _case("mechanisms", f"bench {operator}", label, ("mi300x-full-mesh", 4), sizes, given)
    at_once = {"algorithm": "lamport", "multicast": "yes"}  # in one language
    yield _case("mechanisms", "bench ag_gemm", "words by multicast", ("h200-nvswitch", 4), SMALL["ag_gemm"], at_once)
    lines = {"protocol": "ll128", "mover": "OwnKernel()"}
    yield _case("mechanisms", "bench gemm_ar", "lines", ("h200-nvswitch", 4), SMALL["gemm_ar"], lines | {"shots": "2"})
    machine = "h800-2-nodes", 16
    yield _case("mechanisms", "bench ag_gemm", "lines over nodes", machine, FEW_ROWS["ag_gemm"], lines, NVSHMEM)
    # what is planned goes along rails by a library, or between sockets
    for operator, mover, target in (
        ("ag_gemm", "Rails(4)", NVSHMEM),
        ("gemm_rs", "Rails(4)", DISTRIBUTED),
        ("ag_gemm", "StreamRails(4)", NVSHMEM),
    ):
        pins, label = {"mover": mover, "chunks": "2"}, "puts" if mover == "Rails(4)" else "puts of a stream"
        yield _case("mechanisms", f"bench {operator}", label, ("h800-2-nodes", 16), FULL[operator], pins, target)


_EXAMPLES = {
    "01_queue.py:queue": {"B": 11, "C": 20},
    "02_ag_gemm.py:ag_gemm": {"M": 17, "K": 45, "N": 21},
    "03_gemm_rs.py:gemm_rs": {"M": 19, "K": 23, "N": 51},
    "04_gemm_ar.py:gemm_ar": {"M": 9, "K": 21, "N": 37},
    "05_mlp.py:mlp": {"M": 11, "H": 33, "F": 13},
    "06_user_op.py:ag_squared_relu": {"M": 18, "K": 39, "N": 11},
}
_CUT = {"B", "M", "N", "K", "F"}  # divided by the number of ranks somewhere in these specs


def _ragged(name: str, num_ranks: int) -> dict[str, int]:
    return {key: size * num_ranks if key in _CUT else size for key, size in _EXAMPLES[name].items()}


def _examples() -> Iterator[Case]:
    """Sizes that no tile divides; the user's own tile op with movers."""
    for name in _EXAMPLES:
        for machine in (("laptop-mesh", 3), ("laptop-switch", 2)):
            yield _case("examples", name, "ragged", machine, _ragged(name, machine[1]))
    user_op, sizes = "06_user_op.py:ag_squared_relu", {"M": 8192, "K": 4096, "N": 14336}
    for label, pins in {
        "copies": {"mover": "CopyEngine()"},
        "SMs": {"mover": "CommSms(16)"},
        "library": {"algorithm": "library"},
    }.items():
        yield _case("examples", user_op, label, ("h200-nvswitch", 4), sizes, pins)
    for label, pins in {"SMs": {"mover": "CommSms(2)"}, "copies": {"mover": "CopyEngine()"}}.items():
        for name in ("02_ag_gemm.py:ag_gemm", "03_gemm_rs.py:gemm_rs"):
            given = {"algorithm": "direct", "compute": "triton", **pins}
            yield _case("examples", name, f"ragged, {label}", ("laptop-mesh", 3), _ragged(name, 3), given)


def _dtypes() -> Iterator[Case]:
    copies = {"algorithm": "direct", "compute": "triton", "mover": "CopyEngine()", "transfer": "push"}
    for dtype in ("fp16", "fp32"):
        for operator in ("ag_gemm", "gemm_rs"):
            machine, sizes = ("h200-nvswitch", 4), FULL[operator]
            yield _case("dtypes", f"bench {operator}", "copies push", machine, sizes, copies, dtype=dtype)
        words = {"algorithm": "lamport-tiles", "compute": "triton"}
        yield _case(
            "dtypes", "bench gemm_ar", "words of tiles", ("h200-nvswitch", 4), SMALL["gemm_ar"], words, dtype=dtype
        )


def _k_major() -> Iterator[Case]:
    """Weights that lie as those of torch.nn.Linear."""
    machine = ("h200-nvswitch", 4)
    for operator, like in (("ag_linear", "ag_gemm"), ("linear_rs", "gemm_rs"), ("linear_ar", "gemm_ar")):
        pins = {"compute": "triton"}
        yield _case("k-major", f"bench {operator}", "many rows", machine, FULL[like], pins)
        yield _case("k-major", f"bench {operator}", "by the library", machine, FULL[like], {"compute": "library"})
    few = {"algorithm": "ll-tiles", "tile": "16x64x64/4w3s"}
    yield _case("k-major", "bench linear_rs", "turned", machine, SMALL["gemm_rs"], few)
    yield _case("k-major", "bench linear_mlp", "few rows", machine, FEW_ROWS["mlp"])


_TORCH = (
    ("a fused gate and up", "MKF"),
    ("numbers", "MKN"),
    ("summands", "MKN"),
    ("slices of columns of what is gathered", "MKN"),
    ("numbers on the left", "MKN"),
    ("a gathered column", "MKN"),
    ("a column and a row", "MN"),
    ("rows of what is gathered", "MKN"),
    ("pieces of what is summed", "MKF"),
    ("a piece is scattered", "MKF"),
    ("from an odd column on", "MKN"),
    ("vectors", "F"),
)


def _torch() -> Iterator[Case]:
    """Slices, constants, columns and rows."""
    real = {"M": 2048, "K": 4096, "N": 4096, "F": 3584}
    for number, (name, symbols) in enumerate(_TORCH):
        machine = ("h200-nvswitch", "mi300x-full-mesh")[number % 4 == 3], 4
        yield _case("torch", f"torch {name}", "planned", machine, {symbol: real[symbol] for symbol in symbols})


def _own() -> Iterator[Case]:
    """Graphs that no shipped operator has."""
    machine, sizes = ("h200-nvswitch", 4), {"M": 4096, "K": 4096, "N": 8192}
    direct = {"algorithm": "direct", "compute": "triton", "mover": "CopyEngine()", "transfer": "push"}
    for spec, label, pins in (
        ("gated", "one loop", {**direct, "loop": "shared"}),
        ("gated", "two loops", {**direct, "loop": "own"}),
        ("three", "planned", {}),
        ("three", "one launch", {**direct, "tile": "128x128x64/4w5s"}),
        ("along_k", "copies", direct),
        ("along_k", "fused", {"mover": "Fused()", "transfer": "pull"}),
        ("scatter_columns", "copies", direct),
        ("scatter_columns", "epilogue", {**direct, "sum": "epilogue"}),
        ("rows_and_columns", "SMs", {"mover": "CommSms(16)", "out_0.sum": "kernel", "out_1.sum": "epilogue"}),
        ("reduce_scaled", "planned", {}),
        ("folded", "two shots", {"algorithm": "two-shot", "mover": "Fused()", "transfer": "push", "sum": "epilogue"}),
        ("gathered_weights", "planned", {}),
        ("user_op_sums_what_is_gathered", "copies", {"mover": "CopyEngine()"}),
    ):
        yield _case("own", f"spec {spec}", label, machine, sizes, pins)
    few = {"M": 64, "K": 2048, "N": 4096}
    yield _case("own", "spec scatter_columns", "words of tiles", machine, few, {"algorithm": "ll-tiles"})
    yield _case("own", "spec only_gather", "planned", machine, {"M": 8192, "K": 4096})
    yield _case("own", "spec only_sum", "planned", machine, {"M": 64, "N": 4096})
    yield _case("own", "spec to_next", "planned", machine, {"B": 4096, "C": 1024}, {"slots": "3"})
    yield _case("own", "spec from_previous", "planned", machine, {"B": 4096, "C": 1024, "N": 2048}, {"slots": "2"})


def _experts() -> Iterator[Case]:
    """Rows by experts: many of few, few of many."""
    many, few = {"T": 4096, "H": 4096, "F": 14336, "E": 8, "K": 2}, {"T": 64, "H": 2048, "F": 768, "E": 128, "K": 8}
    copies, tiles = {"mover": "CopyEngine()", "transfer": "push"}, {"mover": "Fused()", "transfer": "push"}
    for operator, pins in (("07_ag_moe.py:ag_moe", copies), ("08_moe_rs.py:moe_rs", tiles)):
        yield _case("experts", operator, "many rows", ("h200-nvswitch", 4), many)
        yield _case("experts", operator, "few rows", ("h200-nvswitch", 2), few)
        yield _case("experts", operator, "pinned", ("h200-nvswitch", 4), many, pins, DISTRIBUTED)
    for target in (STOCK, DISTRIBUTED):
        pins = {"mover": "CommSms(16)", "own": "first"}
        yield _case("experts", "07_ag_moe.py:ag_moe", "own tiles first", ("h200-nvswitch", 4), many, pins, target)
    in_order = copies | {"own": "in order"}
    yield _case("experts", "07_ag_moe.py:ag_moe", "tiles in order", ("h200-nvswitch", 4), many, in_order)
    small = {"T": 256, "H": 512, "F": 256, "E": 16, "K": 4}
    needed = {"rows_value.mover": "NeededRows()", "out.adder": "receiver", "out_rows.transfer": "push"}
    columns = {"x_full.cut": "columns", "x_full.chunks": "2"}
    for target in (STOCK, DISTRIBUTED):
        yield _case("experts", "09_ep_layer.py:ep_layer", "needed rows", ("h200-nvswitch", 4), small, needed, target)
        pulled = needed | {"rows_value.transfer": "pull"}
        yield _case("experts", "09_ep_layer.py:ep_layer", "pulled rows", ("h200-nvswitch", 4), small, pulled, target)
        placed = {"rows_value.mover": "PlacedRows(64)", "h.tile": "64x128x64/4w3s", "out.adder": "receiver"}
        yield _case("experts", "09_ep_layer.py:ep_layer", "placed rows", ("h200-nvswitch", 4), small, placed, target)
        yield _case("experts", "07_ag_moe.py:ag_moe", "columns", ("h200-nvswitch", 4), small, columns, target)
    for adder in ("receiver", "sender"):
        pins = {"out.adder": adder}
        yield _case("experts", "09_ep_layer.py:ep_layer", adder, ("h200-nvswitch", 4), small, pins)
    rails = {"rows_value.mover": "NeededRails(3)", "out_summand_parts.mover": "Rails(4)"}
    over = small | {"T": 1024}
    yield _case("experts", "09_ep_layer.py:ep_layer", "needed over nodes", ("h800-2-nodes", 16), over, rails, NVSHMEM)


def _attention() -> Iterator[Case]:
    spec, machine = "13_prefill.py:prefill", ("h200-nvswitch", 2)
    sizes = {"B": 1, "S": 4096, "Q": 32, "G": 8, "D": 128}
    yield _case("attention", spec, "planned", machine, sizes)
    yield _case("attention", spec, "several sequences", machine, sizes | {"B": 3, "S": 1000})
    yield _case("attention", spec, "by library", machine, sizes, {"compute": "library", "mover": "Library()"})
    by_parts = {"compute": "library", "mover": "CopyEngine()"}
    yield _case("attention", spec, "by library, part by part", machine, sizes | {"B": 2}, by_parts)
    plain = {"tile": "128x128x64/8w3s", "mover": "CopyEngine()"}
    for target in (STOCK, DISTRIBUTED):
        yield _case("attention", spec, "one group of warps", machine, sizes, plain, target)
    shared = {"tile": "128x128x128/4w2s2g", "mover": "CopyEngine()", "cut": "columns", "chunks": "4"}
    yield _case("attention", spec, "cooperative, by heads", machine, sizes, shared)
    ragged = {"tile": "128x128x128/4w2s2g", "mover": "CopyEngine()"}
    yield _case("attention", spec, "cooperative, ragged", machine, sizes | {"S": 3210}, ragged)
    yield _case("attention", spec, "keys by warps", machine, sizes, {"mover": "CopyWarps()"})
    layer = {"B": 1, "S": 2048, "Q": 32, "G": 8, "D": 128, "H": 4096}
    yield _case("attention", "15_attention_layer.py:attention_layer", "planned", machine, layer)


def _decode() -> Iterator[Case]:
    spec, machine = "12_flash_decode.py:flash_decode", ("h200-nvswitch", 2)
    sizes = {"B": 1, "S": 32768, "Q": 64, "G": 8, "D": 128}
    for target in (STOCK, DISTRIBUTED):
        yield _case("decode", spec, "planned", machine, sizes, {}, target)
    yield _case("decode", spec, "many sequences", machine, sizes | {"B": 64})
    yield _case("decode", spec, "packets with numbers", machine, sizes, {"protocol": "ll", "splits": "4"})
    yield _case("decode", "12_flash_decode.py:decode_and_keep", "with logarithms", machine, sizes)
    projected = "12_flash_decode.py:decode_and_project"
    yield _case("decode", projected, "with its projection", machine, sizes | {"B": 8, "H": 8192})
    yield _case("decode", "12_flash_decode.py:merge", "given states", machine, {"B": 64, "Q": 64, "D": 128})


def _folds() -> Iterator[Case]:
    loss, norm, machine = "14_folds.py:vocabulary_loss", "14_folds.py:sharded_norm", ("h200-nvswitch", 2)
    for target in (STOCK, DISTRIBUTED):
        yield _case("folds", loss, "planned", machine, {"T": 512, "V": 128256}, {}, target)
    yield _case("folds", loss, "in splits", machine, {"T": 16, "V": 128256}, {"splits": "4"})
    yield _case("folds", norm, "planned", machine, {"T": 512, "H": 8192})
    yield _case("folds", norm, "planned", ("mi300x-full-mesh", 8), {"T": 16, "H": 8192})


def _large() -> Iterator[Case]:
    """Parts of 2^31 elements: offsets in 64 bits."""
    pins = {"algorithm": "direct", "compute": "triton", "tile": "128x128x64/8w3s", "chunks": "1"}
    for mover in ("CommSms(16)", "CopyEngine()"):
        sizes = {"M": 2048, "K": 2**21, "N": 1024}
        yield _case(
            "large", "bench ag_gemm", f"wide offsets, {mover}", ("h200-nvswitch", 2), sizes, pins | {"mover": mover}
        )
