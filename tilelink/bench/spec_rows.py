"""Rows of a spec of the user's: any operator, measured against the same spec by library calls."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from tilelink.bench.errors import SizesTwice
from tilelink.bench.operators import declaration
from tilelink.bench.routings import Routing
from tilelink.bench.rows import K_MAJOR, WITHOUT_EXPERTS, Operator, Row, row_key
from tilelink.declaration import Overlap
from tilelink.errors import TileLinkError
from tilelink.ir.dtype import DTYPE_BYTES
from tilelink.ir.spec import AllGather, AllReduce, BoundSpec, BoundValue, ReduceScatter, bind
from tilelink.measuring.spec_problem import flops_of
from tilelink.spec_file import parse_sizes


@dataclass(frozen=True, slots=True)
class SpecRow:
    """One line of the results, with the properties of `Row` that any spec has."""

    spec: BoundSpec
    dtype: str  # of tensors that declare none
    experts: None = None  # routings are random ones: ids are inputs like others
    hidden: int = 0
    ffn: int = 0

    @property
    def title(self) -> str:
        return self.spec.name

    @property
    def name(self) -> str:
        return " ".join(f"{name}={size}" for name, size in self.spec.sizes)

    @property
    def key(self) -> str:
        return row_key(self.title, self.name, "", self.dtype)

    @property
    def m(self) -> int:
        """Rows of the first input."""
        return self.spec.inputs[0].shape[0]

    def flops(self, num_ranks: int) -> float:
        """Of the matmuls of one rank in one call."""
        return flops_of(self.spec)

    def bytes_in(self, num_ranks: int) -> float:
        """Bytes that collectives of whole tensors must bring into each rank in one call; without rows of experts."""
        times = {AllGather: 1, ReduceScatter: 1, AllReduce: 2}
        collectives = ((times.get(type(node.operation), 0), node.output) for node in self.spec.nodes)
        whole = sum(count * math.prod(value.shape) * DTYPE_BYTES[value.dtype] for count, value in collectives)
        return whole * (num_ranks - 1) / num_ranks

    def with_routings(self, routings: Sequence[Routing]) -> tuple[SpecRow, ...]:
        return (self,)

    @property
    def planned_as(self) -> SpecRow:
        return self


AnyRow = Row | SpecRow


def bound_of(row: AnyRow, num_ranks: int) -> BoundSpec:
    """What a row measures, with its sizes."""
    if isinstance(row, SpecRow):
        return row.spec
    return bind(declaration(row.operator, row.k_major).spec, row.sizes, num_ranks, row.dtype)


def spec_rows(overlap: Overlap, sizes: Sequence[str], dtype: str, num_ranks: int) -> tuple[AnyRow, ...]:
    """A row for each combination of `M=1000,3000 K=4096`. A spec that says the same as an operator with baselines of its own is
    a row of that operator. Raises SizesTwice, and what `parse_sizes` and `bind` raise."""
    bounds = (bind(overlap.spec, one, num_ranks, dtype) for one in each_size(sizes))
    found = [recognised(one, dtype) or SpecRow(one, dtype) for one in bounds]
    return tuple(dict.fromkeys(found))


def each_size(sizes: Sequence[str]) -> list[dict[str, int]]:
    """Every combination of the values between commas."""
    listed = []
    for text in sizes:
        name, equals, values = text.partition("=")
        several = [f"{name}={value}" for value in values.split(",")] if equals else [text]
        if len(set(several)) < len(several):
            raise SizesTwice(size=text)
        listed.append(several)
    return [parse_sizes(combination) for combination in product(*listed)]


def recognised(spec: BoundSpec, dtype: str) -> Row | None:
    """The row that has the same meaning, if one of the operators without experts does; parameters in the same order."""
    for operator, k_major in product(WITHOUT_EXPERTS, (False, True)):
        row = _like(spec, operator, k_major, dtype)
        if row is None:
            continue
        try:
            other = bound_of(row, spec.num_ranks)
        except TileLinkError:
            continue
        if _plain(other) == _plain(spec):
            return row
    return None


def _like(spec: BoundSpec, operator: Operator, k_major: bool, dtype: str) -> Row | None:
    """The only row of an operator that could be this spec, by the shapes of its first two inputs."""
    shapes = [value.shape for value in spec.inputs[:2]]
    if len(shapes) < 2 or any(len(shape) != 2 for shape in shapes):
        return None
    (m, k), n = shapes[0], shapes[1][0 if k_major else 1]
    hidden, ffn = (n, k) if operator in (Operator.GEMM_RS, Operator.GEMM_AR) else (k, n)
    name = f"{m}x{hidden}x{ffn}{K_MAJOR if k_major else ''}"
    return Row(operator, name, m, hidden, ffn, dtype)


def _plain(spec: BoundSpec) -> tuple[object, ...]:
    """Without names, which users choose, and lines."""
    values: tuple[BoundValue, ...] = (*spec.inputs, *(node.output for node in spec.nodes))
    numbers: Mapping[str, str] = {value.name: f"v{number}" for number, value in enumerate(values)}

    def plain(value: BoundValue) -> BoundValue:
        return replace(value, name=numbers[value.name])

    nodes = tuple(
        (node.operation, tuple(numbers[name] for name in node.inputs), plain(node.output)) for node in spec.nodes
    )
    return tuple(map(plain, spec.inputs)), nodes, tuple(numbers[name] for name in spec.outputs), spec.num_ranks
