"""Tensors of a spec: with symbolic shapes as traced, and with sizes as bound."""

from __future__ import annotations

import math
from dataclasses import dataclass

import sympy

from tilelink.ir.dtype import DTYPES
from tilelink.ir.location import Location
from tilelink.ir.placement import Placement


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the spec. `shape` is global; `dtype` is empty where the dtype given to `plan` applies."""

    name: str
    shape: tuple[sympy.Expr, ...]
    placement: Placement
    dtype: str
    location: Location


@dataclass(frozen=True, slots=True)
class BoundValue:
    """A tensor with its sizes: `shape` global, `local` what one rank holds (a Partial summand has the global shape), or the most
    that one holds: of matrices of experts the last ranks may hold fewer."""

    name: str
    shape: tuple[int, ...]
    local: tuple[int, ...]
    placement: Placement
    dtype: str

    @property
    def num_bytes(self) -> int:
        """Bytes of one rank's part."""
        return math.prod(self.local) * DTYPES[self.dtype].bytes
