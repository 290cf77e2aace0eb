"""One query of each sequence over the tokens of all ranks, states that ranks merge, and what checks of them draw."""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from lowering.selfcheck.attention import _of_rows, logs_of_rows
from lowering.selfcheck.near import Near


def random_lengths(shape: tuple[int, ...], most: int, seed: int, device: torch.device | str) -> torch.Tensor:
    """Tokens of sequences, another kind for each seed: all full, any number, few or none, none or full; rarely none at all."""
    generator = torch.Generator(device=device).manual_seed(seed)
    kind = (seed + seed // 1000) % 20
    found = torch.full(shape, most, device=device)
    if kind % 4 in (1, 2):
        found = torch.randint(
            0, (most if kind % 4 == 1 else min(most, 8)) + 1, shape, generator=generator, device=device
        )
    elif kind == 19:
        found[:] = 0
    elif kind % 4 == 3:
        found[torch.rand(shape, generator=generator, device=device) < 0.5] = 0
    return found.int()


def random_pages(shape: tuple[int, ...], pages: int, seed: int, device: torch.device | str) -> torch.Tensor:
    """Pages of sequences, of the `pages` that a rank has: other ones at each place where there are so many, else other ones of a
    sequence."""
    generator = torch.Generator(device=device).manual_seed(seed)
    rows, count = (1, shape[0] * shape[1]) if shape[0] * shape[1] <= pages else shape
    order = torch.rand((rows, max(count, pages)), generator=generator, device=device).argsort(1)[:, :count]
    return (order % pages).view(shape).int()


def random_logs(shape: tuple[int, ...], seed: int, device: torch.device | str) -> torch.Tensor:
    """Logarithms of sums of weights, an eighth of them of nothing that was seen."""
    generator = torch.Generator(device=device).manual_seed(seed)
    found = torch.randn(shape, generator=generator, device=device) * 3
    return found.masked_fill(torch.rand(shape, generator=generator, device=device) < 0.125, -torch.inf)


def random_elements(shape: tuple[int, ...], most: int, seed: int, device: torch.device | str) -> torch.Tensor:
    """Numbers of elements of an axis that has `most` of them."""
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.randint(0, most, shape, generator=generator, device=device).int()


def decoded(
    q: Near,
    k: Near,
    v: Near,
    lengths: Near | None,
    pages: Near | None,
    dtype: torch.dtype,
    *,
    window: int,
    soft_cap: float,
    scale: float,
    ranks: int,
) -> Near:
    """Queries [B, Q, D] over keys and values [B, S, G, D], or over pages [N, L, G, D] that [B, P] lists. Weights are rounded to
    `dtype` before they are multiplied with values; scores, sums and the merge of the states of ranks are in fp32."""
    value = torch.zeros(q.value.shape, dtype=torch.float64, device=q.value.device)
    error = torch.zeros(q.value.shape, dtype=torch.float32, device=q.value.device)
    for b, heads, places in _groups_of(q, k, lengths, pages, window, ranks):
        some, keys, values = _at(q, (b, heads)), _at(k, places), _at(v, places)
        hidden = torch.zeros(1, len(keys.value), dtype=torch.bool, device=q.value.device)
        found = _of_rows(some, keys, values, hidden, dtype, soft_cap, scale)
        size = _of_rows(some, keys, Near(values.value.abs()), hidden, dtype, soft_cap, scale).value
        off = torch.as_tensor(found.error) + 2**-20 * size.float()
        value[b, heads], error[b, heads] = found.value, off * _most_alike(places, k.value.shape) ** 0.5
    return Near(value, error)


def decoded_logs(
    q: Near,
    k: Near,
    lengths: Near | None,
    pages: Near | None,
    *,
    window: int,
    soft_cap: float,
    scale: float,
    ranks: int,
    base2: bool,
) -> Near:
    """Logarithms [B, Q] of the sums of the weights of queries, -inf where they see nothing. One moves as much as the mean of the
    scores by weight, and by rounding of its own size."""
    value = torch.full(q.value.shape[:2], -torch.inf, dtype=torch.float64, device=q.value.device)
    error = torch.zeros(q.value.shape[:2], dtype=torch.float32, device=q.value.device)
    for b, heads, places in _groups_of(q, k, lengths, pages, window, ranks):
        keys = _at(k, places)
        hidden = torch.zeros(1, len(keys.value), dtype=torch.bool, device=q.value.device)
        found = logs_of_rows(_at(q, (b, heads)), keys, hidden, soft_cap, scale, base2)
        value[b, heads], error[b, heads] = found.value, torch.as_tensor(found.error)
    return Near(value, error)


def merged_logs(logs: list[Near], base2: bool) -> Near:
    """The logarithms of the sums of the weights of which ranks have the logarithms, which are exact."""
    log = torch.stack([one.value.double() for one in logs]) * (math.log(2) if base2 else 1)
    value = log.logsumexp(0)
    size = torch.where(log > -torch.inf, log.abs(), 0).amax(0) + 1
    by = math.log2(math.e) if base2 else 1.0
    return Near(value * by, (2**-20 * by * size).float())


def _groups_of(
    q: Near, k: Near, lengths: Near | None, pages: Near | None, window: int, ranks: int
) -> Iterator[tuple[int, slice, tuple[int | slice | torch.Tensor, ...]]]:
    """Sequences that see something, with the heads of queries that share a head of keys, and where that has its keys."""
    tokens, groups = k.value.shape[1] * (1 if pages is None else pages.value.shape[1]), k.value.shape[2]
    shared = q.value.shape[1] // groups
    for b in range(q.value.shape[0]):
        last = tokens if lengths is None else min(max(int(lengths.value[b]), 0), tokens)
        first = max(last - window, 0) if window > 0 else 0
        if first == last:
            continue
        places = _places(b, first, last, pages, k.value.shape, int(ranks))
        for group in range(groups):
            yield b, slice(group * shared, (group + 1) * shared), (*places, group)


def _places(
    b: int, first: int, last: int, pages: Near | None, shape: torch.Size, ranks: int
) -> tuple[int | slice | torch.Tensor, ...]:
    """Where tokens of sequence `b` lie in keys of `shape`. A page counts within those of the rank that has its column."""
    if pages is None:
        return b, slice(first, last)
    token = torch.arange(first, last, device=pages.value.device)
    column = token // shape[1]
    rank = column // (pages.value.shape[1] // ranks)
    return pages.value[b, column].long() + rank * (shape[0] // ranks), token % shape[1]


def _most_alike(places: tuple[int | slice | torch.Tensor, ...], shape: torch.Size) -> int:
    """How often a token is seen at most. Where it is seen again it errs the same way, and bounds count on independent signs."""
    match places:
        case (torch.Tensor() as page, torch.Tensor() as slot, _):
            return int(torch.bincount(page * shape[1] + slot).max())
        case _:
            return 1


def _at(x: Near, places: tuple[int | slice | torch.Tensor, ...]) -> Near:
    """Some elements, in float64."""
    return Near(x.value[places].double(), x.error if isinstance(x.error, float) else x.error[places])


def merged_states(means: list[Near], logs: list[Near], base2: bool) -> Near:
    """The mean of means [T, H, D] of ranks by weights of logarithms [T, H], which are exact. Weights err by the rounding of
    their arguments, relative to these, and by that of the exponential."""
    log = torch.stack([one.value.double() for one in logs])[..., None]
    seen = log > -torch.inf
    power = torch.where(seen, log - log.amax(0), -torch.inf)
    weights = torch.exp2(power) if base2 else torch.exp(power)
    weights = weights / weights.sum(0).clamp_min(1)  # the largest is 1, if any rank has seen something
    mean = torch.where(seen, torch.stack([one.value.double() for one in means]), 0)
    off = torch.stack([torch.zeros_like(one.value, dtype=torch.float32) + one.error for one in means])
    off = torch.where(seen, off + 2**-19 * log.abs().clamp_min(1) * mean.abs(), 0)
    return Near((weights * mean).sum(0), (weights * off).sum(0).float())
