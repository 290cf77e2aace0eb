"""`tilelink bench` from a checkout, with nothing installed but torch, triton, typer and rich.

python benchmarks/bench.py --ranks 4 --json results.json          # starts torchrun itself
python benchmarks/bench.py --ranks 4 --write-plans plans.json     # anywhere; then --plans plans.json on the GPUs
torchrun --nproc-per-node 4 benchmarks/bench.py job.json          # one rank of a job that --write-plans wrote
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def main() -> None:
    if "RANK" in os.environ:
        from tilelink.bench.ranks import main as rank_main

        rank_main()
        return
    import typer

    from tilelink.bench.command import bench
    from tilelink.errors import RunFailed
    from topologies.errors import UserError

    try:
        typer.run(bench)
    except UserError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(1 if isinstance(error, RunFailed) else 2)


if __name__ == "__main__":
    main()
