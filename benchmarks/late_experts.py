"""Specs with experts for `late_ranks.py` and `fresh_routings.py`, each with its definition in torch on whole tensors."""

from __future__ import annotations

import torch

from benchmarks.late_specs import Family
from tests.pipeline.expert_specs import SPECS
from tilelink import Replicate, Shard


def grouped(rows: torch.Tensor, ids: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Row t*K + j is token t, or the row itself, at the token's j-th expert; zeros where it has none."""
    flat = ids.flatten().long()
    if len(rows) != len(flat):
        rows = rows.repeat_interleave(ids.shape[1], 0)
    out = torch.zeros(len(flat), w.shape[2], dtype=rows.dtype, device=rows.device)
    for expert in range(len(w)):
        out = torch.where((flat == expert)[:, None], rows @ w[expert], out)
    return out


def combined(rows: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return (rows.view(*ids.shape, -1) * torch.where(ids >= 0, weights, 0)[..., None]).sum(1)


def columns(x: torch.Tensor, ids: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return grouped(x, ids, w)


def summed(h: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return combined(grouped(h, ids, w), ids, weights)


def layer(
    x: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    down: torch.Tensor,
) -> torch.Tensor:
    h = torch.nn.functional.silu(grouped(x, ids, gate)) * grouped(x, ids, up)
    return combined(grouped(h, ids, down), ids, weights)


def back(x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return combined(x.repeat_interleave(ids.shape[1], 0), ids, weights)


def _sizes(*rows: tuple[int, int, int, int, int]) -> tuple[dict[str, int], ...]:
    return tuple(dict(zip("THFEK", row, strict=True)) for row in rows)


_TILES = ("16x128x128/4w4s", "64x128x64/4w4s", "128x256x64/8w3s")
_NEEDED = "NeededRows()"
_MOVERS = ("CopyEngine()", "CommSms(8)", "Fused()")
_CUT = _sizes((1024, 256, 512, 8, 2), (512, 512, 256, 64, 4), (64, 256, 256, 8, 3))
_SUMS = _sizes((1024, 512, 256, 8, 2), (512, 256, 512, 64, 4), (64, 256, 256, 8, 3))
_LAYER = _sizes((512, 256, 512, 8, 2), (256, 512, 256, 32, 4), (16, 256, 256, 8, 3))
_FEW = _sizes((16, 256, 256, 8, 4), (64, 512, 256, 32, 2), (4, 256, 256, 8, 8), (256, 1024, 256, 16, 2))
_UNEVEN = _sizes((64, 256, 256, 7, 3), (32, 256, 256, 1, 1))  # ranks do not divide the experts, or have none

EXPERTS = {
    "experts, gather": Family(SPECS["ag_moe"], columns, Shard(1), _CUT, {"x_full.mover": _MOVERS, "out.tile": _TILES}),
    "experts, scatter": Family(
        SPECS["moe_rs"], summed, Shard(0), _SUMS, {"mover": _MOVERS, "grouped_matmul_out.tile": _TILES}
    ),
    "experts, reduce": Family(
        SPECS["moe_ar"], summed, Replicate(), _SUMS, {"algorithm": ("one-shot", "two-shot", "ll", "lamport")}
    ),
    "experts, layer of cut experts": Family(
        SPECS["moe_layer"], layer, Shard(0), _LAYER, {"xf.mover": _MOVERS[:2], "h.tile": _TILES[:2]}
    ),
    "experts, layer of experts of ranks": Family(
        SPECS["ep_layer"],
        layer,
        Shard(0),
        _LAYER + _UNEVEN,
        {
            "rows_value.mover": (*_MOVERS[:2], _NEEDED),
            "h.tile": _TILES[:2],
            "out.adder": ("sender", "receiver"),
        },
    ),
    "experts, gather of columns": Family(
        SPECS["ag_moe"],
        columns,
        Shard(1),
        _CUT,
        {"x_full.cut": ("columns",), "x_full.chunks": ("2", "4"), "out.tile": _TILES[1:]},
    ),
    "experts, own tiles first": Family(
        SPECS["ag_moe"],
        columns,
        Shard(1),
        _CUT,
        {"out.own": ("first",), "x_full.mover": _MOVERS[:2], "out.tile": _TILES},
    ),
    "experts, layer by columns": Family(
        SPECS["ep_layer"],
        layer,
        Shard(0),
        _LAYER + _UNEVEN,
        {"rows_value.cut": ("columns",), "h.tile": ("64x128x64/4w3s",), "out.adder": ("sender", "receiver")},
    ),
    "experts, layer with own tiles first": Family(
        SPECS["ep_layer"],
        layer,
        Shard(0),
        _LAYER + _UNEVEN,
        {
            "rows_value.mover": (_MOVERS[0], _NEEDED),
            "h.own": ("first",),
            "h.tile": ("16x64x64/4w4s", "64x128x64/4w3s"),
            "out.adder": ("sender", "receiver"),
        },
    ),
    "experts, layer in packets": Family(
        SPECS["ep_layer"],
        layer,
        Shard(0),
        _FEW,
        {
            "ids_full.protocol": ("ll",),
            "rows_value.protocol": ("ll", "lamport"),
            "weights_full.protocol": ("ll", "lamport"),
            "h.tile": _TILES[:2],
        },
    ),
    "experts, rows are fetched": Family(
        SPECS["ep_layer"],
        layer,
        Shard(0),
        _LAYER + _UNEVEN,
        {
            "rows_value.mover": (_MOVERS[0], _NEEDED),
            "rows_value.transfer": ("pull",),
            "h.tile": _TILES[:2],
            "out.adder": ("receiver",),
            "out_rows.transfer": ("push", "pull"),
        },
    ),
    "experts, rows at their places": Family(
        SPECS["ep_layer"],
        layer,
        Shard(0),
        _LAYER + _UNEVEN,
        {
            "rows_value.mover": ("PlacedRows(16)", "PlacedRows(64)", "PlacedRows(128)"),
            "h.tile": ("16x64x64/4w4s", "64x128x64/4w4s", "128x128x64/8w4s"),  # of each mover one is legal
            "out.adder": ("sender", "receiver"),
        },
    ),
    "experts, there and back": Family(
        SPECS["there_and_back"],
        back,
        Shard(0),
        tuple({size: one[size] for size in "THEK"} for one in _LAYER),
        {
            "dispatch_out.mover": (_MOVERS[0], _NEEDED),
            "dispatch_out.transfer": ("push", "pull"),
            "out.adder": ("sender", "receiver"),
        },
    ),
}
