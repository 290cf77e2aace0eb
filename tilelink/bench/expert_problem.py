"""Inputs of operators with experts: activations, drawn ids of experts, weights of a token's experts, matrices of experts."""

from __future__ import annotations

import torch

from tilelink.bench.routings import DRAWINGS
from tilelink.bench.rows import Operator, Row
from tilelink.measuring.contender import Inputs
from tilelink.measuring.device import Change
from tilelink.measuring.normal import normal, seed_of

_IDS, _WEIGHTS = "ids", "weights"
_ACTIVATIONS = ("x", "h", _IDS, _WEIGHTS)  # these come first


def shapes(row: Row, num_ranks: int) -> dict[str, tuple[int, ...]]:
    """Local shapes by name, in the order of the declaration."""
    experts = row.routed
    tokens, width, own = row.m // num_ranks, row.ffn // num_ranks, experts.number // num_ranks
    match row.operator:
        case Operator.AG_MOE:
            ids = (row.m, experts.choices)
            return {"x": (tokens, row.hidden), _IDS: ids, "w": (experts.number, row.hidden, width)}
        case Operator.MOE_RS:
            ids = (row.m, experts.choices)
            rows = (row.m * experts.choices, width)
            return {"h": rows, _IDS: ids, _WEIGHTS: ids, "w": (experts.number, width, row.hidden)}
        case Operator.EP_LAYER:
            ids, into = (tokens, experts.choices), (own, row.hidden, row.ffn)
            found: dict[str, tuple[int, ...]] = {"x": (tokens, row.hidden), _IDS: ids, _WEIGHTS: ids}
            return {**found, "gate": into, "up": into, "down": (own, row.ffn, row.hidden)}
        case Operator.AG_GEMM | Operator.GEMM_RS | Operator.GEMM_AR | Operator.MLP:
            raise AssertionError(f"{row.operator.value} has no experts")


def input_types(row: Row) -> list[str]:
    types = {_IDS: "int32", _WEIGHTS: "fp32"}
    return [types.get(name, row.dtype) for name in shapes(row, 1)]


def make_expert_inputs(row: Row, rank: int, num_ranks: int, seed: int, device: torch.device) -> Inputs:
    """Other ones on every rank, but for ids and weights of tokens that every rank has. Ids are the first drawing."""
    return _made(row, rank, num_ranks, seed, device, 0, list(shapes(row, num_ranks)))


def make_expert_activations(row: Row, rank: int, num_ranks: int, seed: int, device: torch.device) -> Inputs:
    """The inputs that come first, with ids of a drawing that nothing is timed with."""
    names = [name for name in shapes(row, num_ranks) if name in _ACTIVATIONS]
    return _made(row, rank, num_ranks, seed, device, DRAWINGS, names)


def _made(
    row: Row, rank: int, num_ranks: int, seed: int, device: torch.device, drawing: int, names: list[str]
) -> Inputs:
    """Rows of weights add up to 1, as those of a router; products of matrices stay near 1."""
    found = []
    for number, (name, shape) in enumerate(shapes(row, num_ranks).items()):
        if name not in names:
            continue
        if name == _IDS:
            found.append(row.ids(drawing, rank, num_ranks).to(device, copy=True))
        elif name == _WEIGHTS:
            own = seed_of(seed, rank if row.on_ranks else 0, number)
            found.append(normal(shape, 1.0, own, "fp32", device).softmax(1))
        else:
            scale = 1.0 if name in _ACTIVATIONS else _contracted(row, name) ** -0.5
            found.append(normal(shape, scale, seed_of(seed, rank, number), row.dtype, device))
    return tuple(found)


def _contracted(row: Row, name: str) -> int:
    """Global size of the dimension that a grouped matmul contracts."""
    return row.ffn if name == "down" or row.operator is Operator.MOE_RS else row.hidden


def changing_ids(row: Row, rank: int, num_ranks: int, inputs: Inputs) -> Change:
    """Before each batch the ids are overwritten with those of the next drawing."""
    held = inputs[list(shapes(row, num_ranks)).index(_IDS)]
    drawings = [row.ids(number, rank, num_ranks).to(held.device, copy=True) for number in range(DRAWINGS)]
    return lambda number: held.copy_(drawings[number % DRAWINGS])
