"""Mutation testing of the verifier over all shipped workloads: JSON for the record, a page for lab/.

    python benchmarks/mutation.py --sample 120 --json benchmarks/results/mutation.json --page lab/mutation.md

Runs on CPUs. Each workload is planned with every mover and transfer that goes with it, in its small form.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import topologies
from tilelink.adversary.small import small_form
from tilelink.mutation.campaign import Campaign, campaign, merged
from tilelink.mutation.report import Fate
from tilelink.spec_file import load_overlap

SIZES = {
    "01_queue.py:queue": {"B": 4050, "C": 128},
    "02_ag_gemm.py:ag_gemm": {"M": 8192, "K": 4096, "N": 14336},
    "03_gemm_rs.py:gemm_rs": {"M": 8192, "K": 14336, "N": 5120},
    "04_gemm_ar.py:gemm_ar": {"M": 1032, "K": 4096, "N": 4096},
    "05_mlp.py:mlp": {"M": 1032, "H": 4096, "F": 14336},
    "06_user_op.py:ag_squared_relu": {"M": 1032, "K": 4096, "N": 4096},
}
PINS: dict[str, list[dict[str, str]]] = {
    "01_queue.py:queue": [{"mover": "CommSms(16)", "chunks": "2025", "slots": "32", "consumers": "4"}],
    "02_ag_gemm.py:ag_gemm": [
        {"mover": "CopyEngine()", "transfer": "push", "compute": "triton", "chunks": "2"},
        {"mover": "CopyEngine()", "transfer": "pull", "compute": "triton", "chunks": "2", "nest": "chunk by chunk"},
        {"mover": "CommSms(8)", "transfer": "push", "chunks": "2"},
        {"mover": "CommSms(8)", "transfer": "pull", "chunks": "2"},
        {"mover": "CopyEngine()", "transfer": "push", "tile": "128x128x64/4w5s", "tail": "halves"},
        {"mover": "Fused()", "transfer": "pull"},
        {"mover": "CopyEngine()", "transfer": "push", "compute": "library", "chunks": "2"},
    ],
    "03_gemm_rs.py:gemm_rs": [
        {"mover": "CopyEngine()", "transfer": "push", "sum": "epilogue", "chunks": "2"},
        {"mover": "CopyEngine()", "transfer": "pull", "sum": "kernel", "chunks": "2"},
        {"mover": "CommSms(8)", "transfer": "push", "sum": "kernel", "chunks": "2"},
        {"mover": "CommSms(8)", "transfer": "pull", "sum": "epilogue", "chunks": "2"},
        {"mover": "Fused()", "transfer": "push", "sum": "epilogue", "chunks": "2"},
        {"mover": "Fused()", "transfer": "pull", "sum": "kernel", "chunks": "2"},
    ],
    "04_gemm_ar.py:gemm_ar": [
        {"algorithm": "one-shot", "mover": "Fused()", "transfer": "push", "chunks": "2"},
        {"algorithm": "two-shot", "mover": "Fused()", "transfer": "pull", "chunks": "2"},
        {"algorithm": "two-shot", "mover": "CopyEngine()", "transfer": "push", "chunks": "2"},
        {
            "algorithm": "two-shot",
            "mover": "Fused()",
            "transfer": "push",
            "y.compute": "triton",
            "out_part.sum": "epilogue",
        },
        {"algorithm": "in-place", "mover": "Fused()", "y.compute": "triton", "y_parts.transfer": "push"},
        {"algorithm": "pooled", "mover": "Fused()", "y.compute": "triton", "y_parts.transfer": "push"},
        {"algorithm": "in-place", "mover": "CopyEngine()", "y.compute": "triton", "chunks": "2"},
        {"algorithm": "in-place", "mover": "Fused()", "y.compute": "library"},
    ],
    "05_mlp.py:mlp": [
        {"x_full.mover": "CopyEngine()", "y_parts.mover": "Fused()", "y_parts.transfer": "push", "chunks": "2"},
    ],
    "06_user_op.py:ag_squared_relu": [{"mover": "CommSms(8)", "transfer": "push", "chunks": "2"}],
}
EVEN_ROWS = 8192  # which tiles divide, so that parts and sums can leave in pieces
IN_TURNS: dict[str, dict[str, str]] = {
    "03_gemm_rs.py:gemm_rs": {"algorithm": "direct", "sum": "epilogue"},
    "04_gemm_ar.py:gemm_ar": {"algorithm": "pooled", "out_part.sum": "epilogue"},
}
FEW_ROWS = 64  # by words
WORDS: dict[str, tuple[str, ...]] = {
    "02_ag_gemm.py:ag_gemm": ("ll", "lamport"),
    "03_gemm_rs.py:gemm_rs": ("ll-tiles", "lamport-tiles"),
    "04_gemm_ar.py:gemm_ar": ("ll", "lamport-two-shot", "lamport-tiles-two-shot"),
}


def cases() -> Iterator[tuple[str, dict[str, int], dict[str, str]]]:
    """(workload, sizes, pins)"""
    for name, variants in PINS.items():
        for pins in variants:
            wanted = pins if "algorithm" in pins or name.startswith("04") else pins | {"algorithm": "direct"}
            yield name, SIZES[name], wanted
    for name, pins in IN_TURNS.items():
        turns = {"mover": "Fused()", "y_parts.transfer": "push", "y.tile": "128x128x64/4w5s2g"}
        yield name, SIZES[name] | {"M": EVEN_ROWS}, turns | pins
    for name, algorithms in WORDS.items():
        for algorithm in algorithms:
            yield name, SIZES[name] | {"M": FEW_ROWS}, {"algorithm": algorithm, "compute": "triton"}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sample", type=int, default=120, help="mutants of each kind, for each schedule; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    begin = time.perf_counter()
    found: list[tuple[str, dict[str, str], Campaign]] = []
    machine = topologies.load("h200-nvswitch", arguments.ranks)
    for name, sizes, pins in cases():
        overlap = load_overlap(str(ROOT / "examples" / name))
        schedule = overlap.plan_for(machine, sizes, "bf16", pins)
        small = small_form(overlap.spec, schedule, machine)
        one = campaign(small, arguments.sample, arguments.seed)
        found.append((name.partition(":")[2], pins, one))
        print(f"{name} {pins}\n  {one.schedules.summary()}\n  {one.sources.summary()}", flush=True)
        for report in (one.schedules, one.sources):
            for outcome in (*report.of(Fate.SURVIVED), *report.of(Fate.UNDECIDED)):
                print(f"    {outcome.fate.value} {outcome.operator}: {outcome.site} {outcome.by}")
    whole = Campaign(merged(*(one.schedules for _, _, one in found)), merged(*(one.sources for _, _, one in found)))
    print(whole.text())
    if arguments.json:
        _write(arguments.json, json.dumps(_summary(found, whole, time.perf_counter() - begin), indent=1) + "\n")
    if arguments.page:
        _write(arguments.page, _page(whole, len(found), arguments.sample))
    sys.exit(0 if whole.score >= 0.95 else 1)


def _summary(found: list[tuple[str, dict[str, str], Campaign]], whole: Campaign, seconds: float) -> dict[str, object]:
    def counts(one: Campaign) -> dict[str, dict[str, int]]:
        kinds = (("schedules", one.schedules), ("sources", one.sources))
        return {name: {fate.value: report.count(fate) for fate in Fate} for name, report in kinds}

    rows = [{"workload": name, "pins": pins, **counts(one)} for name, pins, one in found]
    return {"score": round(whole.score, 4), "seconds": round(seconds), **counts(whole), "rows": rows}


def _page(whole: Campaign, schedules: int, sample: int) -> str:
    drawn = f"{sample} mutants of each kind, drawn evenly over the operators, for each" if sample else "all mutants"
    head = f"""# Mutants of steps and of emitted sources
Made by `benchmarks/mutation.py`: {schedules} schedules of the shipped workloads in their small forms, {drawn}.
The judge of steps is the happens-before proof, then the interpreter; that of sources a dozen adversarial runs. *Equivalent*
are survivors that are still proved and compute the same, or whose runs write, raise and await the same.

Killed of those that matter: **{100 * whole.score:.1f} %**.

"""
    return head + whole.markdown()


def _write(path: Path, text: str) -> None:
    partial = path.with_name(f"{path.name}.part")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


if __name__ == "__main__":
    main()
