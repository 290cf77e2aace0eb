"""What travels in words -> Triton: sizes of collectives, and sums of tiles with the numbers of their calls."""

from __future__ import annotations

import math

from lowering.constants import Group
from lowering.names import TRITON, element_bytes, value_name
from lowering.numbers import Numbers
from lowering.operands import TileScope
from lowering.source import Source
from tilelink.ir.calls import WordCollective
from tilelink.ir.nodes import ComputeRole
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import SumWords
from tilelink.ir.word import Protocol

# of kernel parameters that the host class knows from the collective they are named after
SUFFIXES = ("_words", "_words_peers", "_calls", "_data", "_gathered")


def collective_sizes(numbers: Numbers, launch: WordCollective, of: str = "") -> list[str]:
    """Arguments that all collectives have, in a kernel of their own or within another one; `of` follows each name."""
    name, packets = launch.out, f"{launch.protocol.value} packets"
    words = numbers.name(f"{name}_WORDS", launch.words, f"{packets} of {name} from a rank to a peer", Group.SIZES)
    block = numbers.name(f"{name}_BLOCK", launch.block, f"{packets} that a program sends at a time", Group.CHOSEN)
    sizes = {"WORDS": words, "BLOCK": block, "NUM_RANKS": numbers.ranks()}
    return [*(f"{key}={value}{of}" for key, value in sizes.items()), f"NUMBERED={launch.protocol is Protocol.LL}"]


def words_of_tile(schedule: Schedule, role: ComputeRole, step: SumWords) -> int:
    """Words that a tile sends to a peer in a shot, at most."""
    elements = math.prod(role.axis(name).tile for name in step.index)
    return elements * element_bytes(schedule.buffer(step.result).dtype) // step.protocol.data_bytes


def print_call_number(out: Source, scope: TileScope, step: SumWords) -> None:
    scope.need(f"{step.result}_words", f"{step.result}_words_peers", f"{step.result}_calls")
    out.line(f"{step.result}_call = tl.load({step.result}_calls + program).to(tl.int32) + 1")


def print_sum_words(out: Source, scope: TileScope, step: SumWords) -> None:
    scope.need("rank")
    name, role = step.result, scope.role
    arguments = [value_name(step.value), f"{name}_words", f"{name}_words_peers", "tile", f"{name}_call", "rank"]
    arguments += [
        f"TILES={scope.numbers.num_tiles(role)}",
        f"NUM_RANKS={scope.numbers.ranks()}",
        f"DTYPE={TRITON[scope.dtype(name)]}",
        f"NUMBERED={step.protocol is Protocol.LL}",
    ]
    if step.shots > 1:
        arguments.append("GATHER=True")
    if step.cut:
        cut, ranks = role.axis(step.cut), scope.numbers.ranks()
        why, text = f"share of a rank of {name} along {cut.name}", f"{scope.numbers.size(role, cut)} // {ranks}"
        value = cut.extent // scope.schedule.num_ranks
        share = scope.numbers.name(f"{name}_SHARE", value, why, Group.SIZES, text)
        arguments += [f"first={step.cut}", f"SHARE={share}", f"DIM={step.index.index(step.cut)}"]
    out.call(f"{value_name(name)} = sum_words(", arguments)


def print_last_call(out: Source, step: SumWords) -> None:
    out.line(f"tl.store({step.result}_calls + program, {step.result}_call)")
