"""A queue between neighbours: the blocks of a rank go to the next one through a few slots. Read this to learn wait and notify.

A *signal* is a word of memory that somebody else raises. Whoever has made something ready *notifies*: raises the word,
here or at a peer. Whoever needs it *waits*: goes no further until the word has come far enough.

Every rank has Q slots, and there are many more blocks than slots. Block i goes into slot i % Q of the next rank, so that a
slot is used again and again, and each use needs two signals:

    producer, on rank r                            consumer, on rank r + 1
    wait    free[slot] == use                      wait    arrived[slot] == use + 1
    store   the block into the slot                load    the block from the slot
    notify  arrived[slot] = use + 1, over there    notify  free[slot] = use + 1, back at the producer

`use` counts the uses of a slot, through all calls: no word is ever set back, so that nobody can mistake an old value for a
new one. `free` holds the producers up when the consumers are slow (back-pressure), `arrived` holds up the consumers.

None of this is written below. It is what the planner makes of `send_recv`, what `print(schedule)` shows, and what the
proof checks: with one slot or more slots than blocks, and with more producers than blocks, it still holds.
"""

from __future__ import annotations

import lowering
import tilelink
from tilelink import CommSms, Shard, Tensor, dims
from tilelink.runtime.run import run_emulated

B, C = dims("B C")


@tilelink.overlap
def queue(x: Tensor(B, C, placement=Shard(0))):
    """Every rank sends its blocks to the next rank."""
    return tilelink.send_recv(x, by=1)


def main() -> None:
    pins = {"mover": CommSms(16), "chunks": 2025, "slots": 32, "consumers": 4}  # 2025 blocks of 128 from each rank
    schedule = queue.plan(topology="h200-nvswitch", num_ranks=4, B=4 * 2025, C=128, pin=pins)
    print(schedule)

    few = {"mover": CommSms(3), "chunks": 11, "slots": 2, "consumers": 2}
    small = queue.plan(topology="laptop-switch", num_ranks=4, B=4 * 11, C=128, pin=few)
    result = run_emulated(small, lowering.emit(small), calls=3)
    print("\n".join(result.lines()))


if __name__ == "__main__":
    main()
