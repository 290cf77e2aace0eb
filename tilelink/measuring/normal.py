"""Random numbers of inputs."""

from __future__ import annotations

import torch

from tilelink.runtime.bounds import TORCH_DTYPES


def seed_of(seed: int, rank: int, number: int) -> int:
    """Of input `number` of a rank: another one for each."""
    return (seed * 64 + rank) * 8 + number


def normal(shape: tuple[int, ...], scale: float, seed: int, dtype: str, device: torch.device) -> torch.Tensor:
    generator = torch.Generator(device=device).manual_seed(seed)
    return (torch.randn(shape, generator=generator, device=device) * scale).to(TORCH_DTYPES[dtype])
