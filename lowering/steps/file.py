"""Schedule of steps -> one standalone file: constants, device helpers, kernels, host class, fabric."""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from pathlib import Path

from lowering.dialect import Dialect
from lowering.embed import decorated, embed_both, globals_of, named_imports, reached
from lowering.source import Source
from lowering.steps.constants import Constants
from lowering.steps.distributed import returning_tokens
from lowering.steps.errors import NoMulticastInTarget, SizeKnownOnCall
from lowering.steps.folding import folded
from lowering.steps.frame import Frame
from lowering.steps.gluon import for_gpu, pieces_flushed
from lowering.steps.host import Around as Around  # planned schedules give what a file has around them
from lowering.steps.host import HostClass
from lowering.steps.kernel import end_kernel, print_kernel
from lowering.steps.late import deferred, undeferred
from lowering.steps.lookups import named_lookups
from lowering.steps.naming import OF_GLUON, checked_names
from lowering.steps.packets import elements_in_packets, in_packets
from lowering.steps.pieces import in_pieces
from lowering.steps.relative import relative
from lowering.steps.streams import print_role
from lowering.steps.sync import synchronised
from lowering.steps.words import laid_out
from lowering.targets import TITLES, dialect
from tilelink.proof.happens_before.exact import exact_signals
from tilelink.schedule.instance import with_origins
from tilelink.schedule.printing import printed
from tilelink.schedule.roles import Network, Schedule
from tilelink.schedule.steps import SEND_RECEIVE, Call
from tilelink.schedule.walk import all_steps, multicasts


def lower(schedule: Schedule, arch: str = "sm_90", around: Around | None = None, target: str = "triton") -> str:
    """Source text of `schedule` in the language of `target` for GPUs of `arch` ("sm_90", "gfx942"), self-contained: it imports
    torch and the target's compiler only.

    Raises UnknownTarget, and errors of `lowering.steps.errors` for what has no printed form.
    """
    spelling = dialect(target, arch)
    _check_sizes(schedule)
    schedule = for_gpu(with_origins(schedule), arch, spelling.gluon)
    exact = returning_tokens(schedule, exact_signals(schedule)) if spelling.tokens else frozenset[str]()
    return print_file(passes(schedule, exact, puts=spelling.puts), arch, around, target, exact)


def spelling_of(schedule: Schedule, target: str, arch: str) -> Dialect:
    """The dialect in which the file of `schedule` is written. Raises UnknownTarget, TargetNotForGpu, and NoMulticastInTarget."""
    spelling = dialect(target, arch, sends=sends(schedule), multicasts=multicasts(schedule))
    if multicasts(schedule) and (schedule.ranks_per_node < schedule.num_ranks) not in spelling.multicast:
        raise NoMulticastInTarget(schedule=schedule.name, target=target, arch=arch)
    return spelling


def sends(schedule: Schedule) -> bool:
    """Whether a library sends to ranks of other nodes, and nothing else reaches them."""
    puts = any(isinstance(role.engine, Network) for launch in schedule.launches for role in launch.roles)
    return not puts and any(isinstance(one, Call) and one.function == SEND_RECEIVE for one in all_steps(schedule))


def passes(schedule: Schedule, exact: frozenset[str] = frozenset(), *, puts: bool = False) -> Schedule:
    """`schedule` as it is printed: what programs move in pieces, with Sync steps, with names for entries of tables. `exact`:
    signals whose waits compare for equality and return tokens. `puts`: the language has puts."""
    in_order = deferred(pieces_flushed(in_pieces(folded(schedule), puts=puts)))
    ordered = synchronised(in_order, exact)  # a Sync may have to stand between pieces
    return named_lookups(ordered, checked_names(schedule))


def print_file(
    schedule: Schedule,
    arch: str = "sm_90",
    around: Around | None = None,
    target: str = "triton",
    exact: frozenset[str] = frozenset(),
) -> str:
    """The same of a schedule that has gone through all passes."""
    spelling = spelling_of(schedule, target, arch)
    packed, anew = relative(in_packets(schedule))
    taken = checked_names(schedule)
    words, constants = laid_out(packed, elements_in_packets(schedule), anew, taken), Constants(taken)
    constants.add(packed.dims, packed.sizes)
    constants.add(words.dims, words.sizes, layout=True)
    around = around or _bare(packed)
    frame = Frame(packed, words, constants, spelling, exact, around.stream_waits)
    host_roles = [  # first: they say which values they copy
        [print_role(frame, launch, role) for role in launch.roles if role.by_host] for launch in packed.launches
    ]
    kernels = [
        None if all(role.by_host for role in launch.roles) else print_kernel(frame, launch)
        for launch in packed.launches
    ]
    end = None if frame.words.closing else end_kernel(frame)
    waits = [kernel for roles in host_roles for role in roles for kernel in role.kernels]
    host = HostClass(frame, kernels, host_roles, end, around).text()
    printed_kernels = [kernel for kernel in (*waits, *kernels, end) if kernel is not None]
    plain = [schedule.functions, host, *(kernel.text for kernel in printed_kernels if not kernel.gluon)]
    gluon = [kernel.text for kernel in printed_kernels if kernel.gluon]
    helpers, renamed = embed_both(plain, gluon, spelling.helpers, OF_GLUON, spelling.jit)
    found = (renamed(kernel.text) if kernel.gluon else kernel.text for kernel in printed_kernels)
    texts = [decorated(text, spelling.jit) for text in found]
    body = "\n\n".join(filter(None, [schedule.functions.strip("\n") + "\n", *texts])).strip("\n")
    definitions = "\n".join(constants.lines(globals_of(f"{body}\n\n\n{host}")))
    pooled = any(buffer.places for buffer in schedule.buffers)
    left_out = {*(() if pooled else ("pool",)), *(() if schedule.tables else ("ids",))}
    fabrics = [name for name in spelling.fabrics if name not in left_out]
    sections = [
        ("constants", definitions),
        ("device helpers: waits and notifies hold the rules of memory order", helpers),
        (f"kernels of {schedule.name}", body),
        ("the operator", f"{_fabric('opaque')}\n\n\n{host.rstrip()}"),
        (
            TITLES[spelling.fabric],
            reached("\n\n\n".join(map(_fabric, fabrics)), (host, around.main or spelling.fabric)),
        ),
        ("self-check under torchrun", around.main),
    ]
    out = Source()
    if around.head:
        out.lines(around.head)
        out.line()
    else:
        _header(out, undeferred(schedule), frame)
    out.lines(named_imports(spelling.imports, (text for _, text in sections)))
    for title, text in sections:
        if text:
            out.line()
            out.line()
            out.comment(f"---- {title} ".ljust(100, "-"))
            out.line()
            out.line()
            out.lines(text)
    ast.parse(out.text())
    return out.text()


def _bare(schedule: Schedule) -> Around:
    """What a file has around a schedule that nothing else is known of: a head that is printed with its words, and no check."""
    doc = f'"""{schedule.name} on {schedule.num_ranks} ranks. `fabric` is the rank, its peers and streams."""'
    return Around("", doc, hashlib.sha256(printed(schedule).encode()).hexdigest()[:16], "", {})


def _check_sizes(schedule: Schedule) -> None:
    """Raises SizeKnownOnCall: kernels are printed for sizes that are known now."""
    for dim in schedule.dims:
        if dim.on_call:
            raise SizeKnownOnCall(name=dim.name, schedule=schedule.name, size=dim.size)


def _header(out: Source, schedule: Schedule, frame: Frame) -> None:
    out.line(
        f'"""{schedule.name} on {schedule.num_ranks} ranks: a schedule of steps, printed. Yours to keep and edit."""'
    )
    out.line()
    for line in printed(schedule, legend=True).splitlines():
        out.line(f"# {line}".rstrip())
    words = frame.words.lines()
    if words:
        out.line("#")
        out.comment("words:")
        for line in words:
            out.comment(f"  {line}")
    out.line()


@cache
def _fabric(name: str) -> str:
    """The text of a file of `lowering/host` without its header: docstring and imports, those in a `try` as well."""
    text = (Path(__file__).parents[1] / "host" / f"{name}.py").read_text()
    _, *nodes = ast.parse(text).body
    first = next(node for node in nodes if not isinstance(node, ast.Import | ast.ImportFrom | ast.Try))
    return "\n".join(text.splitlines()[first.lineno - 1 :])
