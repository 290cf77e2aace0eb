"""Baselines of operators with experts by torch's stable sort and grouped matmul, with NCCL around them.

All index work is in the call. Experts that are cut over the ranks: gather, or scatter. Experts on ranks: gather all rows, compute
those of own experts, scatter sums, as inference engines do by default.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from tilelink.bench.expert_inputs import ExpertInputs, gathered, scattered
from tilelink.bench.fused_experts import token_sums
from tilelink.bench.rows import Operator
from tilelink.measuring.device import Call, Outputs


def by_experts(ids: torch.Tensor, experts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Assignments in the order of experts, and where each expert's end."""
    flat = ids.flatten().long()
    counts = torch.zeros(experts, device=flat.device, dtype=torch.int64).scatter_add_(0, flat, torch.ones_like(flat))
    return torch.argsort(flat, stable=True), torch.cumsum(counts, 0).int()


def own_first(ids: torch.Tensor, first: int, own: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`by_experts` of the `own` experts from `first` on; assignments of others come last."""
    here = ids - first
    order, ends = by_experts(torch.where((here >= 0) & (here < own), here, own), own + 1)
    return order, ends[:own]


def grouped(rows: torch.Tensor, w: torch.Tensor, ids: torch.Tensor, experts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Products in the order of experts, and that order. `w` lies as torch wants it."""
    order, ends = by_experts(ids, experts)
    of_tokens = len(rows) == len(ids)
    return torch._grouped_mm(rows[order // ids.shape[1] if of_tokens else order], w, ends), order


def placed(found: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """Rows by assignment again."""
    rows = torch.empty_like(found)
    rows[order] = found
    return rows


def shown(outputs: Outputs) -> Outputs:
    """Products in the order of experts, by assignment; a next matmul of the experts would read them as they are."""
    return (placed(*outputs),) if len(outputs) == 2 else outputs


def turned(w: torch.Tensor) -> torch.Tensor:
    """Column-major for each expert, as torch's grouped matmul takes it."""
    return w.transpose(1, 2).contiguous().transpose(1, 2)


def sums(rows: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, first: int, experts: int) -> torch.Tensor:
    """`token_sums`; on the CPU by torch."""
    if rows.is_cuda:
        return token_sums(rows, ids, weights, first, experts)
    here = (ids >= first) & (ids < first + experts)
    each = rows.view(*ids.shape, -1).float() * weights[..., None]
    return torch.where(here[..., None], each, 0).sum(1).to(rows.dtype)


def with_grouped_matmul(layer: ExpertInputs) -> Call:
    """Products behind an all_gather stay in the order of experts, which comes along."""
    inputs, experts = layer.inputs, layer.experts
    first, own = layer.local
    ids = inputs["ids"]
    if layer.operator is Operator.AG_MOE:
        x, w = inputs["x"], turned(inputs["w"])
        return lambda: grouped(gathered(x)[0], w, ids, experts)
    if layer.operator is Operator.MOE_RS:
        h, weights, w = inputs["h"], inputs["weights"], turned(inputs["w"])
        return lambda: (scattered(sums(placed(*grouped(h, w, ids, experts)), ids, weights, 0, experts)),)
    gate, up, down = (turned(inputs[one]) for one in ("gate", "up", "down"))

    def call() -> Outputs:
        xf, every, weights = gathered(inputs["x"], ids, inputs["weights"])
        order, ends = own_first(every, first, own)
        rows = xf[order // ids.shape[1]]
        h = torch.nn.functional.silu(torch._grouped_mm(rows, gate, ends)) * torch._grouped_mm(rows, up, ends)
        y = placed(torch._grouped_mm(h, down, ends), order)
        return (scattered(sums(y, every, weights, first, own)),)

    return call


def matmuls_alone(layer: ExpertInputs) -> Call:
    """The grouped matmuls of one rank, and nothing else: rows lie in the order of experts, as the ids say now."""
    inputs = layer.inputs
    first, own = layer.local
    if layer.operator is not Operator.EP_LAYER:
        order, ends = by_experts(inputs["ids"], layer.experts)
        pairs = [(_rows(inputs, order), turned(inputs["w"]))]
    else:
        x, ids = gathered(inputs["x"], inputs["ids"])
        order, ends = own_first(ids, first, own)
        rows = x[order[: int(ends[-1])] // ids.shape[1]]
        gate, up, down = (turned(inputs[one]) for one in ("gate", "up", "down"))
        hidden = torch.randn(len(rows), down.shape[1], device=rows.device).mul_(0.5).to(rows.dtype)
        pairs = [(rows, gate), (rows, up), (hidden, down)]

    def call() -> Outputs:
        for rows, w in pairs:
            torch._grouped_mm(rows, w, ends)
        return ()

    return call


def _rows(inputs: Mapping[str, torch.Tensor], order: torch.Tensor) -> torch.Tensor:
    """Of all tokens, an assignment each."""
    if "h" in inputs:
        return inputs["h"][order]
    return gathered(inputs["x"])[0][order // inputs["ids"].shape[1]]


def collectives_alone(layer: ExpertInputs) -> Call:
    """Those of the calls above."""
    inputs = layer.inputs
    if layer.operator is Operator.AG_MOE:
        return lambda: _nothing(gathered(inputs["x"]))
    if layer.operator is Operator.MOE_RS:
        whole = inputs["h"].new_zeros(len(inputs["ids"]), inputs["w"].shape[2])
        return lambda: _nothing(scattered(whole))
    parts = [inputs[one] for one in ("x", "ids", "weights")]
    whole = gathered(inputs["x"])[0].zero_()  # sums of zeros stay finite

    def both() -> Outputs:
        gathered(*parts)
        scattered(whole)
        return ()

    return both


def _nothing(_: object) -> Outputs:
    return ()
