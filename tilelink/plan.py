"""What `Overlap.plan` returns: a schedule with what its user does with it."""

from __future__ import annotations

from html import escape

import lowering
from tilelink.elaborate.review import design_review
from tilelink.ir.schedule import Schedule


class Plan(Schedule):
    """A schedule that prints as the design review (`str`) and emits its source. It is equal to the `Schedule` with its values."""

    __slots__ = ()

    def emit(self, target: str = "triton") -> str:
        """Source text in the language `target`. Raises UnknownTarget, and TargetNotForGpu."""
        return lowering.emit(self, target)

    def __str__(self) -> str:
        return design_review(self)

    def _line(self) -> str:
        """In one line what it is."""
        sizes = " ".join(f"{name}={size}" for name, size in self.spec.sizes)
        where = f"{self.machine.topology} x{self.num_ranks}"
        return f"{self.name} {self.hash} on {where}, {sizes}: {self.predicted_us:.1f} us"

    def _repr_html_(self) -> str:
        """In a notebook: the choices as a table, and the schedule as code."""
        rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in self.choices)
        return (
            f"<p><code>{escape(self._line())}</code></p><table><tr><th>choice</th><th>value</th></tr>{rows}</table>"
            f'<details open="open"><summary>schedule</summary><pre>{escape(str(self))}</pre></details>'
        )
