"""Schedule -> one standalone file: header, helpers, kernels, host class, self-check."""

from __future__ import annotations

import ast
import re
from functools import cache, lru_cache
from pathlib import Path

from lowering.dialect import Dialect
from lowering.embed import defined, embed, globals_of, named_imports
from lowering.entry import print_main
from lowering.host_class import HostPrinter
from lowering.kernels import PrintedKernel, print_kernel
from lowering.names import class_name
from lowering.numbers import Numbers
from lowering.source import Source
from lowering.targets import TARGETS, dialect
from tilelink.ir.nodes import Memory
from tilelink.ir.schedule import Schedule
from tilelink.ir.user_op import UserOp

_TITLES = {
    "triton": "fabric: torch symmetric memory",
    "triton-distributed": "fabric: the runtime of Triton-distributed",
}
_MADE = {
    "triton": ("SymmetricMemoryFabric()", "after init_process_group"),
    "triton-distributed": ("TritonDistFabric(group)", "with the group of initialize_distributed()"),
}


def emit(schedule: Schedule, target: str = "triton") -> str:
    """Source text of `schedule`. The file imports torch and the target's compiler only. Raises UnknownTarget."""
    spelling = dialect(target, schedule.machine.arch)
    launched = [kernel for kernel in schedule.kernels() if not kernel.joined]
    user = _user_bodies(schedule)
    numbers = Numbers(schedule, globals_of(user))
    kernels = tuple(print_kernel(schedule, spelling, numbers, kernel) for kernel in launched)
    host = HostPrinter(schedule, spelling, numbers, kernels).text()
    helpers, texts = _helpers(spelling, user, kernels, host)
    body = "\n\n".join([user, *texts]).strip("\n")
    pooled = any(buffer.memory is Memory.POOL for buffer in schedule.buffers)
    fabrics = [name for name in spelling.fabrics if name != "pool" or pooled]
    sections = [
        ("constants", _constants(numbers, body + host)),
        (
            "device helpers: waits and notifies carry the memory-order rules",
            helpers,
        ),
        (f"kernels of {schedule.name}", body),
        ("the operator", host.rstrip()),
        (_TITLES[target], "\n\n\n".join(map(_fabric, fabrics))),
        ("self-check under torchrun", print_main(schedule, spelling).rstrip()),
    ]
    out = Source()
    _header(out, schedule, spelling)
    out.lines(named_imports(spelling.imports, (text for _, text in sections)))
    _parse(out.text())
    for title, text in sections:
        if text:
            out.line()
            out.line()
            out.comment(f"---- {title} ".ljust(100, "-"))
            out.line()
            out.line()
            out.lines(text)
            _parse(text)
    return out.text()


@lru_cache(256)  # sections are the same in many files
def _parse(section: str) -> None:
    """Raises SyntaxError if it is not Python."""
    ast.parse(section)


def _helpers(spelling: Dialect, user: str, kernels: tuple[PrintedKernel, ...], host: str) -> tuple[str, list[str]]:
    """Text of the device helpers, and of the kernels. Kernels in Gluon may need other ones of the same name: they then have a
    name of their own."""
    rest = "\n\n".join([user, *(printed.text for printed in kernels if not printed.gluon), host])
    plain = embed(rest, spelling.helpers, spelling.jit)
    gluon = "\n\n".join(printed.text for printed in kernels if printed.gluon)
    if not gluon:
        return plain, [printed.text for printed in kernels]
    turned = embed(gluon, (*spelling.helpers, "turns", "pieces"), spelling.jit)
    common = set(defined(plain)) & set(defined(turned))
    if all(defined(plain)[name] == defined(turned)[name] for name in common):
        missing = [text for name, text in defined(turned).items() if name not in common]
        return "\n\n\n".join(filter(None, [plain, *missing])), [printed.text for printed in kernels]

    def renamed(text: str) -> str:
        return re.sub(r"\w+", lambda word: f"{word[0]}_in_turns" if word[0] in common else word[0], text)

    texts = [renamed(printed.text) if printed.gluon else printed.text for printed in kernels]
    return f"{plain}\n\n\n{renamed(turned)}", texts


_ON_CONSTANTS = """# Kernels read them as they are, host code through `.value`. Nothing is proved of a file that has been edited:
# `tilelink verify FILE` runs it against every check again."""


def _constants(numbers: Numbers, used: str) -> str:
    """Definitions of the constants that the source `used` names."""
    found = numbers.text(used)
    return f"{_ON_CONSTANTS}\n\n{found}" if found else ""


def _header(out: Source, schedule: Schedule, spelling: Dialect) -> None:
    out.line(f'"""{schedule.name}: one overlapped kernel for {schedule.num_ranks} ranks. Yours to keep and edit.')
    out.line()
    made, when = _MADE[spelling.target]
    out.line(f"    op = {class_name(schedule.name)}({made})   # under torchrun, {when}")
    out.line(f"    {', '.join(schedule.spec.outputs)} = op({', '.join(value.name for value in schedule.spec.inputs)})")
    out.line()
    out.line(f"Check it: torchrun --nproc-per-node {schedule.num_ranks} THIS_FILE")
    if spelling.target == "triton-distributed":
        out.line("Without the compiler of Triton-distributed: python -m tilelink.triton_dist in front of THIS_FILE.")
    out.line('"""')
    out.line()
    for line in str(schedule).splitlines():
        out.comment(line)
    out.line("#")
    for line in schedule.spec.source:
        out.line(f"# {line}".rstrip())
    for node in schedule.spec.nodes:
        out.comment(
            f"src[{node.line}] {node.output.name} [{', '.join(map(str, node.output.shape))}] {node.output.placement}"
        )


def _user_bodies(schedule: Schedule) -> str:
    bodies: dict[str, str] = {}
    for node in schedule.spec.nodes:
        if isinstance(node.operation, UserOp):
            bodies[node.operation.name] = node.operation.body.rstrip()
    return "\n\n\n".join(bodies.values())


@cache
def _fabric(name: str) -> str:
    """The text of a file of `lowering/host` without its header: docstring and imports, those in a `try` as well."""
    text = (Path(__file__).parent / "host" / f"{name}.py").read_text()
    _, *nodes = ast.parse(text).body
    first = next(node for node in nodes if not isinstance(node, ast.Import | ast.ImportFrom | ast.Try))
    return "\n".join(text.splitlines()[first.lineno - 1 :])


__all__ = ["TARGETS", "emit"]
