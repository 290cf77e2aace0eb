"""The head of an emitted file: what it is, what made it, its schedule, and the user's lines."""

from __future__ import annotations

import shlex

from lowering.dialect import Dialect
from lowering.names import class_name
from lowering.source import Source
from tilelink.elaborate.review import design_review
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import BoundSpec
from tilelink.version import own_version

_MADE = {
    "NvshmemFabric": ("NvshmemFabric()", "under torchrun, after init_process_group"),
    "MulticastFabric": ("MulticastFabric()", "under torchrun, after init_process_group, over links with multicast"),
    "NvshmemMulticastFabric": (
        "NvshmemMulticastFabric()",
        "under torchrun, after init_process_group, over links with multicast inside of nodes",
    ),
    "HostsFabric": ("HostsFabric()", "under torchrun, after init_process_group"),
    "SymmetricMemoryFabric": ("SymmetricMemoryFabric()", "under torchrun, after init_process_group"),
    "TritonDistFabric": ("TritonDistFabric(group)", "under torchrun, with the group of initialize_distributed()"),
    "AmdFabric": ("fabric", "one of tilelink.emulator.World"),
}
_WIDTH = 106


def print_header(out: Source, schedule: Schedule, spelling: Dialect, kernels: bool) -> None:
    """Docstring and comments; the same for the same schedule and target, wherever the file is emitted. `kernels`: there are
    some, for a compiler."""
    _docstring(out, schedule, spelling)
    out.line()
    compiler = f" for {spelling.compiler}" if kernels else ""
    out.comment(f"Emitted by tilelink {own_version()}{compiler}, schedule {schedule.hash}:")
    out.line("#")
    for line in command(schedule, spelling.target):
        out.comment(f"  {line}")
    out.line("#")
    for line in design_review(schedule).splitlines():
        out.comment(line)
    out.line("#")
    for line in schedule.spec.source:
        out.line(f"# {line}".rstrip())
    for node in schedule.spec.nodes:
        out.comment(
            f"src[{node.line}] {node.output.name} [{', '.join(map(str, node.output.shape))}] {node.output.placement}"
        )


def _docstring(out: Source, schedule: Schedule, spelling: Dialect) -> None:
    made, when = _MADE[spelling.fabric]
    out.line(f'"""{schedule.name}: one overlapped kernel for {schedule.num_ranks} ranks. Yours to keep and edit.')
    out.line()
    out.line(f"    op = {class_name(schedule.name)}({made})   # {when}")
    out.line(f"    {', '.join(schedule.spec.outputs)} = op({', '.join(value.name for value in schedule.spec.inputs)})")
    out.line()
    if spelling.caveat:
        out.line(spelling.caveat)
    out.line(f"Check it: {'tilelink verify' if made == 'fabric' else _torchrun(schedule)} THIS_FILE")
    if spelling.target == "triton-distributed":
        out.line(
            "Without the compiler of Triton-distributed: python -m tilelink.compat.triton_dist in front of THIS_FILE."
        )
    out.line('"""')


def _torchrun(schedule: Schedule) -> str:
    return f"torchrun --nproc-per-node {schedule.num_ranks}"


def command(schedule: Schedule, target: str) -> list[str]:
    """Lines of the command that emits `schedule` again: with every choice pinned, whatever the planner prefers by then."""
    spec = schedule.spec
    file = spec.nodes[0].line.rpartition(":")[0] if spec.nodes else ""
    words = ["tilelink", "emit", f"{file or 'SPEC.py'}:{spec.name}", *(f"{name}={size}" for name, size in spec.sizes)]
    words += ["--topology", schedule.machine.topology, "--ranks", str(schedule.num_ranks), "--dtype", _dtype(spec)]
    words += ["--target", target] if target != "triton" else []
    options = [shlex.join(words), *(f"--pin {shlex.quote(f'{name}={value}')}" for name, value in schedule.choices)]
    lines = [options[0]]
    for option in options[1:]:
        if len(lines[-1]) + len(option) < _WIDTH and len(lines) > 1:
            lines[-1] += f" {option}"
        else:
            lines.append(f"    {option}")
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


def _dtype(spec: BoundSpec) -> str:
    """The dtype of tensors that declare none: one that the user's lines do not name, if inputs have several."""
    found = list(dict.fromkeys(value.dtype for value in spec.inputs))
    named = "\n".join(spec.source)
    return next((dtype for dtype in found if f'"{dtype}"' not in named), found[0])
