"""Places: device functions in kernels, host functions outside, the right decorator, rank at run time."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelink.dialect_api.context import Context
from tilelink.dialect_api.functions import LANGUAGE, SHMEM
from tilelink.dialect_api.model import Place
from tilelink.dialect_api.rule import Finding, Rule, finding
from tilelink.dialect_api.source import Definition, Kind
from tilelink.dialect_api.state import Event
from tilelink.dialect_api.walk import Walked

_LINKED = tuple(f"{LANGUAGE}.{name}" for name in ("rank", "num_ranks", "symm_at", "notify"))


def check(context: Context) -> Iterator[Finding]:
    """Calls by place, then each kernel's decorator and parameters."""
    for event in context.device_events:
        if event.function is not None and event.function.place is Place.HOST:
            what = f"{event.function.name} is a host function, called in a kernel"
            yield finding(Rule.HOST_IN_KERNEL, event.node, what)
    for event in context.host_events:
        built_in = event.within is not None and _has_decorator_of_triton(context, event.within)
        if event.function is not None and event.function.place is Place.DEVICE and not built_in:
            what = f"{event.function.name} is a device function, called on the host"
            yield finding(Rule.DEVICE_ON_HOST, event.node, what, *_host_instead(event))
    for walked in context.walks:
        yield from _decorator(context, walked)
        yield from _rank(walked)


def _has_decorator_of_triton(context: Context, definition: Definition) -> bool:
    """Built-ins and constexpr functions run while a kernel is compiled, neither on the host nor as a kernel."""
    targets = [one.func if isinstance(one, ast.Call) else one for one in definition.node.decorator_list]
    return any(context.file.full_path(target).startswith("triton") for target in targets)


def _host_instead(event: Event) -> tuple[str, ...]:
    if event.path in (f"{LANGUAGE}.rank", f"{LANGUAGE}.num_ranks", f"{SHMEM}.my_pe", f"{SHMEM}.n_pes"):
        return ("torch.distributed.get_rank()", "torch.distributed.get_world_size()")
    return ()


def _decorator(context: Context, walked: Walked) -> Iterator[Finding]:
    entry = walked.entry
    if entry.kind is not Kind.TRITON or not context.file.launches_of(entry):
        return
    for event in walked.events:
        if event.path in _LINKED or (event.function is not None and event.function.module == SHMEM):
            name = event.function.name if event.function is not None else event.path
            what = f"{entry.name} is decorated with @triton.jit and calls {name} (line {event.node.lineno})"
            yield finding(Rule.NEEDS_DIST_JIT, entry.node, what, "@triton_dist.jit")
            return


def _rank(walked: Walked) -> Iterator[Finding]:
    entry = walked.entry
    for argument in entry.parameters:
        constexpr = argument.annotation is not None and ast.unparse(argument.annotation).endswith("constexpr")
        if argument.arg.lower() in ("rank", "local_rank") and constexpr and argument.arg not in entry.not_specialized:
            what = f"{argument.arg} is a constexpr, so every rank compiles {entry.name} for itself"
            legal = f'@triton_dist.jit(do_not_specialize=["{argument.arg}"])'
            yield finding(Rule.RANK_CONSTEXPR, argument, what, legal)
