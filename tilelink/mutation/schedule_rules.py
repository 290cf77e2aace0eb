"""When a mutated schedule does what the original does: one predicate a reason, none broader than its reason.

All of them take it that the original is right, and ask whether the difference can matter. "Do" means: the same results, no
race, no hang, on a machine as described; not the same time, nor the same rounding of sums.
"""

from __future__ import annotations

from collections.abc import Callable

from tilelink.mutation.order_rules import (
    by_a_launch_of_its_own,
    communication_first,
    done_by_copy,
    every_chunk_instead_of_some,
    fewer_chunks,
    forked_at_begin,
    halves_of_tiles,
    neighbours_commute,
    order_of_chunks,
    order_of_library_calls,
    order_of_tiles,
    other_tiles,
    programs_of_a_loop,
    programs_that_push,
    steps_of_a_reduction,
    tiles_counted_late,
    twice_in_a_row,
    warpgroups_in_turns,
)
from tilelink.mutation.schedule_pair import Pair
from tilelink.mutation.spelling_rules import (
    descriptor_for_an_output,
    descriptors_not_used,
    fence_to_spare,
    fewer_sms_are_enough,
    own_part_of_the_input,
    pointer_for_descriptor,
    same_text,
    signals_renamed,
    waits_by_a_program,
    words_to_spare,
)

Holds = Callable[[Pair], bool]

RULES: tuple[tuple[Holds, str], ...] = (
    (twice_in_a_row, "a step that only waits, or that writes what is there already, may be done twice."),
    (neighbours_commute, "neither neighbour reads or orders what the other one writes."),
    (
        order_of_chunks,
        "all peers are served once, by copies of data that comes in any order, or else no circle of waits arises.",
    ),
    (
        order_of_tiles,
        "every tile is visited once, and the loop goes on: nothing holds it up, or else no circle of waits arises.",
    ),
    (
        order_of_library_calls,
        "every part is computed once, and what is waited for comes in any order, or else no circle of waits arises.",
    ),
    (
        programs_of_a_loop,
        "any number of programs shares out the same tiles, those that wait are resident, and no circle arises.",
    ),
    (
        halves_of_tiles,
        "any number of tiles may be computed in halves, where nothing is counted or waited for in halves.",
    ),
    (
        tiles_counted_late,
        "when a tile is counted is nobody's business, if the next one is begun before and no circle of waits arises.",
    ),
    (
        warpgroups_in_turns,
        "tiles in turns come in an order that tiles one after the other may have, and nothing else tells them apart.",
    ),
    (
        programs_that_push,
        "shares of a chunk and the count that completes it are both spelled from the number of programs.",
    ),
    (signals_renamed, "words are known by first and slot only: ranges that are apart and allocated are other names."),
    (words_to_spare, "words behind the last signal are cleared and read by nobody."),
    (fence_to_spare, "a fence only adds an order."),
    (pointer_for_descriptor, "masked pointers reach the elements that a descriptor reaches, and need less ordering."),
    (descriptor_for_an_output, "no signal covers an output, and the end of the kernel waits for stores in flight."),
    (every_chunk_instead_of_some, "the wait covers more, and all of that comes whatever the loop does."),
    (
        fewer_chunks,
        "waits, counts and copies are all spelled from the number of chunks, for which there are words enough.",
    ),
    (
        other_tiles,
        "waits, counts, masks and loops are all spelled from the tile's extent, which is free within limits.",
    ),
    (own_part_of_the_input, "the shared copy of the own part holds what the input holds."),
    (forked_at_begin, "an input is there before begin, and what is pulled is waited for chunk by chunk."),
    (done_by_copy, "a copy behind the last launch on the stream writes the epoch that the kernel writes."),
    (by_a_launch_of_its_own, "a launch right before or behind the kernel does what programs of it would do."),
    (communication_first, "its data needs no tile of this launch, so it may be done before the launch starts."),
    (fewer_sms_are_enough, "the machine still holds every program that waits together with what it waits for."),
    (
        waits_by_a_program,
        "a program that waits holds up its stream as the stream's own wait does, and there is an SM for it.",
    ),
    (descriptors_not_used, "no operand is addressed by a descriptor."),
    (steps_of_a_reduction, "only descriptors run along the axis, in as many steps, and clip at the end of the buffer."),
    (same_text, "both are lowered to the same code, so no machine can tell them apart."),  # last: it is slow
)
