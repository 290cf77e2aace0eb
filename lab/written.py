"""What a measurement of ranks leaves behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tilelink.runtime.ranks import machine


def write(path: Path | None, commit: str, rows: list[Any]) -> None:
    """From one rank, with the machine; nothing without a path."""
    if dist.get_rank() == 0 and path is not None:
        path.write_text(json.dumps({"machine": machine(), "commit": commit, "rows": rows}, indent=1))


def leave() -> None:
    """All ranks end together."""
    dist.barrier()
    torch.cuda.synchronize()
    dist.destroy_process_group()
