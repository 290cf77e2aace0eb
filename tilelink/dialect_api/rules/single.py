"""Single calls: in their place, with the right address, and the decorator that they need."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelink.dialect_api.effects import NOTIFY, SYMM_AT, WAIT
from tilelink.dialect_api.rule import Finding, Rule, finding
from tilelink.dialect_api.source import Definition
from tilelink.dialect_api.state import Event
from tilelink.dialect_api.value import Trait
from tilelink.dialect_api.walk import Context, Walked
from tilelink.stubs.functions import LANGUAGE, SHMEM
from tilelink.stubs.model import Function, Place, Vendor, Words

_LINKED = tuple(f"{LANGUAGE}.{name}" for name in ("rank", "num_ranks", "symm_at", "notify"))
_SCOPES = ('comm_scope="intra_node"', 'comm_scope="inter_node"', 'comm_scope="gpu"')
_MOST_SIGNALS = 32


def check(context: Context) -> Iterator[Finding]:
    """Calls by place, then each kernel's decorator and parameters."""
    for event in context.device_events:
        if event.function is not None and event.function.place is Place.HOST:
            what = f"{event.function.name} is a host function, called in a kernel"
            yield finding(Rule.HOST_IN_KERNEL, event.node, what)
    for event in context.host_events:
        # built-ins and constexpr functions run while a kernel is compiled, neither on the host nor as a kernel
        decorators = context.file.decorators(event.within.node) if event.within is not None else []
        built_in = any(path.startswith("triton") for path in decorators)
        if event.function is not None and event.function.place is Place.DEVICE and not built_in:
            what = f"{event.function.name} is a device function, called on the host"
            yield finding(Rule.DEVICE_ON_HOST, event.node, what, *_host_instead(event))
    yield from _addresses(context)
    for walked in context.walks:
        yield from _decorator(context, walked)
        yield from _rank(walked.entry)


def _host_instead(event: Event) -> tuple[str, ...]:
    if event.path in (f"{LANGUAGE}.rank", f"{LANGUAGE}.num_ranks", f"{SHMEM}.my_pe", f"{SHMEM}.n_pes"):
        return ("torch.distributed.get_rank()", "torch.distributed.get_world_size()")
    return ()


def _decorator(context: Context, walked: Walked) -> Iterator[Finding]:
    entry = walked.entry
    if entry.decorator not in ("triton.jit", "triton.runtime.jit") or not context.file.launches_of(entry):
        return
    for event in walked.events:
        if event.path in _LINKED or (event.function is not None and event.function.module == SHMEM):
            name = event.function.name if event.function is not None else event.path
            what = f"{entry.name} is decorated with @triton.jit and calls {name} (line {event.node.lineno})"
            yield finding(Rule.NEEDS_DIST_JIT, entry.node, what, "@triton_dist.jit")
            return


def _rank(entry: Definition) -> Iterator[Finding]:
    words = [node for one in entry.node.decorator_list for node in ast.walk(one) if isinstance(node, ast.keyword)]
    free = [ast.unparse(word.value) for word in words if word.arg == "do_not_specialize"]
    for argument in entry.parameters:
        constexpr = argument.annotation is not None and ast.unparse(argument.annotation).endswith("constexpr")
        is_rank = constexpr and argument.arg.lower() in ("rank", "local_rank")
        if is_rank and not any(repr(argument.arg) in names for names in free):
            what = f"{argument.arg} is a constexpr, so every rank compiles {entry.name} for itself"
            legal = f'@triton_dist.jit(do_not_specialize=["{argument.arg}"])'
            yield finding(Rule.RANK_CONSTEXPR, argument, what, legal)


def _addresses(context: Context) -> Iterator[Finding]:
    """symm_at and notify take one pointer, arithmetic comes after symm_at, notify says how far."""
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
