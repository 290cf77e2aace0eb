"""One rank of `tilelink tune`: `torchrun --nproc-per-node R -m tilelink.tune_ranks JOB`. Rank 0 writes what was found."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import torch
import torch.distributed as dist

import topologies
from tilelink.ir.schedule import Schedule
from tilelink.runtime.ranks import join
from tilelink.tuning import Tuned, tuned_on


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    join()
    topology = topologies.load(job["topology"], dist.get_world_size())
    found = tuned_on(None, topology, Schedule.from_json(job["schedule"]), job["count"], job["pins"])
    if dist.get_rank() == 0:
        Path(job["found"]).write_text(json.dumps(as_json(found)), encoding="utf-8")
    dist.barrier()
    torch.cuda.synchronize()
    dist.destroy_process_group()


def as_json(found: Tuned) -> dict[str, object]:
    return {
        "hash": found.schedule.hash,
        "chosen": found.chosen,
        "known": found.known,
        "timed": [asdict(one) for one in found.timed],
    }


if __name__ == "__main__":
    main()
