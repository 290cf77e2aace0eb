"""What the host side refuses: one class each, the facts in the message and in `facts`."""

from __future__ import annotations


class TritonDistError(Exception):
    """Base of the errors of the shim's host side. `facts` are what the message was made of."""

    template = ""

    def __init__(self, **facts: object) -> None:
        self.facts = facts
        super().__init__(self.template.format(**facts))

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.facts)


def _rebuild(kind: type[TritonDistError], facts: dict[str, object]) -> TritonDistError:
    return kind(**facts)


class NotInitialized(TritonDistError):
    """Facts: `function`."""

    template = (
        "{function} was called on a rank without symmetric memory.\n"
        "Legal: after initialize_distributed() on GPUs, or inside `with on_rank(fabric):` in the emulator."
    )


class HeapFull(TritonDistError):
    """Facts: `asked_bytes`, `free_bytes`, `heap_bytes`, `variable`."""

    template = (
        "{asked_bytes} bytes of symmetric memory were asked for; the longest free piece has {free_bytes} of {heap_bytes}.\n"
        "Legal: what fits; set {variable} to a larger size such as 4G before the ranks start."
    )


class NotFromHeap(TritonDistError):
    """Facts: `function`, `found`."""

    template = (
        "{function} got {found}.\nLegal: what nvshmem_create_tensor or nvshmem_create_tensors returned, and not twice."
    )


class IllegalSize(TritonDistError):
    """Facts: `variable`, `value`."""

    template = "{variable} is {value!r}.\nLegal: a number of bytes, with K, M or G behind it for 2**10, 2**20 or 2**30 of them."


class IllegalWordTensor(TritonDistError):
    """Facts: `function`, `found`."""

    template = "{function} got {found}.\nLegal: one element of int32, uint32, int64 or uint64 on a GPU."


class DriverFailed(TritonDistError):
    """Facts: `function`, `status`."""

    template = (
        "{function} of the CUDA driver returned {status}.\nLegal: GPUs whose driver has stream memory operations."
    )


class UnknownRanks(TritonDistError):
    """Facts: `missing`."""

    template = "initialize_distributed() found no {missing} in the environment.\nLegal: ranks started by torchrun."
