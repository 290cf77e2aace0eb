"""What `Overlap.plan` returns: a schedule with what its user does with it."""

from __future__ import annotations

import lowering
from tilelink.elaborate.review import design_review
from tilelink.ir.schedule import Schedule


class Plan(Schedule):
    """A schedule that prints as the design review (`str`) and emits its source. It is equal to the `Schedule` with its values."""

    __slots__ = ()

    def emit(self, target: str = "triton") -> str:
        """Source text in the language `target`. Raises UnknownTarget."""
        return lowering.emit(self, target)

    def __str__(self) -> str:
        return design_review(self)
