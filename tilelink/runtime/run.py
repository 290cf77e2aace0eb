"""Run emitted source and compare with the reference: on emulated ranks, or under torchrun on GPUs."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from tilelink.emulator import World
from tilelink.errors import FabricUnavailable, RunFailed
from tilelink.ir.calls import LibraryCollective
from tilelink.ir.schedule import Schedule
from tilelink.ir.user_op import UserOp
from tilelink.runtime.load import in_dialect, load_source, operator_class
from tilelink.runtime.meaning import user_reference
from tilelink.runtime.reference import expected, kept, make_inputs, poison, relative_error, tolerance
from tilelink.runtime.torchrun import check_gpus, run_to_end, torchrun


@dataclass(frozen=True, slots=True)
class RunResult:
    """Outcome of a run; `seconds` is wall time of all calls, not a benchmark."""

    equal: bool
    max_error: float
    tolerance: float
    seconds: float
    num_ranks: int
    device: str
    calls: int

    def lines(self) -> list[str]:
        verdict = "equal" if self.equal else "NOT equal"
        ranks = {"cpu": "{} emulated ranks", "cuda": "{} ranks", "shared cuda": "{} ranks on shared GPUs"}[self.device]
        return [
            f"{verdict}: {ranks.format(self.num_ranks)}, {self.calls} calls, relative error {self.max_error:.1e} "
            f"(tolerance {self.tolerance:.0e}), {self.seconds:.1f} s"
        ]


def run_emulated(schedule: Schedule, source: str, calls: int = 2, seed: int = 0) -> RunResult:
    """All ranks of `source` in this process, `calls` calls with fresh inputs enqueued at once.

    Raises the errors of tilelink.emulator.
    """
    start = time.perf_counter()
    _check_references(schedule)
    spec = schedule.spec
    build = operator_class(load_source(source, schedule.name))
    machine = schedule.machine
    world = World(
        machine.num_ranks,
        num_sms=machine.num_sms,
        seed=seed,
        lazy_loading=True,
        peer_atomics=machine.peer_atomics,
    )
    operators = [build(fabric) for fabric in world.fabrics]
    for operator in operators:
        poison(value for value in vars(operator).values() if isinstance(value, torch.Tensor))
    rounds = []
    for call in range(calls):
        inputs = make_inputs(spec, 1000 * seed + call)
        results = []
        for fabric, operator, parts in zip(world.fabrics, operators, inputs, strict=True):
            result = operator(*parts.values())
            outputs = result if isinstance(result, tuple) else (result,)
            poison(outputs)
            results.append(kept(fabric.main(), outputs))
        rounds.append((inputs, results))
    world.run()
    worst = 0.0
    for inputs, results in rounds:
        for result, wanted in zip(results, expected(spec, inputs), strict=True):
            worst = max([worst, *(relative_error(a, b) for a, b in zip(result, wanted, strict=True))])
    bound = tolerance(spec)
    seconds = time.perf_counter() - start
    return RunResult(worst <= bound, worst, bound, seconds, schedule.num_ranks, "cpu", calls)


def run_cuda(
    schedule: Schedule,
    source: str,
    calls: int = 2,
    seed: int = 0,
    timeout_s: float = 300.0,
    share_gpus: bool = False,
) -> RunResult:
    """Start one process a rank with torchrun; the emitted file checks itself. With `share_gpus`, ranks may be more than GPUs.

    Raises FabricUnavailable, NoReference, and RunFailed if the ranks crash or take longer than `timeout_s` seconds.
    """
    check_gpus(schedule.num_ranks, "Let ranks take turns: --share-gpus. Or emulate them: --device cpu.", share_gpus)
    calls_nccl = any(isinstance(launch, LibraryCollective) for launch in schedule.launches)
    if share_gpus and calls_nccl:
        reason = "this schedule calls NCCL, which takes one rank a GPU"
        legal = "Pin another algorithm than the library's, or emulate the ranks: --device cpu."
        raise FabricUnavailable(num_ranks=schedule.num_ranks, reason=reason, legal=legal)
    _check_references(schedule)
    with tempfile.TemporaryDirectory() as folder:
        file, result = Path(folder) / f"{schedule.name}.py", Path(folder) / "result.json"
        file.write_text(source)
        shared = ["-m", "tilelink.runtime.shared_gpus"] if share_gpus else []
        shim = ["-m", "tilelink.triton_dist"] if in_dialect(source) else []
        arguments = [*shared, *shim, str(file), "--calls", str(calls), "--seed", str(seed), "--json", str(result)]
        reason, lines = run_to_end(torchrun(schedule.num_ranks, *arguments), timeout_s, lambda line: None)
        if not result.exists():
            shown = "\n".join(lines[-12:])
            raise RunFailed(num_ranks=schedule.num_ranks, operator=schedule.name, reason=reason, lines=shown)
        found = json.loads(result.read_text())
    error, seconds = found["max_error"], found["seconds"]
    device = "shared cuda" if share_gpus else "cuda"
    return RunResult(found["equal"], error, found["tolerance"], seconds, schedule.num_ranks, device, calls)


def _check_references(schedule: Schedule) -> None:
    """Every tile op of the user's can be compared with something. Raises NoReference."""
    for node in schedule.spec.nodes:
        if isinstance(node.operation, UserOp):
            user_reference(node.operation)
