"""Single calls that are given the wrong address, in the wrong order, or too little."""

from __future__ import annotations

from collections.abc import Iterator

from tilelink.dialect_api.context import Context
from tilelink.dialect_api.effects import NOTIFY, SYMM_AT, WAIT
from tilelink.dialect_api.functions import SHMEM
from tilelink.dialect_api.model import Function, Vendor, Words
from tilelink.dialect_api.rule import Finding, Rule, finding
from tilelink.dialect_api.state import Event
from tilelink.dialect_api.value import Trait

_SCOPES = ('comm_scope="intra_node"', 'comm_scope="inter_node"', 'comm_scope="gpu"')
_MOST_SIGNALS = 32


def check(context: Context) -> Iterator[Finding]:
    """Calls in kernels; on the host there are no device pointers."""
    vendor = context.file.vendor
    for event in context.events:
        open_call = any(word.arg is None for word in event.node.keywords)
        if event.path == NOTIFY and event.argument("comm_scope") is None and not open_call:
            what = "notify without comm_scope goes the slow way of inter_node"
            yield finding(Rule.IMPLICIT_COMM_SCOPE, event.node, what, *_SCOPES)
    for event in context.device_events:
        if event.function is not None:
            yield from _one_pointer(vendor, event, event.function)
        count, node = event.value("numBarriers").constant, event.argument("numBarriers")
        many = event.path == WAIT and isinstance(count, int) and count > _MOST_SIGNALS
        if many and node is not None and vendor is Vendor.NVIDIA:
            what = f"one wait for {count} words: lanes beyond {_MOST_SIGNALS} do not exist"
            yield finding(Rule.TOO_MANY_SIGNALS, node, what, "several waits for up to 32 words each")
        team = event.argument("team") if event.path == f"{SHMEM}.remote_mc_ptr" else None
        if team is not None and event.value("ptr").has(Trait.TEAM) and not event.value("team").has(Trait.TEAM):
            legal = "remote_mc_ptr(libshmem_device.NVSHMEMX_TEAM_NODE, ptr)"
            yield finding(Rule.MC_PTR_ORDER, team, "remote_mc_ptr is given the pointer before the team", legal)


def _one_pointer(vendor: Vendor, event: Event, function: Function) -> Iterator[Finding]:
    for parameter in function.signature_on(vendor).parameters:
        node, value = event.argument(parameter.name), event.value(parameter.name)
        if node is None or not isinstance(parameter.type, Words) or not parameter.type.one:
            continue
        if value.has(Trait.BLOCK):
            what = f"{parameter.name} of {function.name} is a tensor of pointers"
            yield finding(Rule.SYMM_AT_TENSOR, node, what, "dl.symm_at(base, rank) + offsets")
        elif event.path == SYMM_AT and value.has(Trait.SUM):
            what = "the offset is added before symm_at"
            yield finding(Rule.SYMM_AT_ARITHMETIC, node, what, "dl.symm_at(base, rank) + offset")
