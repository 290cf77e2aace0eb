"""Whether GPUs of a group reach each other's memory as their links say: patterns both ways between all of them at once.

Behind an IOMMU, or where a bridge sends what peers exchange through the host, bytes can be lost, with no error. So a group is
looked at once, before anything is compiled for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

from tilelink.errors import PeersDiffer

WORDS = 1 << 18  # of 4 bytes, from each rank to each other one
_CHECKED = set[str]()  # names of groups


class Wrong(NamedTuple):
    """So many words of what `source` had were others at `target`, by the GPU that `by` says."""

    source: int
    target: int
    by: str
    words: int


def check_peers(group: dist.ProcessGroup | None) -> None:
    """Every rank of a group calls this alike; only the first call does anything. Ranks of other hosts are not looked at. Raises
    PeersDiffer on all ranks."""
    group = group if group is not None else dist.group.WORLD
    assert group is not None, "torch.distributed is initialised"
    if group.group_name in _CHECKED:
        return
    from lowering.host.hosts import node_of  # it needs Triton, which planning does without

    node = node_of(group, None).group
    rank, ranks, first = node.rank(), node.size(), group.rank() - node.rank()
    device = torch.device("cuda", torch.cuda.current_device())
    local = symm_mem.empty((ranks, WORDS), dtype=torch.int32, device=device)
    handle = symm_mem.rendezvous(local, node)
    peers = [local if one == rank else handle.get_remote_tensor(one, local.shape, local.dtype) for one in range(ranks)]

    def meet() -> None:
        torch.cuda.synchronize()
        dist.barrier(node)

    mine = [
        one._replace(source=first + one.source, target=first + one.target) for one in wrong_words(rank, peers, meet)
    ]
    found: list[list[Wrong]] = [[] for _ in range(ranks)]
    dist.all_gather_object(found, mine, group)
    every = [one for some in found for one in some]
    if every:
        lines = "; ".join(
            f"rank {source} to rank {target} by {by}, {words:,} of {WORDS:,} words"
            for source, target, by, words in every[:4]
        )
        raise PeersDiffer(found=lines, more=f", and {len(every) - 4} more ways" if len(every) > 4 else "")
    _CHECKED.add(group.group_name)


def wrong_words(rank: int, peers: Sequence[torch.Tensor], meet: Callable[[], None]) -> list[Wrong]:
    """What this rank finds. `peers[r]`: int32[ranks, words] of rank r, the own one among them; `meet`: all ranks have come, and
    what they have begun is done."""
    local, others = peers[rank], [one for one in range(len(peers)) if one != rank]
    found = list[Wrong]()

    def compare(source: int, target: int, by: str, words: torch.Tensor) -> None:
        wrong = int((words != _pattern(source, target, by, words)).sum())
        if wrong:
            found.append(Wrong(source, target, by, wrong))

    for by, move in _WAYS.items():
        local.zero_()
        meet()
        for peer in others:
            move(_pattern(rank, peer, by, local[peer]), peers[peer][rank])
        meet()
        for peer in others:
            compare(peer, rank, by, local[peer])
            local[peer] = _pattern(rank, peer, f"loads of {by}", local[peer])
        meet()
        for peer in others:
            loaded = torch.empty_like(local[peer])
            move(peers[peer][rank], loaded)
            compare(peer, rank, f"loads of {by}", loaded)
        meet()
    return found


def _store(source: torch.Tensor, target: torch.Tensor) -> None:
    torch.bitwise_xor(source, 0, out=target)


def _copy(source: torch.Tensor, target: torch.Tensor) -> None:
    target.copy_(source)


_WAYS = {"kernels": _store, "copies": _copy}


def _pattern(source: int, target: int, by: str, like: torch.Tensor) -> torch.Tensor:
    """Words that no other pair has, nor another way of it."""
    way = 1 + list(_WAYS).index(by.removeprefix("loads of ")) * 2 + by.startswith("loads")
    first = ((source * 64 + target) * 8 + way) << 18
    return (
        torch.arange(first, first + like.numel(), dtype=torch.int64, device=like.device)
        .to(torch.int32)
        .reshape(like.shape)
    )
