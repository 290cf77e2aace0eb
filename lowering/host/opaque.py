"""Calls that torch.compile does not look into."""

# mypy: disable-error-code="attr-defined,no-untyped-call"
from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch


def opaque(call: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, run as it is between the graphs of a torch.compile around it, which cannot trace launches and streams."""
    run: list[Callable[..., Any]] = []

    @functools.wraps(call)
    def opaque_call(*inputs: Any, **named: Any) -> Any:
        if "torch._dynamo" not in sys.modules:  # it takes seconds to import, and nobody compiles
            return call(*inputs, **named)
        if not run:
            run.append(torch._dynamo.disable(call))
        return run[0](*inputs, **named)

    opaque_call._torchdynamo_disable = True
    return opaque_call
