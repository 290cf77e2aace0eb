"""What a user would pick instead, for operators with experts, and their parts alone. All index work is in the time.

| name | what it is |
| --- | --- |
| `nccl_grouped` | NCCL, a stable sort and torch's grouped matmul, one after the other |
| `nccl_fused` | NCCL, and a fused Triton loop that gathers its rows; the fastest of a few tiles for the routing |
| `triton_kernels` | experts on ranks by Triton's own package of this name, where it can be imported |
| `gemm` | part: the matmuls of one rank by torch's grouped matmul, of rows in the order of experts |
| `collective` | part: the collectives of `nccl_grouped` |

Experts on ranks: the first two gather all rows, compute those of own experts, and scatter sums.
"""

from __future__ import annotations

import importlib.util

from tilelink.bench.contender import Setting
from tilelink.bench.expert_inputs import ExpertInputs
from tilelink.bench.fused_loop import FusedCall
from tilelink.bench.grouped_experts import collectives_alone, matmuls_alone, shown, with_grouped_matmul
from tilelink.bench.rows import Operator
from tilelink.measuring.contender import Contender, Kind, Mode
from tilelink.measuring.device import Call

_PACKAGE = "triton_kernels"


def expert_baselines(operator: Operator) -> list[Contender]:
    """All that apply to an operator, its parts last."""
    found = [
        Contender("nccl_grouped", Kind.BASELINE, Mode.GRAPH, _grouped, host=True, shown=shown),
        Contender("nccl_fused", Kind.BASELINE, Mode.GRAPH, _fused),
    ]
    if operator is Operator.EP_LAYER:
        found.append(Contender(_PACKAGE, Kind.BASELINE, Mode.GRAPH, _package, failure=missing_package()))
    found.append(Contender("gemm", Kind.PART, Mode.GRAPH, lambda setting: matmuls_alone(ExpertInputs.of(setting))))
    found.append(Contender("collective", Kind.PART, Mode.GRAPH, _collectives))
    return found


def missing_package() -> str:
    """Empty, or why a baseline cannot take part here."""
    if importlib.util.find_spec(_PACKAGE) is not None:
        return ""
    return f"missing: no module {_PACKAGE} here (tilelink/bench/triton_kernels_layer.py says which one)"


def _grouped(setting: Setting) -> Call:
    return with_grouped_matmul(ExpertInputs.of(setting))


def _fused(setting: Setting) -> Call:
    return FusedCall(ExpertInputs.of(setting))


def _package(setting: Setting) -> Call:
    return package_layer(ExpertInputs.of(setting))


def package_layer(layer: ExpertInputs) -> Call:
    """Imported here, since most machines do not have the package."""
    from tilelink.bench.triton_kernels_layer import with_triton_kernels

    return with_triton_kernels(layer)


def _collectives(setting: Setting) -> Call:
    return collectives_alone(ExpertInputs.of(setting))
