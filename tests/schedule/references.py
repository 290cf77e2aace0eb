"""What the operators in the language of steps are compared with: torch on whole tensors, routes, and functions of tiles."""

from __future__ import annotations

import torch

Tensors = list[torch.Tensor]  # one a rank


def total(parts: Tensors) -> torch.Tensor:
    return torch.stack(parts).sum(0)


def summed_product(x: Tensors, w: Tensors) -> torch.Tensor:
    return total([a @ b for a, b in zip(x, w, strict=True)])


def attention(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ keys.T, dim=1) @ values


def routes(size: int, tokens: int) -> dict[str, torch.Tensor]:
    """Which rank each token goes to, which row it has there, how many come, and which token a row is."""
    shapes = {"to": (size, tokens), "row": (size, tokens), "rows": (size, size), "token": (size, size, tokens)}
    found = {name: torch.full(shape, -1, dtype=torch.int32) for name, shape in shapes.items()}
    found["rows"][:] = 0
    for r in range(size):
        for t in range(tokens):
            to = (r * 2 + t * t + 1) % size
            found["to"][r, t], found["row"][r, t] = to, found["rows"][r, to]
            found["token"][r, to, found["rows"][r, to]] = t
            found["rows"][r, to] += 1
    return found


FOLD = '''
@triton.jit
def expert_fold(x, w):
    """A token times the weights of its expert, then the square of its positive part."""
    y = tl.maximum(tl.sum(tl.trans(x) * w, axis=0), 0)[None, :]
    return y * y
'''

SOFTMAX = """
@triton.jit
def softmax_step(top, total, acc, q, k, v):
    scores = tl.dot(q, tl.trans(k))
    new = tl.maximum(top, tl.max(scores, axis=1)[:, None])
    weights = tl.exp(scores - new)
    old = tl.exp(top - new)
    return new, total * old + tl.sum(weights, axis=1)[:, None], tl.dot(weights, v, acc * old)


@triton.jit
def softmax_merge(top, total, acc, top2, total2, acc2):
    new = tl.maximum(top, top2)
    old, other = tl.exp(top - new), tl.exp(top2 - new)
    return new, total * old + total2 * other, acc * old + acc2 * other


@triton.jit
def divided(acc, total):
    return acc / total
"""
