"""What the dialects refuse: one class each, the facts in the message and in `facts`."""

from __future__ import annotations

from tilelink.emulator.errors import EmulationError


class NotEmulated(EmulationError):
    """Facts: `function`."""

    template = (
        "{function} was called while no world runs: it has a meaning in an emulated kernel only.\n"
        "Legal: calls from @triton.jit kernels that World.run() executes; on GPUs link the real library instead."
    )


class NotSymmetric(EmulationError):
    """Facts: `operation`, `parameter`, `address`, `found`, `reason`, `rank`, `task`, `place`."""

    template = (
        "{task} on rank {rank} at {place}: {operation} got {parameter} = {found}, {reason}.\n"
        "Legal: this rank's own address of a buffer that every rank has allocated, {parameter} + an offset inside."
    )


class IllegalShmemArgument(EmulationError):
    """Facts: `operation`, `parameter`, `value`, `legal`, `rank`, `task`, `place`."""

    template = "{task} on rank {rank} at {place}: {operation} got {parameter} = {value}.\nLegal: {legal}."


class IllegalSignal(EmulationError):
    """Facts: `operation`, `found`, `rank`, `task`, `place`."""

    template = (
        "{task} on rank {rank} at {place}: {operation} got a signal word that is {found}; the library would read "
        "and write 8 bytes there without a word.\n"
        "Legal: a pointer to int64 or uint64 at a multiple of 8 bytes."
    )


class OverlappingCollectives(EmulationError):
    """Facts: `operation`, `other`, `other_operation`, `rank`, `task`, `place`."""

    template = (
        "{task} on rank {rank} at {place}: {operation} while {other} of the same rank is inside {other_operation}.\n"
        "Legal: one program of a rank in a collective of a team at a time, such as `if tl.program_id(0) == 0:`."
    )


class IllegalRendezvous(EmulationError):
    """Facts: `rank`, `tensor`."""

    template = (
        "rendezvous on rank {rank} of {tensor}, which SymmMem.empty of this rank did not make.\n"
        "Legal: tensors of SymmMem.empty(...) and views of them."
    )


class IllegalView(EmulationError):
    """Facts: `what`, `rank`, `asked_bytes`, `held_bytes`, `peer`, `legal`."""

    template = (
        "{what} of peer {peer} on rank {rank}: the view ends at byte {asked_bytes} of {held_bytes}.\nLegal: {legal}."
    )


class IllegalSignalTensor(EmulationError):
    """Facts: `operation`, `rank`, `tensor`, `reason`."""

    template = (
        "{operation} on rank {rank} got {tensor}: {reason}.\n"
        "Legal: flat contiguous uint32 tensors, and words that lie inside."
    )
