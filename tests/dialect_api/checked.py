"""Short kernels to check: text around a body, and what is found in it."""

from __future__ import annotations

import textwrap

from tilelink.dialect_api import Finding, Report, Rule, Vendor, check_source
from tilelink.stubs.typecheck import Message

HEAD = """
import torch
import triton
import triton.language as tl
import triton_dist
import triton_dist.language as dl
from triton_dist.language.extra import libshmem_device
from triton_dist.language.extra.cuda.language_extra import *
from triton_dist.language.extra.language_extra import __syncthreads, atomic_add, ld, st, tid
from triton_dist.utils import nvshmem_create_tensor

OFFSETS = 128
"""
RAISE = 'dl.notify(signals, peer, signal=1, sig_op="set", comm_scope="intra_node")'
WAIT = 'dl.wait(signals, 1, "sys", "acquire")'


def no_types(text: str, vendor: Vendor) -> tuple[Message, ...]:
    """In place of a type checker, where a test is about other rules."""
    return ()


def without_types(text: str, vendor: Vendor | None = None) -> Report:
    """The report of all rules that ask no type checker."""
    return check_source(text, vendor=vendor, ask=no_types)


def findings(body: str, helpers: str = "", host: str = "", vendor: Vendor | None = None) -> list[Finding]:
    """Of a kernel of that body; parameters x, y, out, signals, peer, n and the constexpr BLOCK."""
    kernel = "@triton_dist.jit\ndef kernel(x, y, out, signals, peer, n, BLOCK: tl.constexpr):\n"
    text = HEAD + textwrap.dedent(helpers) + kernel + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
    return list(without_types(f"{text}\n{textwrap.dedent(host)}", vendor).findings)


def rules(body: str, helpers: str = "", host: str = "", vendor: Vendor | None = None) -> list[Rule]:
    return [found.rule for found in findings(body, helpers, host, vendor)]
