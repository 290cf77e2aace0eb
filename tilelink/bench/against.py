"""Which baselines take part: all that apply to an operator, or those that the user names."""

from __future__ import annotations

from tilelink.bench.errors import UnknownBaseline
from tilelink.errors import did_you_mean
from tilelink.measuring.contender import Contender, Kind

TWO_STREAM_CHUNKS = (2, 4)
_TWO_STREAMS = (f"two_stream_{chunks}" for chunks in TWO_STREAM_CHUNKS)
EXPERT_NAMES = ("nccl_grouped", "nccl_fused", "triton_kernels")  # of operators with experts
ATTENTION_NAMES = ("nccl_attention", "torch_context_parallel", "nccl_split_kv")  # of specs with attention
BASELINE_NAMES = (
    "nccl_cublas",
    "async_tp",
    "async_tp_graph",
    *_TWO_STREAMS,
    "one_shot",
    "two_shot",
    *EXPERT_NAMES,
    *ATTENTION_NAMES,
)


def parse_against(text: str) -> str:
    """Names of baselines without what is around them. Raises UnknownBaseline."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in BASELINE_NAMES:
            raise UnknownBaseline(name=name, hint=did_you_mean(name, BASELINE_NAMES), legal=", ".join(BASELINE_NAMES))
    return ",".join(names)


def chosen(contenders: list[Contender], against: str) -> list[Contender]:
    """The baselines named in `against`, or all, and the parts, which the limit and the load are made of."""
    names = against.split(",") if against else BASELINE_NAMES
    return [one for one in contenders if one.kind is not Kind.BASELINE or one.name in names]
