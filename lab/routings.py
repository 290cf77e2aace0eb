"""Drawn experts of tokens, spread evenly or not.

A token's experts differ: they are those with the largest `log(likelihood) + Gumbel noise`. Likelihoods of a skew:

    uniform   all the same
    zipf      1 / (1 + place), where experts have places in a fixed random order
    hotX      experts of rank 0, an eighth of all and at least one, are X times as likely as the others
"""

from __future__ import annotations

from typing import NamedTuple

import torch

SKEWS = ("uniform", "zipf", "hot4", "hot7")


def likelihoods(skew: str, experts: int) -> torch.Tensor:
    """Of each expert, relative to others."""
    if skew == "zipf":
        order = torch.randperm(experts, generator=torch.Generator().manual_seed(0))
        return 1.0 / (1 + order)
    found = torch.ones(experts)
    if skew.startswith("hot"):
        found[: max(1, experts // 8)] = float(skew.removeprefix("hot"))
    elif skew != "uniform":
        raise ValueError(f"{skew!r} is no skew. Legal skews: {', '.join(SKEWS)}.")
    return found


def drawn(skew: str, tokens: int, experts: int, choices: int, seed: int) -> torch.Tensor:
    """Ids [tokens, choices], in int32 on the CPU: the same on every machine."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.empty(tokens, experts).exponential_(generator=generator).log().neg()
    found: torch.Tensor = (likelihoods(skew, experts).log() + noise).topk(choices, dim=1).indices.int()
    return found


class Busiest(NamedTuple):
    rank_share: float  # of all assignments; with every expert on each rank, the share of any rank
    expert_rows: int


def busiest(counts: torch.Tensor, ranks: int, *, of_ranks: bool) -> Busiest:
    """From the assignments of each expert; `of_ranks`: each rank has some experts, the first ranks the first ones."""
    share = float(counts.view(ranks, -1).sum(1).max() / counts.sum()) if of_ranks else 1 / ranks
    return Busiest(round(share, 4), int(counts.max()))
