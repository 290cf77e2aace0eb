"""Schedule -> one standalone file: header, helpers, kernels, host class, self-check."""

from __future__ import annotations

import ast
from pathlib import Path

from lowering.embed import embed
from lowering.entry import print_main
from lowering.host import symmetric_memory
from lowering.host_class import HostPrinter
from lowering.kernels import print_kernel
from lowering.names import class_name
from lowering.source import Source
from tilelink.errors import UnknownTarget, did_you_mean
from tilelink.ir.schedule import Schedule
from tilelink.ir.user_op import UserOp

TARGETS = ("triton",)

_IMPORTS = """from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

try:
    import cuda.bindings.driver as driver
except ImportError:  # copies go through torch then; streams cannot wait for words of memory
    driver = None
"""


def emit(schedule: Schedule, target: str = "triton") -> str:
    """Source text of `schedule`. The file imports torch and triton only. Raises UnknownTarget."""
    if target not in TARGETS:
        raise UnknownTarget(target=target, hint=did_you_mean(target, TARGETS), known=", ".join(TARGETS))
    kernels = tuple(print_kernel(schedule, kernel) for kernel in schedule.kernels())
    host = HostPrinter(schedule, kernels).text()
    user = _user_bodies(schedule)
    body = "\n\n".join([user, *(printed.text for printed in kernels)]).strip("\n")
    sections = [
        ("device helpers: waits and notifies carry the memory-order rules", embed(body + host, schedule.machine.arch)),
        (f"kernels of {schedule.name}", body),
        ("the operator", host.rstrip()),
        ("fabric: torch symmetric memory", _fabric()),
        ("self-check under torchrun", print_main(schedule).rstrip()),
    ]
    out = Source()
    _header(out, schedule)
    out.lines(_IMPORTS)
    for title, text in sections:
        if text:
            out.line()
            out.line()
            out.comment(f"---- {title} ".ljust(100, "-"))
            out.line()
            out.line()
            out.lines(text)
    source = out.text()
    ast.parse(source)
    return source


def _header(out: Source, schedule: Schedule) -> None:
    out.line(f'"""{schedule.name}: one overlapped kernel for {schedule.num_ranks} ranks. Yours to keep and edit.')
    out.line()
    out.line(
        f"    op = {class_name(schedule.name)}(SymmetricMemoryFabric())   # under torchrun, after init_process_group"
    )
    out.line(f"    {', '.join(schedule.spec.outputs)} = op({', '.join(value.name for value in schedule.spec.inputs)})")
    out.line()
    out.line(f"Check it: torchrun --nproc-per-node {schedule.num_ranks} THIS_FILE")
    out.line('"""')
    out.line()
    for line in str(schedule).splitlines():
        out.comment(line)
    out.line("#")
    for line in schedule.spec.source:
        out.line(f"# {line}".rstrip())
    for node in schedule.spec.nodes:
        out.comment(
            f"src[{node.line}] {node.output.name} [{', '.join(map(str, node.output.shape))}] {node.output.placement}"
        )


def _user_bodies(schedule: Schedule) -> str:
    bodies: dict[str, str] = {}
    for node in schedule.spec.nodes:
        if isinstance(node.operation, UserOp):
            bodies[node.operation.name] = node.operation.body.rstrip()
    return "\n\n\n".join(bodies.values())


def _fabric() -> str:
    """The fabric module without its header: docstring and imports."""
    text = Path(symmetric_memory.__file__).read_text()
    tree = ast.parse(text)
    first = next(node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef))
    return "\n".join(text.splitlines()[first.lineno - 1 :])


__all__ = ["TARGETS", "emit"]
