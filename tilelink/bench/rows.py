"""What is measured: an operator and sizes. The shapes are those of feed-forward layers of known models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from tilelink.bench.errors import RowNotDivisible, UnknownDtype, UnknownOperator, UnknownRow
from tilelink.errors import did_you_mean
from tilelink.ir.dtype import DTYPE_BYTES


class Operator(Enum):
    AG_GEMM = "ag_gemm"  # [M/R, H] -> gather -> [M, H] @ [H, F/R]
    GEMM_RS = "gemm_rs"  # [M, F/R] @ [F/R, H] -> sum of all ranks -> [M/R, H]
    GEMM_AR = "gemm_ar"  # [M, F/R] @ [F/R, H] -> sum of all ranks -> [M, H]
    MLP = "mlp"  # gather, two matmuls and a gate, matmul, scatter


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
DEFAULT_MLP_NAMES = tuple(f"{model}{m}" for model in ("llama3-8b", "llama3-70b") for m in ("", "-m2048", "-m1024"))


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the results: global sizes, for any number of ranks."""

    operator: Operator
    name: str
    m: int  # rows of the activations: tokens
    hidden: int
    ffn: int
    dtype: str

    @property
    def key(self) -> str:
        return f"{self.operator.value} {self.name} {self.dtype}"

    @property
    def k_major(self) -> bool:
        """Whether weights lie as [N, K]."""
        return self.name.endswith(K_MAJOR)

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

    def flops(self, num_ranks: int) -> float:
        """Floating-point operations of the matmuls of one rank in one call."""
        matmuls = 3 if self.operator is Operator.MLP else 1
        return 2.0 * matmuls * self.m * self.hidden * self.ffn / num_ranks

    def bytes_in(self, num_ranks: int) -> float:
        """Bytes that any algorithm without multicast must bring into each rank in one call."""
        whole = self.m * self.hidden * DTYPE_BYTES[self.dtype] * (num_ranks - 1) / num_ranks
        match self.operator:
            case Operator.AG_GEMM | Operator.GEMM_RS:
                return whole
            case Operator.GEMM_AR | Operator.MLP:
                return 2.0 * whole


def parse_operators(names: Iterable[str]) -> tuple[Operator, ...]:
    """Operators of these names; all four for none. Raises UnknownOperator."""
    legal = [operator.value for operator in Operator]
    for name in (found := list(names)):
        if name not in legal:
            raise UnknownOperator(name=name, hint=did_you_mean(name, legal), legal=", ".join(legal))
    return tuple(operator for operator in Operator if not found or operator.value in found)


def select(operators: Sequence[Operator], names: Iterable[str], dtype: str, num_ranks: int) -> tuple[Row, ...]:
    """Rows of these operators and names, each once, in the order written; `default` for no names.

    Raises UnknownRow, UnknownDtype, RowNotDivisible.
    """
    if dtype not in DTYPE_BYTES:
        raise UnknownDtype(dtype=dtype, hint=did_you_mean(dtype, DTYPE_BYTES), legal=", ".join(DTYPE_BYTES))
    rows: dict[str, Row] = {}
    for operator in operators:
        for name in list(names) or ["default"]:
            for single in _expanded(name, operator):
                row = _row(operator, single, dtype)
                _check_shares(row, num_ranks)
                rows[row.key] = row
    return tuple(rows.values())


def _expanded(name: str, operator: Operator) -> tuple[str, ...]:
    if name == "default":
        return DEFAULT_MLP_NAMES if operator is Operator.MLP else DEFAULT_NAMES
    plain, layout = name.removesuffix(K_MAJOR), K_MAJOR if name.endswith(K_MAJOR) else ""
    model = "llama3-8b" if plain == "sweep" else plain.removesuffix("-sweep")
    if plain.endswith("sweep") and model in MODELS:
        return tuple(f"{model}-m{m}{layout}" for m in SWEEP_M)
    return (name,)


def _row(operator: Operator, name: str, dtype: str) -> Row:
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


def _check_shares(row: Row, num_ranks: int) -> None:
    shared = {"M": row.m, "ffn": row.ffn}
    if row.operator is Operator.GEMM_AR:
        del shared["M"]
    for what, size in shared.items():
        if size % num_ranks:
            raise RowNotDivisible(row=row.key, what=f"{what} = {size}", num_ranks=num_ranks)
