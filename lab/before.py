"""Files of another commit beside what this one plans, so that `tilelink bench --plans` times both in one process group.

    tilelink bench --ranks 2 --topology h100-nvswitch --write-plans plans.json
    python lab/before.py COMMIT plans.json
    python benchmarks/bench.py --ranks 2 --plans plans.json --json results.json     # on the GPUs

Each row gets a contender `before`: the schedule that COMMIT plans for it, printed by COMMIT. `reused` gets none.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_PRINT = """
import json, sys
import lowering, topologies
from tilelink.bench.operators import declaration
from tilelink.bench.rows import Operator, Row
rows, out, topology, ranks = json.load(open(sys.argv[1])), [], sys.argv[2], int(sys.argv[3])
for entry in rows:
    sizes = {name: entry[name] for name in ("m", "hidden", "ffn")}
    row = Row(Operator(entry["operator"]), entry["name"], **sizes, dtype=entry["dtype"])
    planned = declaration(row.operator).plan_for(topologies.load(topology, ranks), row.sizes, row.dtype, {})
    out.append(str(lowering.emit(planned, "triton")))
json.dump(out, open(sys.argv[4], "w"))
"""


def main(commit: str, plans: Path) -> None:
    data = json.loads(plans.read_text())
    first = next(one["schedule"] for one in data["rows"][0]["candidates"] if one["schedule"])
    machine = json.loads(first)["machine"] if isinstance(first, str) else first["machine"]
    with tempfile.TemporaryDirectory(prefix="tilelink-before-") as folder:
        tree, rows, out = Path(folder) / "tree", Path(folder) / "rows.json", Path(folder) / "sources.json"
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
        (Path(folder) / "tree.tar").write_bytes(archive)
        with tarfile.open(Path(folder) / "tree.tar") as packed:
            packed.extractall(tree, filter="data")
        rows.write_text(json.dumps(data["rows"]))
        command = [sys.executable, "-c", _PRINT, str(rows), machine["topology"], str(machine["num_ranks"]), str(out)]
        subprocess.run(command, cwd=tree, check=True, env={"PYTHONPATH": str(tree), "PATH": "/usr/bin:/bin"})
        for row, source in zip(data["rows"], json.loads(out.read_text()), strict=True):
            entry = {"label": "before", "origin": "file", "schedule": "", "failure": "", "source": source}
            row["candidates"] = [one for one in row["candidates"] if one["label"] != "before"] + [entry]
    plans.write_text(json.dumps(data))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
