"""On GPUs of one node: the functions of the Triton-distributed dialect on stock Triton, against values that are known.

    torchrun --nproc-per-node 2 -m tilelink.compat.check --json triton_dist.json

Each check of `cases.py` runs `--calls` calls eagerly and as often as a replayed CUDA graph; what differs is
written down with the number of the call. A watchdog ends a rank that hangs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tilelink.compat.triton_dist import install

LOOKS = 10  # how often results are compared in one series of calls


@dataclass(frozen=True, slots=True)
class Outcome:
    """One series of calls on one rank; `wrong` is empty if all comparisons were equal."""

    check: str
    mode: str  # "eager", "graph"
    rank: int
    calls: int
    seconds: float
    wrong: str


def differences(check: Any, call: int) -> str:
    """What differs after call number `call`, counted from 1."""
    for number, (found, wanted) in enumerate(check.wanted(call)):
        held = found.cpu()
        if not torch.equal(held, wanted):
            places = (held != wanted).nonzero()
            at = tuple(places[0].tolist())
            return (
                f"call {call}, result {number}: {len(places)} of {held.numel()} elements differ, "
                f"first at {list(at)}: {held[at].item()} instead of {wanted[at].item()}"
            )
    return ""


def series(step: Callable[[], object], finish: Callable[[], object], check: Any, first: int, calls: int) -> str:
    """`calls` calls that follow on call number `first`, with comparisons between; the first difference."""
    for call in range(first + 1, first + calls + 1):
        step()
        if call == first + calls or (call - first) % max(1, calls // LOOKS) == 0:
            finish()
            wrong = differences(check, call)
            finish()  # nobody goes on while another rank still looks
            if wrong:
                return wrong
    return ""


def meet() -> None:
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()


def run_check(name: str, check: Any, calls: int) -> list[Outcome]:
    """Eager calls, then replays of a graph of one call; an exception is an outcome, too."""

    def eager() -> str:
        return series(check.step, meet, check, 0, calls)

    def replayed() -> str:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            check.step()
        meet()
        return series(graph.replay, meet, check, calls, calls)

    meet()  # what a rank zeroed is zero before a peer writes there
    outcomes: list[Outcome] = []
    for mode, run in (("eager", eager), ("graph", replayed)):
        begun = time.perf_counter()
        try:
            wrong = run()
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        outcomes.append(Outcome(name, mode, check.rank, calls, time.perf_counter() - begun, wrong))
        if wrong:
            break
    return outcomes


def watchdog(seconds: float, running: list[str]) -> threading.Timer:
    """Ends this process if it is still there after so long."""

    def end() -> None:
        print(f"rank {os.environ.get('RANK')}: still in {running[-1]!r} after {seconds:.0f} s", flush=True)
        os._exit(3)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    return timer


def main() -> int:
    """One rank. 1 if anything was wrong on any rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=58)
    parser.add_argument("--only", default="", help="checks whose name has this text")
    arguments = parser.parse_args()
    running = ["start"]
    timer = watchdog(arguments.seconds, running)
    install()
    utils: Any = import_module("triton_dist.utils")
    checks: dict[str, Any] = import_module("tilelink.compat.check.cases").CHECKS
    group = utils.initialize_distributed()
    mine: list[Outcome] = []
    for name, build in checks.items():
        if arguments.only in name:
            running.append(name)
            mine += run_check(name, build(group), arguments.calls)
    gathered: list[Any] = [None] * group.size()
    dist.all_gather_object(gathered, mine)
    outcomes = [outcome for held in gathered for outcome in held]
    failed = [outcome for outcome in outcomes if outcome.wrong]
    if group.rank() == 0:
        report(outcomes, arguments.json)
    utils.finalize_distributed()
    timer.cancel()
    return 1 if failed else 0


def report(outcomes: list[Outcome], path: Path | None) -> None:
    """A line for each check and mode, of the rank that was wrong or slowest, and all of them as JSON."""
    for name, mode in dict.fromkeys((outcome.check, outcome.mode) for outcome in outcomes):
        alike = [outcome for outcome in outcomes if (outcome.check, outcome.mode) == (name, mode)]
        shown = max(alike, key=lambda outcome: (bool(outcome.wrong), outcome.seconds))
        verdict = f"WRONG on rank {shown.rank}: {shown.wrong}" if shown.wrong else "equal"
        print(f"{name:32s} {mode:6s} {shown.calls} calls {shown.seconds:6.2f} s  {verdict}", flush=True)
    if path is not None:
        machine = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
        path.write_text(json.dumps({**machine, "outcomes": [asdict(o) for o in outcomes]}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
