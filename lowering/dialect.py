"""What the targets do not share: how memory of peers is reached, how a signal is raised, what a wait returns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


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
    gluon: bool  # warpgroups are spelled in Gluon; else a program computes its tiles one after the other
    puts: bool  # what goes to other nodes is put by NVSHMEM; else stored at peers
    tokens: bool  # a wait returns a token that the loads behind it take
    # stores at all ranks of a node at once: on one node (False), over several (True)
    multicast: frozenset[bool] = frozenset()
