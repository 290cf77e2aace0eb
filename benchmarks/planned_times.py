"""What the search chooses for random operators, sizes and machines: a change of the search is held against the one before.

    python benchmarks/planned_times.py --json before.json
    python benchmarks/planned_times.py --against before.json

Half of the cells are those of `tests/planner/grid.py`, the other half have sizes that are drawn anew. Prints cells whose
predicted time differs by more than rounding, and what the searches took; exit code 1 where one is longer than before.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import topologies
from tests.planner.grid import MACHINES, SPECS, Cell, cells
from tilelink.errors import TileLinkError
from tilelink.ir.spec import bind
from tilelink.planner.choices import texts
from tilelink.planner.collectives import collective_pins
from tilelink.planner.plan import search

ALIKE = 1e-6  # of a predicted time: rounding
_STEPS = {"M": (64, 128, 512), "K": (64, 256, 1024), "N": (64, 256, 1024), "H": (64, 256, 1024)}  # times the ranks


def drawn(count: int, seed: int) -> list[Cell]:
    """Cells of the grid, and cells of its operators and machines with sizes of their own."""
    rng = random.Random(seed)
    found = rng.sample(cells(), count // 2)
    while len(found) < count:
        spec, (machine, ranks) = rng.choice(SPECS), rng.choice(MACHINES)
        sizes = {name: ranks * rng.choice(_STEPS[name]) * rng.randint(1, 8) for name in sorted(spec.spec.symbols())}
        found.append(Cell(spec, sizes, topologies.load(machine, ranks)))
    return found


def searched(cell: Cell) -> dict[str, object]:
    """Predicted microseconds, options and milliseconds of the search."""
    bound = bind(cell.spec.spec, cell.sizes, cell.topology.num_ranks, "bf16")
    start = time.process_time()
    try:
        best, others = search(bound, cell.topology, {})
    except TileLinkError as error:
        return {"us": 0.0, "chosen": type(error).__name__, "ms": 0.0, "timed": 0}
    ms = (time.process_time() - start) * 1e3
    chosen = {name: repr(option) for (_, name), option in best.options.items()}
    structure = best.structure
    pins = texts(collective_pins(structure.spec, structure.collectives))
    collectives = [f"{name}={text}" for name, text in pins.items()]
    return {"us": best.us, "chosen": [*collectives, chosen], "ms": ms, "timed": len(others)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write what is found there")
    parser.add_argument("--against", type=Path, help="what was found before")
    options = parser.parse_args()
    found = {}
    for cell in drawn(options.count, options.seed):
        found[str(cell)] = searched(cell)
        if options.json is not None:
            options.json.write_text(json.dumps(found, indent=1) + "\n")
    if options.against is None:
        return
    before = json.loads(options.against.read_text())
    shared = [name for name in found if name in before]
    longer = 0
    for name in shared:
        us, was = float(str(found[name]["us"])), float(before[name]["us"])
        if abs(us - was) > ALIKE * max(us, was):
            longer += us > was
            print(f"{'longer' if us > was else 'shorter'} {us / was - 1:+.2%}: {name}: {was:.1f} -> {us:.1f} us")
    ms, was = (sum(float(str(side[name]["ms"])) for name in shared) for side in (found, before))
    print(f"{len(shared)} cells, {longer} longer; searches took {ms:.0f} ms, {was:.0f} ms before")
    sys.exit(bool(longer))


if __name__ == "__main__":
    main()
