"""What is measured: an operator and sizes. The shapes are those of feed-forward layers of known models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import torch

from tilelink.bench.errors import (
    MoreChoicesThanExperts,
    RoutingWithoutExperts,
    RowNotDivisible,
    UnknownDtype,
    UnknownOperator,
    UnknownRow,
)
from tilelink.bench.expert_rows import (
    DEFAULT_CUT_NAMES,
    DEFAULT_LAYER_NAMES,
    EXPERT_MODELS,
    EXPERT_SWEEP,
    QUICK_EXPERTS,
    expert_shape,
)
from tilelink.bench.routings import DRAWINGS, Busiest, Routing, busiest, busiest_of, drawing, rows_between
from tilelink.errors import did_you_mean
from tilelink.ir.dtype import DTYPE_BYTES


class Operator(Enum):
    AG_GEMM = "ag_gemm"  # [M/R, H] -> gather -> [M, H] @ [H, F/R]
    GEMM_RS = "gemm_rs"  # [M, F/R] @ [F/R, H] -> sum of all ranks -> [M/R, H]
    GEMM_AR = "gemm_ar"  # [M, F/R] @ [F/R, H] -> sum of all ranks -> [M, H]
    MLP = "mlp"  # gather, two matmuls and a gate, matmul, scatter
    AG_MOE = "ag_moe"  # [M/R, H] -> gather -> each token @ the [H, F/R] of its experts
    MOE_RS = (
        "moe_rs"  # rows of tokens @ the [F/R, H] of their experts -> sums of tokens -> sum of all ranks -> [M/R, H]
    )
    EP_LAYER = (
        "ep_layer"  # [M/R, H] -> gated MLPs of a token's experts, which are on ranks -> sums of tokens -> [M/R, H]
    )


WITH_EXPERTS = (Operator.AG_MOE, Operator.MOE_RS, Operator.EP_LAYER)
WITHOUT_EXPERTS = (Operator.AG_GEMM, Operator.GEMM_RS, Operator.GEMM_AR, Operator.MLP)
MODELS = {  # hidden, ffn
    "llama-7b": (4096, 11008),
    "llama3-8b": (4096, 14336),
    "llama3-70b": (8192, 28672),
    "llama3-405b": (16384, 53248),
    "qwen2-72b": (8192, 29568),
    "gpt3-175b": (12288, 49152),
}
FULL_M = 8192  # rows (tokens) of a name without -mM
SWEEP_M = tuple(2**power for power in range(4, 15))  # 16 ... 16384
K_MAJOR = "-kmajor"  # end of the name of a row whose weights lie as [N, K], as those of torch.nn.Linear
DEFAULT_NAMES = (*MODELS, "llama3-8b-m2048", "llama3-70b-m1024")
QUICK = "quick"  # the name of one row an operator
DEFAULT_MLP_NAMES = tuple(f"{model}{m}" for model in ("llama3-8b", "llama3-70b") for m in ("", "-m2048", "-m1024"))


@dataclass(frozen=True, slots=True)
class Experts:
    number: int  # of all ranks
    choices: int  # experts of a token
    routing: Routing


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the results: global sizes, for any number of ranks."""

    operator: Operator
    name: str
    m: int  # rows of the activations: tokens
    hidden: int
    ffn: int  # of all ranks; of one expert
    dtype: str
    experts: Experts | None = None  # of an operator that has some

    @property
    def key(self) -> str:
        return row_key(self.operator.value, self.name, self.experts.routing.value if self.experts else "", self.dtype)

    @property
    def title(self) -> str:
        return self.operator.value

    @property
    def k_major(self) -> bool:
        """Whether weights lie as [N, K]."""
        return self.name.endswith(K_MAJOR)

    @property
    def routed(self) -> Experts:
        """The experts, where the operator has some."""
        assert self.experts is not None, f"{self.operator.value} has experts"
        return self.experts

    @property
    def on_ranks(self) -> bool:
        """Whether each rank has tokens and experts of its own, not a part of every expert and all ids."""
        return self.operator is Operator.EP_LAYER

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes under the names that the operator's declaration has for them."""
        match self.operator:
            case Operator.AG_GEMM:
                return {"M": self.m, "K": self.hidden, "N": self.ffn}
            case Operator.GEMM_RS | Operator.GEMM_AR:
                return {"M": self.m, "K": self.ffn, "N": self.hidden}
            case Operator.MLP:
                return {"M": self.m, "H": self.hidden, "F": self.ffn}
            case Operator.AG_MOE | Operator.MOE_RS | Operator.EP_LAYER:
                sizes = {"T": self.m, "H": self.hidden, "F": self.ffn}
                return {**sizes, "E": self.routed.number, "K": self.routed.choices}

    def flops(self, num_ranks: int) -> float:
        """Floating-point operations of the matmuls of one rank in one call; of the mean rank, where they differ."""
        matmuls = 3 if self.operator in (Operator.MLP, Operator.EP_LAYER) else 1
        choices = self.experts.choices if self.experts is not None else 1
        return 2.0 * matmuls * self.m * choices * self.hidden * self.ffn / num_ranks

    def bytes_in(self, num_ranks: int) -> float:
        """Bytes that any algorithm without multicast must bring into each rank in one call; into the busiest rank in the
        drawing with the fewest, where ranks differ."""
        row_bytes = self.hidden * DTYPE_BYTES[self.dtype]
        whole = self.m * row_bytes * (num_ranks - 1) / num_ranks
        match self.operator:
            case Operator.AG_GEMM | Operator.GEMM_RS | Operator.AG_MOE | Operator.MOE_RS:
                return whole
            case Operator.GEMM_AR | Operator.MLP:
                return 2.0 * whole
            case Operator.EP_LAYER:
                every = [self.ids_of_ranks(number, num_ranks) for number in range(DRAWINGS)]
                return float(row_bytes * min(rows_between(ids, self.routed.number) for ids in every))

    def ids(self, number: int, rank: int, num_ranks: int) -> torch.Tensor:
        """The experts of a rank's tokens in a drawing; of all tokens, where every rank has all ids. Shared: copy it."""
        experts = self.routed
        tokens, rank = (self.m // num_ranks, rank) if self.on_ranks else (self.m, 0)
        return drawing(experts.routing, tokens, experts.number, experts.choices, number, rank)

    def ids_of_ranks(self, number: int, num_ranks: int) -> torch.Tensor:
        """[ranks, tokens of a rank, choices]; one part, where every rank has all ids."""
        parts = num_ranks if self.on_ranks else 1
        return torch.stack([self.ids(number, rank, num_ranks) for rank in range(parts)])

    def busiest(self, num_ranks: int) -> Busiest:
        """In any drawing."""
        every = [self.ids_of_ranks(number, num_ranks).flatten() for number in range(DRAWINGS)]
        counts = [ids.bincount(minlength=self.routed.number) for ids in every]
        return busiest_of(busiest(one, num_ranks, of_ranks=self.on_ranks) for one in counts)

    def with_routings(self, routings: Sequence[Routing]) -> tuple[Row, ...]:
        """The row with each routing; as it is, if there are none or it has no experts."""
        if self.experts is None or not routings:
            return (self,)
        return tuple(replace(self, experts=replace(self.experts, routing=routing)) for routing in routings)

    @property
    def planned_as(self) -> Row:
        """Rows for which this is the same have the same schedules: a plan is for any routing."""
        return self.with_routings((Routing.UNIFORM,))[0]


def row_key(operator: str, name: str, routing: str, dtype: str) -> str:
    return " ".join(filter(None, (operator, name, routing, dtype)))


def parse_operators(names: Iterable[str]) -> tuple[Operator, ...]:
    """Operators of these names; for none the four without experts. Raises UnknownOperator."""
    legal = [operator.value for operator in Operator]
    for name in (found := list(names)):
        if name not in legal:
            raise UnknownOperator(name=name, hint=did_you_mean(name, legal), legal=", ".join(legal))
    return tuple(operator for operator in Operator if operator.value in found) or WITHOUT_EXPERTS


def select(
    operators: Sequence[Operator],
    names: Iterable[str],
    dtype: str,
    num_ranks: int,
    routings: Sequence[Routing] = (),
) -> tuple[Row, ...]:
    """Rows of these operators and names, each once, in the order written; `default` for no names. Those with experts come with
    each routing, or with an even one.

    Raises UnknownRow, UnknownExpertRow, UnknownDtype, RowNotDivisible, MoreChoicesThanExperts, RoutingWithoutExperts.
    """
    check_asked(operators, dtype, routings)
    rows: dict[str, Row] = {}
    for operator in operators:
        for name in list(names) or ["default"]:
            for single in _expanded(name, operator):
                row = _row(operator, single, dtype)
                check_shares(row, num_ranks)
                rows |= {one.key: one for one in row.with_routings(routings)}
    return tuple(rows.values())


def check_asked(operators: Sequence[Operator], dtype: str, routings: Sequence[Routing]) -> None:
    """Raises UnknownDtype, RoutingWithoutExperts."""
    if dtype not in DTYPE_BYTES:
        raise UnknownDtype(dtype=dtype, hint=did_you_mean(dtype, DTYPE_BYTES), legal=", ".join(DTYPE_BYTES))
    if routings and not any(operator in WITH_EXPERTS for operator in operators):
        raise RoutingWithoutExperts(
            routing=",".join(one.value for one in routings),
            operators=", ".join(one.value for one in operators),
            legal=", ".join(one.value for one in WITH_EXPERTS),
        )


def _expanded(name: str, operator: Operator) -> tuple[str, ...]:
    has_experts = operator in WITH_EXPERTS
    if name == QUICK:
        return (QUICK_EXPERTS if has_experts else "llama3-8b",)
    if name == "default":
        return _default_names(operator)
    plain, layout = name.removesuffix(K_MAJOR), K_MAJOR if name.endswith(K_MAJOR) else ""
    first = EXPERT_SWEEP if has_experts else "llama3-8b"
    model = first if plain == "sweep" else plain.removesuffix("-sweep")
    if plain.endswith("sweep") and model in (EXPERT_MODELS if has_experts else MODELS):
        return tuple(f"{model}-m{m}{layout}" for m in SWEEP_M)
    return (name,)


def _default_names(operator: Operator) -> tuple[str, ...]:
    match operator:
        case Operator.AG_GEMM | Operator.GEMM_RS | Operator.GEMM_AR:
            return DEFAULT_NAMES
        case Operator.MLP:
            return DEFAULT_MLP_NAMES
        case Operator.AG_MOE | Operator.MOE_RS:
            return DEFAULT_CUT_NAMES
        case Operator.EP_LAYER:
            return DEFAULT_LAYER_NAMES


def _row(operator: Operator, name: str, dtype: str) -> Row:
    if operator in WITH_EXPERTS:
        shape = expert_shape(name, FULL_M)
        experts = Experts(shape.experts, shape.choices, Routing.UNIFORM)
        return Row(operator, shape.name, shape.tokens, shape.hidden, shape.width, dtype, experts)
    plain, layout = name.removesuffix(K_MAJOR), K_MAJOR if name.endswith(K_MAJOR) else ""
    custom = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)x([1-9]\d*)", plain)
    if custom:
        m, hidden, ffn = (int(text) for text in custom.groups())
        return Row(operator, name, m, hidden, ffn, dtype)
    known = re.fullmatch(r"(.+?)(?:-m([1-9]\d*))?", plain)
    if known is None or known[1] not in MODELS:
        legal = ["default", "sweep", *MODELS]
        raise UnknownRow(name=name, hint=did_you_mean(name, legal), legal=", ".join(MODELS))
    hidden, ffn = MODELS[known[1]]
    m = int(known[2] or FULL_M)
    rows = "" if m == FULL_M else f"-m{m}"
    return Row(operator, f"{known[1]}{rows}{layout}", m, hidden, ffn, dtype)


def check_shares(row: Row, num_ranks: int) -> None:
    for what, size in _shared(row).items():
        if size % num_ranks:
            raise RowNotDivisible(row=row.key, what=f"{what} = {size}", num_ranks=num_ranks)
    if row.experts is not None and row.experts.choices > row.experts.number:
        raise MoreChoicesThanExperts(row=row.key, choices=row.experts.choices, experts=row.experts.number)


def _shared(row: Row) -> dict[str, int]:
    """Sizes of which each rank has a part."""
    match row.operator:
        case Operator.AG_GEMM | Operator.GEMM_RS | Operator.MLP:
            return {"M": row.m, "ffn": row.ffn}
        case Operator.GEMM_AR:
            return {"ffn": row.ffn}
        case Operator.AG_MOE | Operator.MOE_RS:
            return {"tokens": row.m, "width of an expert": row.ffn}
        case Operator.EP_LAYER:
            return {"tokens": row.m, "experts": row.routed.number}
