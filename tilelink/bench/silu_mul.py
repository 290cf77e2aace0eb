"""silu(gate) * up of a merged matmul's result, in one pass over memory: what inference engines run in a gated MLP."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_BLOCK = 1024


@triton.jit  # type: ignore[untyped-decorator]
def _silu_mul(out, merged, width, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    gate = tl.load(merged + row * 2 * width + columns, mask=inside).to(tl.float32)
    up = tl.load(merged + row * 2 * width + width + columns, mask=inside).to(tl.float32)
    tl.store(out + row * width + columns, gate * tl.sigmoid(gate) * up, mask=inside)


def silu_mul(out: torch.Tensor, merged: torch.Tensor) -> None:
    """out[m, f] = silu(merged[m, f]) * merged[m, F + f], both contiguous; on the CPU by torch."""
    rows, width = out.shape
    if not out.is_cuda:
        gate, up = merged.chunk(2, dim=1)
        out.copy_(torch.nn.functional.silu(gate) * up)
        return
    _silu_mul[(rows, triton.cdiv(width, _BLOCK))](out, merged, width, BLOCK=_BLOCK, num_warps=4)
