"""On GPUs: losses planted in GEMM+RS and AG+GEMM of real size; which of the three comparisons sees them.

    torchrun --nproc-per-node 2 benchmarks/planted_losses.py --json planted.json
    python benchmarks/planted_losses.py --run 2 --json planted_run.json

Some are edits of the emitted text: one 16 x 64 piece of the 16,384 of a rank's output is not stored, or stored as zeros; one
that is sent to a peer is not stored; one summand of a piece is not added. The others change what a right operator returns,
so that it does not matter what memory held before: a piece of zeros, a tile of the call before, a row of another rank.
Under torchrun the check of the emitted file, that of `tilelink bench`
and the comparison of `tilelink run` judge each in one process; with `--run` the command itself judges the edited texts.
Exit code 0: all that is planted is seen by all, and what is right is called right.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist

import lowering
from benchmarks.wanted import as_tuple
from lowering.libraries import library_values
from lowering.selfcheck.compare import Comparison
from tilelink.bench.contender import Setting
from tilelink.bench.machine import topology_of_gpus
from tilelink.bench.operators import declaration
from tilelink.bench.ranks import make_problem
from tilelink.bench.rows import Operator, Row
from tilelink.ir.schedule import Schedule
from tilelink.measuring.contender import Contender, Kind, Mode
from tilelink.measuring.device import Call, CudaDevice, Device
from tilelink.measuring.measure import Options, measure_row
from tilelink.measuring.ours import OperatorCall
from tilelink.runtime.compare import outputs_with_bounds
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.ranks import join, machine
from tilelink.runtime.run import run_cuda

ROWS, COLS = 16, 64  # of a piece
TILE = {"algorithm": "direct", "compute": "triton", "mover": "CopyEngine()", "transfer": "push"}
CASES = {
    Operator.GEMM_RS: {**TILE, "tile": "128x128x64/8w3s", "sum": "epilogue", "prefetch": "no"},
    Operator.AG_GEMM: {**TILE, "tile": "128x128x64/8w3s", "prefetch": "no"},
}
CALLS = 3  # of the check of an emitted file

# the first piece of a tile at (m, n), without helpers: a file has those that it calls
_FIRST = f"((m + tl.arange(0, TILE_M)[:, None] < {ROWS}) & (n + tl.arange(0, TILE_N)[None, :] < {COLS}))"
_STORE = (
    r"tl\.store\(\s*({}\s*\+ (?:[^()]|\([^()]*\))*?cols_from\(n, \w+\)),"
    r"\s*(\w+\.to\(tl\.\w+\)),?\s*(?:mask=(.*?),?\s*)?\)\n"
)
_BY_DESCRIPTOR = r"(out_desc\.store\(\[.*\], )(out\w*)\.to\("


def _in_piece(pointers: str) -> str:
    """Which elements of the tile at `pointers` are those of the first piece."""
    rows, cols = (re.findall(rf"{name}_from\([^()]*\)", pointers)[-1] for name in ("rows", "cols"))
    return f"(({rows} < {ROWS}) & ({cols} < {COLS}))"


class NoPlace(ValueError):
    """A text has no place for what is to be planted."""


def without_store(text: str, buffer: str) -> str:
    """The first store to `buffer` leaves its first piece out, on every rank. Raises NoPlace."""
    match = re.search(_STORE.format(buffer), text)
    if match is None:
        raise NoPlace(f"no tile is stored to {buffer} through a pointer")
    mask = f"~{_in_piece(match[1])}" + (f" & ({match[3]})" if match[3] else "")
    return f"{text[: match.start()]}tl.store({match[1]}, {match[2]}, mask={mask})\n{text[match.end() :]}"


def with_zeros(text: str) -> str:
    """The first piece of the output that descriptors store holds zeros, as memory that nothing was stored to. Raises NoPlace."""
    found = re.sub(_BY_DESCRIPTOR, lambda match: f"{match[1]}tl.where({_FIRST}, 0.0, {match[2]}).to(", text, count=1)
    if found == text:
        raise NoPlace("no tile of the output is stored through a descriptor")
    return found


def without_summand(text: str, parts: str) -> str:
    """What ranks add from `parts` is not added in the first piece. Raises NoPlace."""
    added = rf"({parts}_tile = tl\.load\((?:[^()]|\([^()]*\))*\)\n\s*\w+ = \w+ \+ )({parts}_tile\.to\(tl\.float32\))$"
    zeroed = lambda match: f"{match[1]}tl.where({_in_piece(match[1])}, 0.0, {match[2]})"  # noqa: E731
    found = re.sub(added, zeroed, text, count=1, flags=re.M)
    if found == text:
        raise NoPlace(f"nothing is added from {parts}")
    return found


TEXTS: dict[Operator, dict[str, Callable[[str], str]]] = {
    Operator.GEMM_RS: {
        "piece of the output not stored": lambda text: without_store(text, "out"),
        "piece for a peer not stored": lambda text: without_store(text, "y_staged"),
        "summand of a piece not added": lambda text: without_summand(text, "y_parts"),
    },
    Operator.AG_GEMM: {"piece of the output is zeros": with_zeros},
}


def _zeros(out: torch.Tensor, before: torch.Tensor) -> None:
    out[-ROWS:, -COLS:] = 0


def _stale(out: torch.Tensor, before: torch.Tensor) -> None:
    out[-128:, :128] = before[-128:, :128]


def _row(out: torch.Tensor, before: torch.Tensor) -> None:
    """The row lies half of the output away: with two ranks, where an all_gather has the part of the other one."""
    out[0] = out[out.shape[0] // 2]


RESULTS: dict[str, Callable[[torch.Tensor, torch.Tensor], None]] = {
    "piece of zeros": _zeros,
    "tile of the call before": _stale,
    "row of another rank": _row,
}


def lossy(build: type, plant: Callable[[torch.Tensor, torch.Tensor], None]) -> type:
    """The operator class `build`, whose output loses what `plant` takes from it; that gets the output of the last call, too."""

    class Lossy(build):  # type: ignore[misc]
        before: tuple[torch.Tensor, ...] = ()  # no memory of the operator, to be filled with nan

        def __call__(self, *inputs: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = super().__call__(*inputs)
            if not self.fabric.is_loading:
                right = out.clone()
                plant(out, self.before[0] if self.before else torch.zeros_like(out))
                self.before = (right,)
            return out

    return Lossy


@dataclass(frozen=True)
class Subject:
    """A schedule as a module with its operator class, right or with a loss in it."""

    name: str
    schedule: Schedule
    module: ModuleType
    build: type


def subjects(schedule: Schedule, operator: Operator) -> list[Subject]:
    """First the right one."""
    source = lowering.emit(schedule)
    module = load_source(source, schedule.name)
    found = [Subject("right", schedule, module, operator_class(module))]
    for name, edit in TEXTS[operator].items():
        edited = load_source(edit(source), schedule.name)
        found.append(Subject(name, schedule, edited, operator_class(edited)))
    for name, plant in RESULTS.items():
        found.append(Subject(name, schedule, module, lossy(operator_class(module), plant)))
    return found


def seen_by_file(subject: Subject, fabric: Any) -> list[dict[str, Any]]:
    """What the check of the emitted file finds wrong on this rank, call by call."""
    op = subject.build(fabric)
    found = [one for call in range(CALLS) for one in subject.module.check_call(op, call, call)]
    return [one for one in found if one["wrong"]]


def seen_by_run(subject: Subject, fabric: Any) -> list[dict[str, Any]]:
    """What the comparison of `tilelink run` finds wrong on this rank. The second call may have what the first one left."""
    op, found = subject.build(fabric), []
    for call in range(2):
        inputs = [subject.module.make_inputs(rank, 100 + call, fabric.device) for rank in range(fabric.num_ranks)]
        outputs = as_tuple(op(*inputs[fabric.rank].values()))
        wanted = outputs_with_bounds(subject.schedule.spec, inputs, library_values(subject.schedule))[fabric.rank]
        for name, difference in zip(subject.schedule.spec.outputs, map(Comparison.of, outputs, wanted), strict=True):
            if not difference.equal:
                found.append({"call": call, "rank": fabric.rank, "output": name, "text": difference.text()})
    return found


def seen_by_bench(each: list[Subject], row: Row, fabric: Any, device: Device) -> dict[str, str]:
    """Of each subject why `tilelink bench` does not count it, or an empty text."""

    def contender(subject: Subject) -> Contender:
        def prepare(setting: Setting) -> Call:
            return OperatorCall(subject.build(fabric), setting.inputs)

        return Contender(subject.name, Kind.OURS, Mode.EAGER, prepare)

    problem = make_problem(row, device, fabric.device, 7)
    options = Options(rounds=1, load_ms=0)
    results = measure_row(device, problem, [contender(one) for one in each], options, lambda step, name: None)
    return {result.name: result.failure for result in results}


def judged(each: list[Subject], row: Row, fabric: Any, device: Device) -> list[dict[str, Any]]:
    """What each comparison says of each subject, on any rank."""
    bench = seen_by_bench(each, row, fabric, device)
    found = []
    for subject in each:
        here = {"file": seen_by_file(subject, fabric), "run": seen_by_run(subject, fabric)}
        ranks = [json.loads(text) for text in device.exchange(json.dumps(here))]
        both = {by: [one for rank in ranks for one in rank[by]] for by in ("file", "run")}
        seen = {by: bool(wrong) for by, wrong in both.items()} | {"bench": bool(bench[subject.name])}
        facts = {
            "subject": subject.name,
            "planted": subject.name != "right",
            "seen": seen,
            "bench": bench[subject.name],
        }
        found.append(facts | {by: [one["text"] for one in wrong][:4] for by, wrong in both.items()})
        device.release()
    return found


def as_it_should(found: list[dict[str, Any]]) -> bool:
    """Whether all that is planted is seen by all that looked, and nothing else is."""
    return all(set(one["seen"].values()) == {one["planted"]} for one in found)


def planned(operator: Operator, row: Row, num_ranks: int) -> Schedule:
    return declaration(operator).plan(topology_of_gpus(), num_ranks, "bf16", CASES[operator], None, **row.sizes)


def rows(num_ranks: int) -> dict[Operator, Row]:
    """16,384 pieces of output on each rank."""
    m = 2048
    return {
        Operator.GEMM_RS: Row(Operator.GEMM_RS, "planted", m * num_ranks, 8192, 4096 * num_ranks, "bf16"),
        Operator.AG_GEMM: Row(Operator.AG_GEMM, "planted", 8192, 4096, 2048 * num_ranks, "bf16"),
    }


def under_torchrun() -> list[dict[str, Any]]:
    join()
    device = CudaDevice(torch.device("cuda", torch.cuda.current_device()))
    found = []
    for operator, row in rows(device.num_ranks).items():
        each = subjects(planned(operator, row, device.num_ranks), operator)
        fabric = each[0].module.SymmetricMemoryFabric()
        for one in judged(each, row, fabric, device):
            found.append({"operator": operator.value, "sizes": row.sizes, **one})
            if device.rank == 0:
                print(json.dumps(found[-1]), flush=True)
    return found


def through_run(num_ranks: int) -> list[dict[str, Any]]:
    found = []
    for operator, row in rows(num_ranks).items():
        schedule = planned(operator, row, num_ranks)
        source = lowering.emit(schedule)
        edits: dict[str, Callable[[str], str]] = {"right": str, **TEXTS[operator]}
        for name, edit in edits.items():
            result = run_cuda(schedule, edit(source), calls=CALLS)
            facts = {"operator": operator.value, "subject": name, "planted": name != "right"}
            found.append(facts | {"seen": {"run": not result.equal}, "lines": result.lines()})
            print(json.dumps(found[-1]), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--run", type=int, default=0, help="ranks: not under torchrun, but by `tilelink run`")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    found = through_run(arguments.run) if arguments.run else under_torchrun()
    fine = as_it_should(found)
    if arguments.json is not None and int(os.environ.get("RANK", "0")) == 0:
        about = {"machine": "" if arguments.run else machine(), "commit": arguments.commit, "as_it_should": fine}
        arguments.json.write_text(json.dumps({**about, "found": found}, indent=1))
    print("all that is planted is seen, nothing else is" if fine else "NOT as it should be", flush=True)
    if dist.is_initialized():
        dist.barrier()
        torch.cuda.synchronize()
        dist.destroy_process_group()
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
