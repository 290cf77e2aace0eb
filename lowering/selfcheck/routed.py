"""Routings for checks, and the error that rounding explains of what is computed by one."""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import torch

from lowering.selfcheck.near import Near


def random_ids(shape: tuple[int, ...], experts: int, seed: int, device: torch.device | str) -> torch.Tensor:
    """Experts of tokens, another kind for each seed: spread, some missing, all at one, at few of them, or none at all."""
    generator = torch.Generator(device=device).manual_seed(seed)
    found = torch.randint(0, experts, shape, generator=generator, device=device)
    kind = seed % 5
    if kind == 1:
        found[torch.rand(shape, generator=generator, device=device) < 0.3] = -1
    elif kind == 2:
        found[:] = seed // 5 % experts
    elif kind == 3:
        found //= 4
    elif kind == 4 and seed % 2:
        found[:] = -1
    return found.int()


def routing_of(ids: Near, experts: int) -> Near:
    """What chooses an expert, -1 elsewhere."""
    return Near(torch.where((ids.value >= 0) & (ids.value < experts), ids.value, -1))


def dispatched(rows: Near, routing: Near) -> Near:
    """Rows of tokens, by assignment."""
    choices = routing.value.shape[1]
    error = rows.error if isinstance(rows.error, float) else rows.error.repeat_interleave(choices, 0)
    return Near(rows.value.repeat_interleave(choices, 0), error)


def grouped(rows: Near, weights: Near, routing: Near) -> Near:
    """Rows of tokens, or by assignment, each times the matrix of its expert."""
    expert = routing.value.flatten()
    choices = len(expert) // len(rows.value)
    value = torch.zeros(len(expert), weights.value.shape[2], dtype=torch.float64, device=expert.device)
    error = torch.zeros_like(value, dtype=torch.float32)
    for number in range(len(weights.value)):
        (mine,) = torch.nonzero(expert == number, as_tuple=True)
        if len(mine):
            found = rows.chosen(mine // choices).times(weights.chosen(number))
            value[mine], error[mine] = found.value, torch.as_tensor(found.error, device=error.device)
    return Near(value, error)


def combined(rows: Near, weights: Near, routing: Near, library: torch.dtype | None = None, ranks: int = 2) -> Near:
    """The sum of the rows of a token, each times its weight, in fp32. Over ranks, a library rounds partial sums, as `Near.sum`
    has it."""
    tokens, choices = routing.value.shape
    there = (routing.value >= 0)[..., None]
    weight = torch.where(there, weights.value.double()[..., None], 0)
    row = torch.where(there, rows.value.double().view(tokens, choices, -1), 0)
    off = torch.as_tensor(rows.error, device=row.device).expand(rows.value.shape).view(tokens, choices, -1)
    far = torch.as_tensor(weights.error, device=row.device).expand(weights.value.shape)[..., None]
    terms = weight * row
    error = (weight.abs() * torch.where(there, off, 0) + torch.where(there, far, 0) * row.abs()).sum(1)
    rounding = (choices + 1) * torch.finfo(torch.float32).eps / 2
    if library is not None:
        rounding += (ranks - 2) * torch.finfo(library).eps / 2
    return Near(terms.sum(1), (error + rounding * terms.abs().sum(1)).float())
