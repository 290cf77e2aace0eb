"""What the targets do not share: how memory of peers is reached, how a signal is raised, what a wait returns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from lowering.names import places, pointer


class Reach(Enum):
    """How a kernel comes to the memory of a peer."""

    TABLE = "a table of addresses, one parameter for each buffer"
    SYMMETRIC = "the own address of the same symmetric buffer"


@dataclass(frozen=True, slots=True)
class Dialect:
    """The spelling of one target. Everything else of an emitted file is the same for all."""

    target: str
    compiler: str  # that kernels are written for, with its version
    reach: Reach
    jit: str  # decorator of device functions
    word: str  # torch dtype of signals, counts and epochs
    helpers: tuple[str, ...]  # files of device helpers; a later one takes the place of what an earlier one has
    imports: str
    fabrics: tuple[str, ...]  # files with what the host class stands on
    fabric: str  # class of the fabric
    caveat: str  # what users must know of the host code, empty where it runs on GPUs
    opens: tuple[str, ...]  # of `main`: ranks meet, `fabric` is made
    closes: str
    stream_wait: str  # method of a stream that holds it until a word is complete
    launch_options: str  # of kernels whose programs wait for each other
    warp_threads: int
    gluon: bool  # warpgroups are spelled in Gluon; else a program computes its tiles one after the other
    tokens: bool  # a wait returns a token that the loads behind it take

    @property
    def peer_words(self) -> str:
        """Parameter through which words of peers are reached."""
        return "signal_peers" if self.reach is Reach.TABLE else "signals"

    def peers_argument(self, buffer: str) -> str:
        """What the host passes for `buffer`, for kernels to reach that of peers."""
        return f"self.{buffer}.pointers" if self.reach is Reach.TABLE else f"self.{buffer}.local"

    def peers(self, buffer: str) -> str:
        """Parameter through which `buffer` of peers is reached."""
        return f"{buffer}_peers" if self.reach is Reach.TABLE else pointer(buffer)

    def at_peer(self, parameter: str, peer: str, dtype: str) -> str:
        """First element of a buffer of `peer`."""
        if self.reach is Reach.TABLE:
            return f"on_peer({parameter}, {peer}, {dtype})"
        return f"dl.symm_at({parameter}, {peer})"

    def notify(self, peer: str, offset: str, value: str = "call") -> str:
        """Raise the word at `offset` of the signals of `peer` to `value`."""
        if self.reach is Reach.TABLE:
            return f"notify(on_peer(signal_peers, {peer}, tl.int32) + {offset}, {value})"
        return f"notify(signals + {offset}, {peer}, {value})"

    def notify_all(self, offset: str, num_ranks: str, value: str = "call") -> str:
        """Raise the word at `offset` of the signals of every rank to `value`."""
        words = "signal_peers, " if self.reach is Reach.TABLE else "signals + "
        return f"notify_all({words}{offset}, {value}, NUM_RANKS={num_ranks})"

    def in_pool(self, buffer: str, place: str, peer: str, num_ranks: str, dtype: str) -> str:
        """First element of place `place` of the pool of `peer`; `places` is the parameter for the pool's addresses."""
        if self.reach is Reach.TABLE:
            return f"on_peer({places(buffer)}, {place} * {num_ranks} + {peer}, {dtype})"
        return f"dl.symm_at(in_place({places(buffer)}, {place}, {dtype}), {peer})"

    def decorator(self, parameters: Iterable[str] = (), *, in_gluon: bool = False) -> str:
        """Of a device function, or of a kernel with `parameters`: those that differ between ranks or calls must not be
        compiled in."""
        varying = ", ".join(f'"{name}"' for name in parameters if name == "rank" or name.endswith("_place"))
        jit = "gluon.jit" if in_gluon else self.jit
        return f"@{jit}(do_not_specialize=[{varying}])" if varying else f"@{jit}"
