"""Random (routing, schedule) pairs of operators with experts on emulated ranks, each element against the definition.

    python benchmarks/expert_pairs.py --pairs 2000 --seed 5 --processes 8 --json pairs.json

A schedule is drawn from all that are legal for a random spec, sizes, ranks, machine and dtype; it is proved, emitted for a random
target, and run on emulated ranks. Its calls follow each other without a pause, each with a routing of another kind: spread
evenly, all to one expert, to one rank, none, repeated, skewed (`lowering/selfcheck`). Results are compared twice: with bounds of
each element, from the meaning of the spec in float64; and with a loop over tokens and choices that shares no code with tilelink.
A schedule that is not proved, or differs anywhere, is listed with its seed, and the exit status is 1.
"""

from __future__ import annotations

import json
import random
import sys
import time
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

import lowering
from benchmarks.seeds import judge, options
from tests.pipeline.expert_draws import drawn
from tests.pipeline.expert_specs import SPECS, by_definition
from tilelink.proof.verify import verify
from tilelink.runtime.emulated import EmulatedRun
from tilelink.runtime.meaning import cut, whole_inputs
from tilelink.runtime.run import run_emulated

CALLS = 8  # of a schedule: so many pairs
_FAR = {"bf16": 0.01, "fp16": 0.002, "fp32": 1e-5}  # norm of the difference, by that of the result without signs


def differs(name: str, schedule: Any, source: str, seed: int) -> str:
    """Where a result differs from the definition, or nothing."""
    run, spec = EmulatedRun(schedule, source, seed), schedule.spec
    for _ in range(CALLS):
        run.call()
    run.finish()
    experts = dict(spec.sizes)["E"]
    for number, (inputs, results) in enumerate(run.calls):
        whole = list(whole_inputs(spec, inputs).values())
        wanted = by_definition(name, whole, experts)
        alike = [one.abs() if one.is_floating_point() else one for one in whole]
        large = by_definition(
            name, alike, experts
        )  # nothing cancels: sums over ranks are rounded before they are added
        for rank, (found,) in enumerate(results):
            out = spec.value(spec.outputs[0])
            part, scale = (cut(one, out.placement, rank, spec.num_ranks) for one in (wanted, large))
            far, near = (found.double() - part).norm(), _FAR[out.dtype] * max(part.norm(), scale.norm())
            if not bool(far <= near + 1e-9):
                return f"call {number}, rank {rank}: {float(far):.3g} away, {float(near):.3g} is near"
    return ""


def judged(seed: int) -> dict[str, Any]:
    """Of the schedule of a seed."""
    torch.set_num_threads(1)
    began = time.monotonic()
    found: dict[str, Any] = {"seed": seed, "wrong": ""}
    try:
        rng = random.Random(seed)
        name, schedule, target = drawn(rng)
        found |= {"spec": name, "sizes": dict(schedule.spec.sizes), "ranks": schedule.num_ranks, "target": target}
        proof = verify(schedule)
        source, number = lowering.emit(schedule, target), rng.randrange(1000)
        if not proof.proved:
            found["wrong"] = "\n".join(proof.lines())
        elif not (outcome := run_emulated(schedule, source, calls=CALLS, seed=number)).equal:
            found["wrong"] = "\n".join(outcome.lines())
        else:
            found["wrong"] = differs(name, schedule, source, number)
        if found["wrong"]:
            found["choices"] = dict(schedule.choices)
    except Exception:
        found["wrong"] = traceback.format_exc()
    return found | {"seconds": round(time.monotonic() - began, 1)}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--pairs", type=int, default=2000)
    arguments = parser.parse_args()
    done = judge(judged, -(-arguments.pairs // CALLS), arguments)
    wrong = [one for one in done if one["wrong"]]
    ran = {name: sum(one.get("spec") == name for one in done) for name in SPECS}
    print(f"{len(done) * CALLS} pairs of {len(done)} schedules, {len(wrong)} schedules wrong; {ran}")
    if arguments.json is not None:
        about = {"commit": arguments.commit, "seed": arguments.seed, "pairs": len(done) * CALLS, "schedules": done}
        arguments.json.write_text(json.dumps(about, indent=1))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
