"""The design review: a planned schedule as the code of its steps, between what it was planned for and how long it should take."""

from __future__ import annotations

from tilelink.elaborate.schedule import elaborated
from tilelink.ir.schedule import Schedule
from tilelink.schedule.instance import instantiated
from tilelink.schedule.printing import legend_lines, printed_lines


def design_review(planned: Schedule, legend: bool = False) -> str:
    """What one rank does, in order, as `tilelink plan` prints it. `legend`: and what the signs mean."""
    machine, spec = planned.machine, planned.spec
    sizes = " ".join(f"{name}={size}" for name, size in spec.sizes)
    lines = [f"schedule {planned.name} on {machine.topology} x{machine.num_ranks}, {sizes} {spec.inputs[0].dtype}"]
    lines += printed_lines(instantiated(elaborated(planned)))
    if planned.predicted_us:
        lines.append(f"  predicted {planned.predicted_us:.1f} us")
    return "\n".join([*lines, *(["", *legend_lines()] if legend else [])])
