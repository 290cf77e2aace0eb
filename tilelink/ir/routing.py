"""What `tilelink.route` returns: a routing inside of a spec."""

from __future__ import annotations

from dataclasses import dataclass

import sympy

from tilelink.ir.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Routing:
    """Tokens of `table` [T, K] to `num_experts` experts. It is no tensor: grouped_matmul and combine take it."""

    table: Tensor
    num_experts: sympy.Expr | int
