"""Drawn experts of tokens, spread evenly or not.

A token's experts differ: they are those with the largest `log(likelihood) + Gumbel noise`. Likelihoods of a routing:

    uniform   all the same
    zipf      1 / (1 + place), where experts have places in a fixed random order
    hotX      experts of rank 0, an eighth of all and at least one, are X times as likely as the others

A row has several drawings of its routing, which replays take in turns. They are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

import torch

from tilelink.bench.errors import UnknownRouting
from tilelink.errors import did_you_mean

DRAWINGS = 4  # that are timed
_APART = 1000  # seeds of two drawings: more than there are ranks


class Routing(Enum):
    UNIFORM = "uniform"
    ZIPF = "zipf"
    HOT4 = "hot4"
    HOT7 = "hot7"


def parse_routings(texts: Iterable[str]) -> tuple[Routing, ...]:
    """Names with commas between them, each once. Raises UnknownRouting."""
    legal = [one.value for one in Routing]
    names = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    for name in names:
        if name not in legal:
            raise UnknownRouting(name=name, hint=did_you_mean(name, legal), legal=", ".join(legal))
    return tuple(Routing(name) for name in dict.fromkeys(names))


def likelihoods(routing: Routing, experts: int) -> torch.Tensor:
    """Of each expert, relative to others."""
    match routing:
        case Routing.UNIFORM:
            return torch.ones(experts)
        case Routing.ZIPF:
            order = torch.randperm(experts, generator=torch.Generator().manual_seed(0))
            return 1.0 / (1 + order)
        case Routing.HOT4:
            return _hot(4.0, experts)
        case Routing.HOT7:
            return _hot(7.0, experts)


def _hot(times: float, experts: int) -> torch.Tensor:
    found = torch.ones(experts)
    found[: max(1, experts // 8)] = times
    return found


def drawn(routing: Routing, tokens: int, experts: int, choices: int, seed: int) -> torch.Tensor:
    """Ids [tokens, choices], in int32 on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.empty(tokens, experts).exponential_(generator=generator).log().neg()
    found: torch.Tensor = (likelihoods(routing, experts).log() + noise).topk(choices, dim=1).indices.int()
    return found


@lru_cache(maxsize=64)
def drawing(routing: Routing, tokens: int, experts: int, choices: int, number: int, rank: int = 0) -> torch.Tensor:
    """One of several. `rank`: where each rank has tokens of its own. The result is shared: copy it."""
    return drawn(routing, tokens, experts, choices, _APART * number + rank)


class Busiest(NamedTuple):
    rank_share: float  # of all assignments; with every expert on each rank, the share of any rank
    expert_rows: int


def busiest(counts: torch.Tensor, ranks: int, *, of_ranks: bool) -> Busiest:
    """From the assignments of each expert; `of_ranks`: each rank has some experts, the first ranks the first ones."""
    share = float(counts.view(ranks, -1).sum(1).max() / counts.sum()) if of_ranks else 1 / ranks
    return Busiest(round(share, 4), int(counts.max()))


def busiest_of(every: Iterable[Busiest]) -> Busiest:
    """The largest numbers of any drawing."""
    shares, rows = zip(*every, strict=True)
    return Busiest(max(shares), max(rows))


def rows_between(ids: torch.Tensor, experts: int) -> int:
    """Rows that must come into the busiest rank, of ids [ranks, tokens of a rank, choices] where experts are on ranks.

    A token's row goes once to each other rank that has one of its experts, and a sum comes back from there.
    """
    ranks = len(ids)
    owner = ids.long() // (experts // ranks)
    needs = torch.zeros(*ids.shape[:2], ranks, dtype=torch.bool).scatter_(2, owner, True)  # [home, token, rank]
    pairs = needs.sum(1)  # [home, rank]: tokens that the rank needs
    pairs.fill_diagonal_(0)
    return int((pairs.sum(0) + pairs.sum(1)).max())
