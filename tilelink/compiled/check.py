"""Each kernel of emitted source, compiled ahead of time: does what is compiled keep the order of what is written?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from types import ModuleType

from tilelink.compiled.apart import order_unseen
from tilelink.compiled.errors import CannotFollow
from tilelink.compiled.events import Descriptor, Event, Kind, Memory
from tilelink.compiled.guards import Regions, number_of, unguarded
from tilelink.compiled.launches import Launches, Prepared
from tilelink.compiled.lines import torn
from tilelink.compiled.mlir import Function, parse
from tilelink.compiled.mlir_state import Value
from tilelink.compiled.mlir_trace import Tracer
from tilelink.compiled.order import Misplaced, misplaced
from tilelink.compiled.ptx import Kernel, parse_ptx
from tilelink.compiled.ptx_state import Shared
from tilelink.compiled.ptx_trace import Thread
from tilelink.compiled.replicas import replicated
from tilelink.ir.enums import WARP
from tilelink.proof.bug_class import BugClass

_DIMENSIONS = re.compile(r"tensor<(?:\d+x)+")
SENT_TWICE = "several warps hold one packet: a late one sends it again when the peer has taken it"
TORN = "several instructions store or load a line of 128 bytes, which may come in pieces"
_FLATTEN = "tt.flatten"  # of a loop that the compiler may run as one with the loop inside


@dataclass(frozen=True, slots=True)
class Finding:
    """Something of kernel `kernel` that is not in the order of its source, in the text of `stage`."""

    kernel: str
    stage: str
    program: int
    rule: str
    early: str
    late: str


@dataclass(slots=True)
class CompiledReport:
    """`unknown`: what could not be followed, and why; nothing is said of that. `events`: how many were compared."""

    arch: str
    kernels: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    events: int = 0

    def to_json(self) -> dict[str, object]:
        """`arch, kernels, accesses, findings, unknown`; of a finding its kernel, stage, program, rule and two operations."""
        return {
            "arch": self.arch,
            "kernels": self.kernels,
            "accesses": self.events,
            "findings": [asdict(one) for one in self.findings],
            "unknown": self.unknown,
        }

    def lines(self) -> list[str]:
        """A line on what was compared, then findings and what is not known."""
        several = f"{len(self.kernels)} kernel{'s' * (len(self.kernels) != 1)} for {self.arch}"
        if not self.findings:
            said = "keep the order of their source" if not self.unknown else "nothing found"
            head = f"compiled: {several}, {self.events} accesses: {said}"
        else:
            head = f"compiled: {several}: REFUTED ({BugClass.COMPILED_ORDER})"
        lines = [head]
        for one in self.findings:
            lines += [f"  {one.kernel} ({one.stage}, program {one.program}): {one.rule}"]
            lines += [f"    first  {one.early}", f"    second {one.late}"]
        return lines + [f"  not followed: {text}" for text in self.unknown]


def check_compiled(module: ModuleType, num_ranks: int, arch: str, *, waits_ahead: bool | None = None) -> CompiledReport:
    """Compile every kernel of one call of the operator in `module` for `arch` ("sm_90", "gfx942") and check its order.

    `waits_ahead`: whether a tile may wait before the tile in front of it notifies; None: where the source asks the compiler to
    run two loops as one. What cannot be compiled or followed is `unknown` in the report.
    """
    report = CompiledReport(arch)
    for launch in Launches(module, num_ranks, num_ranks - 1, arch):
        report.kernels.append(launch.name)
        try:
            kernel = launch.prepare()
            ahead = _FLATTEN in kernel.written if waits_ahead is None else waits_ahead
            _check_kernel(report, kernel, ahead)
        except CannotFollow as error:
            report.unknown.append(f"{launch.name}: {error}")
    return report


def _programs(grid: int) -> list[int]:
    return sorted({0, 1, grid // 2, grid - 1} & set(range(grid)))


def _check_kernel(report: CompiledReport, kernel: Prepared, waits_ahead: bool) -> None:
    written = parse(kernel.written)
    if order_unseen(written, kernel):
        return
    compiled = parse(kernel.ttgir)
    sources, memories = {}, {}
    for program in _programs(kernel.grid):
        memories[program] = kernel.memory()
        sources[program] = _trace(written, kernel, memories[program], program)
    regions = _regions(kernel, [trace for source in sources.values() for trace in source.traces])
    assembly = parse_ptx(kernel.assembly) if kernel.assembly else None
    for access in replicated(kernel.ttgir):
        shape = "x".join(map(str, access.shape))
        _add(report, Finding(kernel.name, "TTGIR", 0, SENT_TWICE, f"{access.text} of {shape} packets", access.layout))
    for access in torn(kernel.ttgir):
        _add(report, Finding(kernel.name, "TTGIR", 0, TORN, access.text, access.layout))
    for program, source in sources.items():
        made = _trace(compiled, kernel, memories[program].again(), program)
        complete = source.complete and made.complete
        for one, other in zip(source.traces, made.traces, strict=True):
            kept = _unsettled(one, regions), _unsettled(other, regions)
            moved = misplaced(*kept, waits_ahead=waits_ahead, complete=complete, whole=True)
            found = [*moved, *unguarded(kept[1], regions, assembly=False)]
            _note(report, kernel.name, "TTGIR", program, found)
            report.events += len(kept[1])
        if assembly is not None:
            _check_threads(report, kernel, assembly, program, source, memories[program], regions, waits_ahead)


def _check_threads(
    report: CompiledReport,
    kernel: Prepared,
    assembly: Kernel,
    program: int,
    source: Tracer,
    memory: Memory,
    regions: Regions,
    waits_ahead: bool,
) -> None:
    shared = Shared()
    for number, task in _threads(assembly, kernel.num_warps, len(source.traces)):
        thread = Thread(assembly, memory.again(), shared, kernel.registers, program, kernel.grid, number)
        thread.run()
        kept = _unsettled(thread.trace, regions)
        # the compiler has barriers of its own, so that the nth barrier is another one: `unguarded` says where one is due
        both = (_but_barriers(trace) for trace in (_unsettled(source.traces[task], regions), kept))
        complete = source.complete and thread.complete
        moved = misplaced(*both, waits_ahead=waits_ahead, complete=complete, whole=False)
        found = [*moved, *unguarded(kept, regions, assembly=True)]
        _note(report, kernel.name, "PTX", program, found)
        report.events += len(kept)


def _threads(assembly: Kernel, num_warps: int, tasks: int) -> list[tuple[int, int]]:
    """(thread, group of warps): the first of some warps, and one that is first of none. Groups have as many warps each."""
    if tasks > 1:
        return [(group * num_warps * WARP, group) for group in range(tasks)]
    last = assembly.threads - WARP
    return [(thread, 0) for thread in dict.fromkeys((0, 1, WARP, last))]


def _regions(kernel: Prepared, traces: Sequence[Sequence[Event]]) -> Regions:
    """What a launch shares with whoever runs beside it: symmetric memory, what side streams copy, what its programs store."""
    stored = {number_of(event) for trace in traces for event in trace if event.kind is Kind.STORE}
    loaded = {number_of(event) for trace in traces for event in trace if event.kind is Kind.LOAD}
    return Regions(kernel.written_beside | stored, kernel.read_beside | loaded)


def _unsettled(trace: Sequence[Event], regions: Regions) -> list[Event]:
    """Without loads of what nobody writes while the launch runs."""
    return [event for event in trace if event.kind is not Kind.LOAD or number_of(event) in regions.written]


def _but_barriers(trace: Sequence[Event]) -> list[Event]:
    return [event for event in trace if event.kind is not Kind.BARRIER]


def _trace(functions: dict[str, Function], kernel: Prepared, memory: Memory, program: int) -> Tracer:
    tracer = Tracer(memory, program, kernel.grid, functions=functions)
    entry = next(function for function in functions.values() if function.public)
    tracer.run(entry.name, _arguments(entry, kernel.arguments))
    return tracer


def _arguments(entry: Function, given: Sequence[int | Descriptor]) -> list[Value]:
    """A descriptor comes with shape and strides, which nothing depends on."""
    values: list[Value] = []
    rest, beside = list(given), 0
    for _, types in entry.parameters:
        if types.startswith("!tt.tensordesc"):
            values.append(rest.pop(0))
            beside = 2 * _DIMENSIONS.search(types)[0].count("x")  # type: ignore[index]
        elif beside:
            values.append(0)
            beside -= 1
        else:
            values.append(rest.pop(0))
    return values


def _note(report: CompiledReport, kernel: str, stage: str, program: int, found: Iterable[Misplaced]) -> None:
    """Add what is found, each rule once a kernel and stage: other programs and threads break it in the same way."""
    for one in found:
        _add(report, Finding(kernel, stage, program, one.rule, one.early.text, one.late.text))


def _add(report: CompiledReport, one: Finding) -> None:
    if not any((f.kernel, f.stage, f.rule) == (one.kernel, one.stage, one.rule) for f in report.findings):
        report.findings.append(one)
