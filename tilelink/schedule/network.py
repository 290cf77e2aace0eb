"""What the transports of links promise about puts and their signals: data that the proof and the emulator go by.

A put copies a region to a peer and then raises a word there; it is issued by a program, which goes on meanwhile. A transport says
of what a signal tells, when the source of a put may be overwritten, and whether words may be counted up. Sources: NVSHMEM 3.4.5,
NCCL 2.30 (device API, host RMA), the OFI plugin of AWS, as read; links that carry loads and stores need no contract.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilelink.ir.enums import Choice


class Strength(Choice):
    """Of which puts a signal says that they have landed."""

    OWN = "own"  # of the one that it belongs to
    ALL_BEFORE = "all before"  # and of all earlier ones of the same program to the same peer


@dataclass(frozen=True, slots=True)
class Transport:
    """`strength` of signals. `reusable`: a put returns when its source may be overwritten; else the program asks, by QUIET.
    `counts`: several ranks may add to one word, which takes atomics on the way. `lands`: a program can ask whether its puts have
    landed, by LANDED; others say of sources alone."""

    name: str
    strength: Strength
    reusable: bool
    counts: bool
    lands: bool = False


TRANSPORTS = {
    one.name: one
    for one in (
        Transport("NVSHMEM put_signal", Strength.OWN, reusable=True, counts=False, lands=True),
        Transport("NVSHMEM put_signal_nbi", Strength.OWN, reusable=False, counts=False, lands=True),
        Transport("GIN put, weak signal", Strength.OWN, reusable=False, counts=True),
        Transport("GIN put, strong signal", Strength.ALL_BEFORE, reusable=False, counts=True),
        Transport("ncclPutSignal", Strength.ALL_BEFORE, reusable=True, counts=True),
        Transport("EFA write with immediate", Strength.OWN, reusable=False, counts=False),
        Transport("NCCL send and stream write", Strength.ALL_BEFORE, reusable=True, counts=False),
    )
}
