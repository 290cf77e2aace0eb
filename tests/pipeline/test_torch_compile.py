"""torch.compile around an operator: the graph breaks there, and the operator runs as it is."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest
import torch

import lowering
from tilelink.demo import ag_gemm
from tilelink.emulator import World


class Layer(torch.nn.Module):
    def __init__(self, op: object) -> None:
        super().__init__()
        self.op = op

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.op(x * 2, w)  # type: ignore[operator]
        return result


@pytest.mark.slow
def test_a_compiled_module_calls_the_operator() -> None:
    world = World(2, num_sms=8)
    operators = [ag_gemm.compile(fabric, M=64, N=64, K=32) for fabric in world.fabrics]
    generator = torch.Generator().manual_seed(0)
    xs, ws = ([torch.randn(32, 32, generator=generator).bfloat16() for _ in operators] for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about itself
        layers = [torch.compile(Layer(op), backend="eager") for op in operators]
        for _ in range(2):
            outputs = [layer(x, w) for layer, x, w in zip(layers, xs, ws, strict=True)]
    world.run()
    for output, w in zip(outputs, ws, strict=True):
        torch.testing.assert_close(output.float(), (torch.cat(xs) * 2).float() @ w.float(), rtol=0.02, atol=0.2)


def test_calls_are_opaque() -> None:
    source = lowering.emit(ag_gemm.plan("laptop-switch", 2, M=64, N=64, K=32))
    assert "    @opaque\n    def __call__(self, x, w):\n" in source


@pytest.mark.slow
def test_nobody_pays_for_the_compiler_without_it() -> None:
    code = "import sys; from tilelink.demo import ag_gemm; from tilelink.emulator import World\n"
    code += "ops = [ag_gemm.compile(f, M=64, N=64, K=32) for f in World(2, num_sms=8).fabrics]\n"
    code += "print('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
