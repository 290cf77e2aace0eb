"""What is timed as computing alone: which calls a spec has, and what shapes they return."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed as dist

from tests.pipeline.attention_specs import How
from tests.pipeline.attention_specs import spec_of as prefill_of
from tests.pipeline.decode_specs import How as More
from tests.pipeline.decode_specs import spec_of as decode_of
from tilelink.ir.spec import BoundSpec, bind
from tilelink.profiling.alone import alone_calls
from tilelink.spec_file import load_overlap

LAYER = {"B": 2, "S": 64, "Q": 8, "G": 4, "D": 16, "H": 32}
PREFILL = {"B": 2, "S": 64, "Q": 8, "G": 2, "D": 16}


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def example(name: str, **sizes: int) -> BoundSpec:
    return bind(load_overlap(f"examples/{name}").spec, sizes, 2, "fp32")


def shapes(spec: BoundSpec) -> list[tuple[int, ...]]:
    return [tuple(call().shape) for call in alone_calls(spec, "cpu")]


def test_matmuls_have_the_sizes_of_a_rank() -> None:
    assert shapes(example("02_ag_gemm.py:ag_gemm", M=64, K=32, N=48)) == [(64, 24)]
    assert shapes(example("05_mlp.py:mlp", M=64, H=32, F=96)) == [(64, 48), (64, 48), (64, 32)]


def test_heads_of_a_rank_attend_to_all_tokens() -> None:
    layer = example("15_attention_layer.py:attention_layer", **LAYER)
    assert shapes(layer) == [(128, 64), (128, 32), (128, 32), (2, 64, 4, 16), (128, 32)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.usefixtures("one_rank")
@pytest.mark.filterwarnings("ignore:.*all_gather_into_tensor:FutureWarning")  # older torch has no other name
def test_queries_of_a_rank_attend(causal: bool) -> None:
    spec = bind(prefill_of("gathered", How(causal=causal)).spec, PREFILL, 2, "fp32")
    assert shapes(spec) == [(2, 32, 8, 16)]


def test_nothing_is_timed_where_something_else_takes_long() -> None:
    assert not alone_calls(bind(prefill_of("gathered", How(causal=True, window=8)).spec, PREFILL, 2, "fp32"), "cpu")
    assert not alone_calls(bind(decode_of("heads", More()).spec, PREFILL, 2, "fp32"), "cpu")
    experts = example("07_ag_moe.py:ag_moe", T=64, H=32, F=32, E=4, K=2)
    assert not alone_calls(experts, "cpu")
    assert not alone_calls(example("11_reduce_scatter.py:all_gather", M=64, N=32), "cpu")
