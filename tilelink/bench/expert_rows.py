"""Sizes of operators with experts: layers of known models, or `TOKENSxHIDDENxWIDTHxEXPERTSxCHOICES`."""

from __future__ import annotations

import re
from typing import NamedTuple

from tilelink.bench.errors import UnknownExpertRow
from tilelink.errors import did_you_mean

EXPERT_MODELS = {  # hidden, width of an expert, experts, experts of a token
    "qwen1.5-moe": (2048, 1408, 60, 4),
    "qwen3-30b-a3b": (2048, 768, 128, 8),
    "mixtral-8x7b": (4096, 14336, 8, 2),
    "deepseek-v2": (5120, 1536, 160, 6),
    "deepseek-v3": (7168, 2048, 256, 8),
}
EXPERT_SWEEP = "qwen3-30b-a3b"  # that a sweep without a model takes
QUICK_EXPERTS = "qwen3-30b-a3b-m256"
DEFAULT_CUT_NAMES = (  # experts that are cut over the ranks
    "qwen1.5-moe-m512",
    "deepseek-v2-m2048",
    "mixtral-8x7b-m4096",
    "qwen3-30b-a3b-m256",
    "qwen3-30b-a3b",
)
DEFAULT_LAYER_NAMES = ("qwen3-30b-a3b-m16", "qwen3-30b-a3b-m256", "qwen3-30b-a3b", "mixtral-8x7b-m4096")


class ExpertShape(NamedTuple):
    """Global sizes."""

    name: str
    tokens: int
    hidden: int
    width: int
    experts: int
    choices: int


def expert_shape(name: str, full_tokens: int) -> ExpertShape:
    """`full_tokens`: of a name that says no number. Raises UnknownExpertRow."""
    if re.fullmatch(r"[1-9]\d*(x[1-9]\d*){4}", name):
        return ExpertShape(name, *map(int, name.split("x")))
    known = re.fullmatch(r"(.+?)(?:-m([1-9]\d*))?", name)
    if known is None or known[1] not in EXPERT_MODELS:
        legal = ["default", "sweep", *EXPERT_MODELS]
        raise UnknownExpertRow(name=name, hint=did_you_mean(name, legal), legal=", ".join(EXPERT_MODELS))
    tokens = int(known[2] or full_tokens)
    rows = "" if tokens == full_tokens else f"-m{tokens}"
    return ExpertShape(f"{known[1]}{rows}", tokens, *EXPERT_MODELS[known[1]])
