"""What cannot be mutated or measured."""

from __future__ import annotations

from topologies.errors import UserError


class NoHostClass(UserError):
    """Facts: `reason`."""

    template = (
        "the source cannot be mutated: {reason}.\n"
        "Legal: Python with one class that declares INPUTS and enqueues @triton.jit kernels, as an emitted file has."
    )


class IllegalRun(UserError):
    """Facts: `name`, `value`, `legal`."""

    template = "run({name}={value!r}) is not possible.\nLegal {name}: {legal}."
