"""On GPUs: what each program of a call does when, from stamps of the GPU's clock in the emitted kernels.

    python benchmarks/bench.py gemm_rs --ranks 4 --rows llama-7b --write-plans plans.json     # anywhere
    torchrun --nproc-per-node 4 benchmarks/timeline.py plans.json --json timeline.json --plot FOLDER

For each schedule of the plans, and each file that `--file` put there: calls in a CUDA graph behind 100 ms of the matmul alone,
then the stamps of one more call, of every rank for itself, since clocks of GPUs differ. Time of a call with stamps and
without, so that one sees what they cost. `--spans FOLDER` writes every span of a schedule, for `tilelink show --measured`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist
from rich.console import Console

import lowering
from tilelink.bench.job import read_job
from tilelink.bench.problem import input_shapes
from tilelink.bench.rows import Row
from tilelink.measuring.device import CudaDevice
from tilelink.profiling.stamps import Stamped, stamped
from tilelink.profiling.timeline import Doing, Span, shares, shares_to_json, spans, spans_to_json, table
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.ranks import MULTICAST_OFF, machine

_CALLS = 10  # in a graph
_LOAD_S = 0.1
_COLORS = {Doing.TILE: "tab:blue", Doing.WAIT: "tab:red", Doing.MOVE: "tab:orange", Doing.END: "tab:gray"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plans", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path, metavar="FOLDER", help="a picture a row")
    parser.add_argument(
        "--spans", type=Path, metavar="FOLDER", help="a file a schedule, for `tilelink show --measured`"
    )
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    for name, value in MULTICAST_OFF.items():
        os.environ.setdefault(name, value)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
    device = CudaDevice(torch.device("cuda", torch.cuda.current_device()))
    job = read_job(arguments.plans)
    rows = []
    for planned in job.rows:
        for candidate in planned.candidates:
            source = candidate.source or (lowering.emit(candidate.schedule) if candidate.schedule is not None else "")
            if source:
                choices = dict(candidate.schedule.choices) if candidate.schedule is not None else {}
                schedule = candidate.schedule.hash if candidate.schedule is not None else ""
                row, by_rank = measure(planned.row, candidate.label, source, arguments.plot, device)
                rows.append({**row, "schedule": schedule, "choices": choices})
                if dist.get_rank() == 0 and arguments.spans is not None and schedule:
                    call = spans_to_json(schedule, machine(), row["us"], by_rank)
                    path = arguments.spans / f"spans_{row['operator']}_{row['row']}_{candidate.label}.json"
                    path.write_text(json.dumps(call))
                device.release()
    if dist.get_rank() == 0 and arguments.json is not None:
        found = {"machine": machine(), "commit": arguments.commit, "num_ranks": job.num_ranks, "rows": rows}
        arguments.json.with_suffix(".part").write_text(json.dumps(found, indent=1))
        arguments.json.with_suffix(".part").rename(arguments.json)
    device.meet()
    dist.destroy_process_group()


def measure(
    row: Row, label: str, source: str, plot: Path | None, device: CudaDevice
) -> tuple[dict[str, Any], list[list[Span]]]:
    plain_us, _ = run(row, source, row.operator.value, device)
    marked = stamped(source)
    marked_us, words = run(row, marked.source, row.operator.value, device)
    found = collect(words, marked)
    if dist.get_rank() == 0:
        title = f"{row.operator.value} {row.name}, {label}: {plain_us:.1f} us a call, {marked_us:.1f} with stamps"
        console = Console(width=None if sys.stdout.isatty() else 160)
        for rank, here in enumerate(found):
            console.print(table(f"{title}, rank {rank}", shares(here)))
        if plot is not None:
            draw(title, found, plot / f"timeline_{row.operator.value}_{row.name}_{label}.png")
    by_rank = [shares_to_json(shares(here)) for here in found]
    facts = {
        "operator": row.operator.value,
        "row": row.name,
        "label": label,
        "us": round(plain_us, 1),
        "us_with_stamps": round(marked_us, 1),
        "ranks": by_rank,
    }
    return facts, found


def run(row: Row, source: str, name: str, device: CudaDevice) -> tuple[float, torch.Tensor | None]:
    """us of a call on the slowest rank, and the stamps of the last one."""
    module = load_source(source, name)
    build: Any = operator_class(module)
    fabric = module.SymmetricMemoryFabric()
    op = build(fabric)
    inputs = list(module.make_inputs(fabric.rank, 0, fabric.device).values())
    for _ in range(3):
        op(*inputs)
    device.meet()
    batch = device.capture(lambda: op(*inputs), _CALLS)
    times: list[float] = []
    for _ in range(3):
        load(row, device)
        times += device.time(batch, 1, 4)
    slowest = max(map(float, device.exchange(str(statistics.median(times) / _CALLS))))
    words = None
    if hasattr(op, "stamps"):  # those of one call: what one program of a call does is another one's in the next
        last = device.capture(lambda: op(*inputs), 1)
        load(row, device)
        op.stamps.zero_()
        device.meet()
        device.time(last, 0, 1)
        words = op.stamps.cpu()
    device.meet()
    return slowest, words


def load(row: Row, device: CudaDevice) -> None:
    """100 ms of the row's first matmul alone, so that clocks are those of the benchmark; then all ranks begin."""
    (m, k), weight = input_shapes(row, device.num_ranks)[:2]
    n = weight[0 if row.k_major else 1]
    a, b = (torch.randn(shape, device="cuda").bfloat16() for shape in ((m, k), (k, n)))
    end = time.perf_counter() + _LOAD_S
    while time.perf_counter() < end:
        for _ in range(10):
            torch.mm(a, b)
        torch.cuda.synchronize()
    device.meet()


def collect(words: torch.Tensor | None, marked: Stamped) -> list[list[Span]]:
    """Spans of every rank, on every rank."""
    assert words is not None, "the operator has stamps"
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, words.view(marked.slots, marked.programs).tolist())
    return [spans(one, marked.sites) for one in found]


def draw(title: str, found: list[list[Span]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.patches import Patch

    figure, axes = plt.subplots(len(found), 1, sharex=True, figsize=(12, 3 * len(found)), squeeze=False)
    for rank, (axis, here) in enumerate(zip(axes[:, 0], found, strict=True)):
        for doing, color in _COLORS.items():
            for number, lane in enumerate(dict.fromkeys(span.lane for span in here)):
                bars = [(s.start_us, s.us) for s in here if s.doing is doing and s.lane == lane]
                # a white edge between the tiles of a program
                edge = {"edgecolor": "white", "linewidth": 0.2} if doing is Doing.TILE else {}
                axis.broken_barh(bars, (number, 1), facecolor=color, **edge)
        axis.set_ylabel(f"program, rank {rank}")
    axes[-1, 0].set_xlabel("us")
    axes[0, 0].set_title(title)
    figure.legend(handles=[Patch(color=color, label=doing.value) for doing, color in _COLORS.items()], ncols=4)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)


if __name__ == "__main__":
    main()
