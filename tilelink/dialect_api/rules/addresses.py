"""Addresses: symm_at and notify take one pointer, arithmetic comes after symm_at, the team first, notify says how far."""

from __future__ import annotations

from collections.abc import Iterator

from tilelink.dialect_api.context import Context
from tilelink.dialect_api.effects import NOTIFY, SYMM_AT
from tilelink.dialect_api.functions import SHMEM
from tilelink.dialect_api.model import Exact, Words
from tilelink.dialect_api.rule import Finding, Rule, finding
from tilelink.dialect_api.state import Event
from tilelink.dialect_api.value import Trait

_SCOPES = ('comm_scope="intra_node"', 'comm_scope="inter_node"', 'comm_scope="gpu"')


def check(context: Context) -> Iterator[Finding]:
    """Calls in kernels; on the host there are no device pointers."""
    for event in context.events():
        scope = event.path == NOTIFY and event.argument("comm_scope") is None
        if scope and not any(word.arg is None for word in event.node.keywords):
            what = "notify without comm_scope goes the slow way of inter_node"
            yield finding(Rule.IMPLICIT_COMM_SCOPE, event.node, what, *_SCOPES)
    for event in context.device_events():
        yield from _one_pointer(context, event)
        if event.path == f"{SHMEM}.remote_mc_ptr":
            team, pointer = event.argument("team"), event.value("ptr")
            if team is not None and pointer.has(Trait.TEAM) and not event.value("team").has(Trait.TEAM):
                legal = "remote_mc_ptr(libshmem_device.NVSHMEMX_TEAM_NODE, ptr)"
                yield finding(Rule.MC_PTR_ORDER, team, "remote_mc_ptr is given the pointer before the team", legal)


def _one_pointer(context: Context, event: Event) -> Iterator[Finding]:
    shape = event.function.signature_on(context.file.vendor) if event.function is not None else None
    for parameter in shape.parameters if isinstance(shape, Exact) else ():
        node = event.argument(parameter.name)
        if node is None or not isinstance(parameter.type, Words) or not parameter.type.one or event.function is None:
            continue
        value = event.value(parameter.name)
        if value.has(Trait.BLOCK):
            what = f"{parameter.name} of {event.function.name} is a tensor of pointers"
            yield finding(Rule.SYMM_AT_TENSOR, node, what, "dl.symm_at(base, rank) + offsets")
        elif event.path == SYMM_AT and value.has(Trait.SUM):
            what = "the offset is added before symm_at"
            yield finding(Rule.SYMM_AT_ARITHMETIC, node, what, "dl.symm_at(base, rank) + offset")
