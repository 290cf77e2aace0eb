"""Rows that nobody chose: widths of published models with any number of rows, drawn by a seed.

Numbers of rows are spread evenly on a logarithmic scale and not rounded, except to what ranks can share; half of the rows have
K-major weights. A prefix of a drawing is a drawing: its rows take operators in turn.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence

from tilelink.bench.errors import DrawnExperts, MalformedDrawing
from tilelink.bench.routings import Routing
from tilelink.bench.rows import K_MAJOR, MODELS, WITH_EXPERTS, WITHOUT_EXPERTS, Operator, Row, check_asked, check_shares

MOST_ROWS = 16_384
WIDTHS = (  # hidden, ffn: of the configurations that their makers have published
    *MODELS.values(),
    (5120, 13824),  # LLaMA 13B, Qwen2.5 14B
    (3584, 18944),  # Qwen2 7B
    (5120, 27648),  # Qwen2.5 32B
    (5120, 25600),  # Qwen3 32B
    (3584, 14336),  # Gemma 2 9B
    (4608, 36864),  # Gemma 2 27B
    (5120, 14336),  # Mistral Nemo
    (12288, 28672),  # Mistral Large
    (7168, 18432),  # DeepSeek V3, its dense layers
    (5120, 17920),  # Phi 3 medium
    (7168, 20480),  # Yi 34B
    (8192, 22528),  # Command R
    (6144, 16384),  # InternLM2 20B
    (4096, 13696),  # GLM 4 9B
)
_GATHERED = (Operator.AG_GEMM, Operator.GEMM_RS, Operator.MLP)  # each rank has a part of the rows


def drawn(
    seed: int, count: int, operators: Sequence[Operator], dtype: str, num_ranks: int, routings: Sequence[Routing] = ()
) -> tuple[Row, ...]:
    """`count` rows, no two alike, of these operators, which have no experts.

    Raises DrawnExperts, UnknownDtype, RoutingWithoutExperts, RowNotDivisible if no published width can be shared by so many
    ranks.
    """
    experts = [one.value for one in operators if one in WITH_EXPERTS]
    if experts:
        legal = ", ".join(one.value for one in WITHOUT_EXPERTS)
        raise DrawnExperts(drawn=f"{seed}:{count}", operators=", ".join(experts), legal=legal)
    check_asked(operators, dtype, routings)
    rng = random.Random(seed)
    widths = [one for one in WIDTHS if one[1] % num_ranks == 0] or list(WIDTHS)
    found: dict[str, Row] = {}
    while len(found) < count:
        operator = operators[len(found) % len(operators)]
        hidden, ffn = rng.choice(widths)
        m = max(1, round(math.exp(rng.uniform(0.0, math.log(MOST_ROWS)))))
        if operator in _GATHERED:
            m = max(1, round(m / num_ranks)) * num_ranks
        name = f"{m}x{hidden}x{ffn}{K_MAJOR if rng.random() < 0.5 else ''}"
        row = Row(operator, name, m, hidden, ffn, dtype)
        check_shares(row, num_ranks)
        found.setdefault(row.key, row)
    return tuple(found.values())


def parse_drawing(text: str) -> tuple[int, int]:
    """Seed and number of rows of `7:40`. Raises MalformedDrawing."""
    found = re.fullmatch(r"(\d+):([1-9]\d*)", text.strip())
    if found is None:
        raise MalformedDrawing(text=text)
    return int(found[1]), int(found[2])
