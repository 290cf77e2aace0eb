"""When an atomic of narrower scope does what the original does: nobody whom the scope leaves out is unordered with it."""

from __future__ import annotations

import ast

from tilelink.ir.nodes import Finish, Kind
from tilelink.mutation.idle_rules import is_never_done
from tilelink.mutation.source_pair import Holds, SourcePair, leftmost
from tilelink.mutation.text import SourceText, called, dotted, last_word


def gpu_scope_inside_one_gpu(pair: SourcePair) -> bool:
    if pair.mutant.operator != "narrower scope" or pair.mutant.after != '"gpu"':
        return False
    helper = pair.function()
    if helper not in ("wait_count", "count_arrival", "count_up") or not _counts_stay_on_the_device(pair.text):
        return False
    uses = [node for node in pair.text.nodes(ast.Call) if called(node) == helper and not _never_done(pair.text, node)]
    return bool(uses) and all(dotted(leftmost(use.args[0])) in ("counts", "count") for use in uses)


def _never_done(text: SourceText, use: ast.Call) -> bool:
    """It stands in a function that is called only in branches that nobody takes."""
    name = text.function(use).name
    calls = [call for call in text.nodes(ast.Call) if called(call) == name]
    return bool(calls) and all(is_never_done(text, call) for call in calls)


def _counts_stay_on_the_device(text: SourceText) -> bool:
    """Only kernels of this rank touch `self.counts`: memory of this rank, never given to a stream operation, and the
    only thing that a kernel gets as `counts` or `count`."""
    for call in text.nodes(ast.Call):
        if not text.on_host(call):
            continue
        given = [ast.unparse(argument) for argument in call.args]
        if last_word(called(call)) == "launch":
            kernel = next((function for function in text.kernels if function.name == given[0]), None)
            names = [argument.arg for argument in kernel.args.args] if kernel is not None else []
            for name, argument in zip(names, given[2:], strict=False):
                if (name in ("counts", "count")) != argument.startswith("self.counts"):
                    return False
        elif any("self.counts" in argument for argument in given):
            return False
    made = [assign for assign in text.nodes(ast.Assign) if ast.unparse(assign.targets[0]) == "self.counts"]
    return len(made) == 1 and called(made[0].value) == "torch.zeros"


def scope_of_what_signals_order(pair: SourcePair) -> bool:
    """Peers count at `done` behind a signal of this rank, which raises it behind what it takes off: where calls end together
    it has acquired all counts of a call before, and counts of the next call come after a part of each peer in that call."""
    if pair.mutant.operator != "narrower scope" or pair.function() != "next_call":
        return False
    meets = any(isinstance(launch, Finish) and launch.meets for launch in pair.schedule.launches)
    return meets and any(exchange.kind is not Kind.SHIFT and not exchange.met for exchange in pair.schedule.exchanges)


RULES: tuple[tuple[Holds, str], ...] = (
    (
        gpu_scope_inside_one_gpu,
        "only kernels of this GPU raise and await the counts, and gpu scope orders inside one GPU.",
    ),
    (
        scope_of_what_signals_order,
        "calls end together, and a peer counts its next one behind a signal that this rank raises after this atomic: what is "
        "ordered need not be indivisible.",
    ),
)
