"""A baseline of a layer with experts on ranks: `triton_kernels`, a package of kernels that Triton's source tree has.

It is the folder `python/triton_kernels/triton_kernels` of github.com/triton-lang/triton at e7fb8414217a. The compiler of that
commit is the one of release 3.6.0, by its Python files. The package is found like any module: PYTHONPATH names the folder that
holds it. PyPI has another package of this name.

A call does what the package's own benchmark does with experts on ranks, behind a router that has chosen already. In order:

    what                                                             by
    ids of own tokens go to all ranks, with a bit for each expert    `send_ids_kernel` instead of their top-k, then a barrier
    assignments in the order of experts, tables of tiles             `make_bitmatrix_metadata`, `make_ragged_tensor_metadata`
    rows go to the ranks of their experts                            `convert_dp_to_ep`, which ends with a barrier
    tables of own experts only                                       `remap_ragged_tensor_metadata`
    both matmuls, the first one with its activation                  `matmul_ogs`, with tiles of its own choice
    rows return to their tokens                                      `convert_ep_to_dp`, which ends with a barrier
    weighted sums                                                    `reduce`

Nothing is read by the host. The package's swiglu computes `silu(gate) * (up + 1)`. Its matmul takes other functions, too; here
it takes `silu(gate) * up`. Before a call, gate and up become one weight with alternating columns. Weights are column-major for
each expert, as in that benchmark. Kernels of the package take powers of two only: experts of a token, and ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import triton
import triton.language as tl
import triton_kernels.distributed as exchange
from triton_kernels.matmul_ogs import (
    FnSpecs,
    FusedActivation,
    RoutingData,
    matmul_ogs,
)
from triton_kernels.reduce import reduce
from triton_kernels.tensor import (
    BIT,
    Bitmatrix,
    make_bitmatrix_metadata,
    make_ragged_tensor_metadata,
    remap_ragged_tensor_metadata,
)

from tilelink.bench.expert_inputs import ExpertInputs
from tilelink.bench.grouped_experts import turned
from tilelink.measuring.device import Call, Outputs

_TOKENS = 32  # of a program that sends ids
_WORD = 32  # experts whose bits are one word
_REGION = "topk"  # of their symmetric memory, where their top-k has its results


@triton.jit  # type: ignore[untyped-decorator]
def send_ids_kernel(  # type: ignore[no-untyped-def]
    ids, peers_ids, peers_bits, first, tokens, words, bits_stride, CHOICES: tl.constexpr, TOKENS: tl.constexpr
):
    """Own tokens are those from number `first` on. A token's bits are `words` words, one of each row of `bits`."""
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    is_token = token < tokens
    choice = tl.arange(0, CHOICES)[None, :]
    chosen = tl.load(ids + token[:, None] * CHOICES + choice, mask=is_token[:, None], other=0)
    for peer in tl.static_range(len(peers_ids)):
        at = peers_ids[peer] + (first + token)[:, None] * CHOICES + choice
        tl.store(at, chosen.to(tl.int16), mask=is_token[:, None])
    for word in range(words):
        bits = tl.reduce_or(tl.where(chosen // 32 == word, 1 << (chosen % 32), 0), 1)
        for peer in tl.static_range(len(peers_bits)):
            tl.store(peers_bits[peer] + word * bits_stride + first + token, bits.to(tl.uint32), mask=is_token)


@triton.jit(repr=lambda _: "_gated")
def gated(columns):  # type: ignore[no-untyped-def]
    """Of columns in pairs: gate and up."""
    gate, up = tl.split(tl.reshape(columns, (columns.shape[0], columns.shape[1] // 2, 2)))
    return gate * tl.sigmoid(gate) * up


@dataclass(frozen=True)
class Chosen:
    """The experts of all tokens, as every rank has them."""

    ids: torch.Tensor  # [tokens, choices], int16
    bits: Bitmatrix


@dataclass(frozen=True)
class Exchange:
    """Symmetric memory for a layer, with what sends ids into it."""

    pool: Any  # their SymmetricMemoryPool
    peers_ids: tuple[torch.Tensor, ...]  # of each rank
    peers_bits: tuple[torch.Tensor, ...]
    experts: int

    @classmethod
    def of(cls, layer: ExpertInputs) -> Exchange:
        """All ranks have to call it."""
        x, ids, ranks = layer.inputs["x"], layer.inputs["ids"], dist.get_world_size()
        tokens, choices = ranks * len(ids), ids.shape[1]
        pool = exchange.SymmetricMemoryPool()
        pool.initialize_matmul_ogs(
            n_tokens_global=tokens,
            d_input=x.shape[1],
            d_model=x.shape[1],
            n_expts_act=choices,
            n_expts_tot=layer.experts,
            dtype=x.dtype,
            n_ranks=ranks,
            group=dist.group.WORLD,
            device=x.device,
        )
        peers_ids = pool.make_empty((tokens, choices), torch.int16, _REGION)
        behind = pool.align_up(peers_ids[0].nbytes, pool.regions[_REGION].alignment)
        shape = (triton.cdiv(layer.experts, _WORD), triton.cdiv(tokens, _TOKENS) * _TOKENS)
        return cls(pool, peers_ids, pool.make_empty(shape, torch.uint32, _REGION, behind), layer.experts)

    def send(self, ids: torch.Tensor) -> Chosen:
        """Every rank has the ids of all tokens then. The package uses the memory of this exchange from here on."""
        exchange.symm_mem_pool = self.pool  # its functions look it up at each call
        rank, (own, choices) = dist.get_rank(), ids.shape
        bits, tokens = self.peers_bits[rank], len(self.peers_ids[rank])
        send_ids_kernel[(triton.cdiv(own, _TOKENS),)](
            ids,
            self.peers_ids,
            self.peers_bits,
            rank * own,
            own,
            len(bits),
            bits.stride(0),
            CHOICES=choices,
            TOKENS=_TOKENS,
            num_warps=1,
        )
        self.pool.hdl.barrier(channel=0)
        shape, most = [tokens, self.experts], [tokens, None]
        return Chosen(self.peers_ids[rank], Bitmatrix(bits.T, dtype=BIT, shape=shape, shape_max=most))


def alternating(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """[experts, depth, columns] of both: a column of gate, then the one of up."""
    return torch.stack((gate, up), 3).flatten(2)


def with_triton_kernels(layer: ExpertInputs) -> Call:
    """The layer of experts on ranks. All ranks have to call it, and then its result."""
    assert layer.on_ranks, "the package has no experts that are cut over ranks"
    x, ids, weights = (layer.inputs[one] for one in ("x", "ids", "weights"))
    own, choices = layer.local[1], ids.shape[1]
    first, last = turned(alternating(layer.inputs["gate"], layer.inputs["up"])), turned(layer.inputs["down"])
    ranks = dist.get_world_size()
    owners = exchange.make_expt_dict_uniform(ranks, layer.experts)
    assignment = exchange.make_expt_assignment(ranks, layer.experts, owners, x.device)
    local = assignment.expt_map[dist.get_rank()]
    act = FusedActivation(FnSpecs("gated", gated, (), reduction_n=2), ())
    scale = weights[:, :, None].expand(-1, -1, x.shape[1])
    mean_rows = max(1, round(layer.mean_rows))  # without it tiles are chosen as if rows of all ranks were own
    sender = Exchange.of(layer)

    def call() -> Outputs:
        chosen = sender.send(ids)
        index = make_bitmatrix_metadata(chosen.ids, chosen.bits)
        everywhere = make_ragged_tensor_metadata(index.col_sum, chosen.ids.numel())
        rows = exchange.convert_dp_to_ep(x, assignment, chosen.ids, index.row_sorted_indx)
        here = remap_ragged_tensor_metadata(everywhere, local)
        routing = RoutingData(None, index.col_sum, own, choices, here, expected_tokens_per_expt=mean_rows)
        h = matmul_ogs(rows, first, None, routing, fused_activation=act)
        y = matmul_ogs(h, last, None, routing)
        back = exchange.convert_ep_to_dp(y, assignment, chosen.ids, index.col_sorted_indx)
        return (reduce(back.view(-1, choices, back.shape[1]), dim=1, scale=scale)[0],)

    return call
