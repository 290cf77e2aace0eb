"""Schedule -> one standalone file: header, helpers, kernels, host class, self-check."""

from __future__ import annotations

import ast
import re
from functools import cache, lru_cache
from pathlib import Path

from lowering.dialect import Dialect
from lowering.embed import defined, embed, globals_of, named_imports, reached
from lowering.entry import print_main
from lowering.header import print_header
from lowering.host_class import HostPrinter
from lowering.kernels import PrintedKernel, print_kernel
from lowering.numbers import Numbers
from lowering.source import Source
from lowering.targets import TARGETS, dialect
from tilelink.ir.nodes import Memory
from tilelink.ir.schedule import Schedule
from tilelink.ir.user_op import UserOp

_TITLES = {
    "SymmetricMemoryFabric": "fabric: torch symmetric memory",
    "TritonDistFabric": "fabric: the runtime of Triton-distributed",
    "AmdFabric": "fabric: none for AMD GPUs yet",
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
    main = print_main(schedule, spelling).rstrip()
    sections = [
        ("constants", _constants(numbers, body + host)),
        (
            "device helpers: waits and notifies hold the rules of memory order",
            helpers,
        ),
        (f"kernels of {schedule.name}", body),
        ("the operator", f"{_fabric('opaque')}\n\n\n{host.rstrip()}"),
        (_TITLES[spelling.fabric], reached("\n\n\n".join(map(_fabric, fabrics)), (host, main))),
        ("self-check under torchrun", main),
    ]
    out = Source()
    print_header(out, schedule, spelling, bool(helpers or body))
    out.line()
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


def caveat(schedule: Schedule, target: str = "triton") -> str:
    """What a user must know of the host code of `emit(schedule, target)`, empty where it runs on GPUs. Raises UnknownTarget."""
    return dialect(target, schedule.machine.arch).caveat


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


_ON_CONSTANTS = """# Kernels read these constants directly, host code reads their `.value`.
# The proof of the schedule does not cover an edited file: check it again with `tilelink verify FILE`."""


def _constants(numbers: Numbers, used: str) -> str:
    """Definitions of the constants that the source `used` names."""
    found = numbers.text(used)
    return f"{_ON_CONSTANTS}\n\n{found}" if found else ""


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


__all__ = ["TARGETS", "caveat", "emit"]
