"""Processes of ranks: GPUs for them, torchrun to start them, and an end for them when they hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

import torch

from tilelink.errors import FabricUnavailable
from tilelink.processes import SAFE_PATH

_LAST_LINES = 30
_ELASTIC = "torch/distributed/elastic/multiprocessing/api.py"
_TERM_S = 45.0  # torchrun gives its ranks 30 s


def check_gpus(num_ranks: int, instead: str, share: bool = False) -> None:
    """GPUs, enough of them unless ranks `share` them, and peer access between each pair. `instead`: what one can do without.

    Raises FabricUnavailable.
    """
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not found:
        raise FabricUnavailable(num_ranks=num_ranks, reason="torch sees no GPU here", legal=instead)
    if found < num_ranks and not share:
        legal = f"Legal --ranks here: 2 to {found}. {instead}" if found > 1 else instead
        raise FabricUnavailable(num_ranks=num_ranks, reason=f"this machine has {found} GPUs", legal=legal)
    used = min(found, num_ranks)
    for rank in range(used):
        for peer in range(used):
            if rank != peer and not torch.cuda.can_device_access_peer(rank, peer):
                reason = f"GPU {rank} cannot address the memory of GPU {peer}"
                raise FabricUnavailable(num_ranks=num_ranks, reason=reason, legal=instead)


def torchrun(num_ranks: int, *arguments: str) -> list[str]:
    """The command that starts `num_ranks` processes of a file, or of `--module NAME`, with its arguments."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_ranks}"]
    return [*launcher, *arguments]


def run_to_end(command: list[str], timeout_s: float, say: Callable[[str], None]) -> tuple[str, list[str]]:
    """Run the ranks; why they failed, or "", and their last lines, without what torchrun says of how they ended. `say` gets each
    line as it comes."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, SAFE_PATH: "1", "PYTHONPATH": path}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        env=environment,
    )
    last: deque[str] = deque(maxlen=_LAST_LINES)
    reader = threading.Thread(target=_read, args=(process, last, say), daemon=True)
    reader.start()
    try:
        code = process.wait(max(1.0, timeout_s))
        reason = "" if code == 0 else f"exit code {code}"
    except subprocess.TimeoutExpired:
        reason = f"they took longer than {timeout_s:.0f} s"
    finally:
        _end(process)
        reader.join(5)
    return reason, list(last)


def _read(process: subprocess.Popen[str], last: deque[str], say: Callable[[str], None]) -> None:
    assert process.stdout is not None, "it was opened as a pipe"
    ended = False
    for line in process.stdout:
        text = line.rstrip()
        ended |= _ELASTIC in text  # its own traceback and a summary follow, without a word of the reason
        if text:
            say(text)
        if text and not ended:
            last.append(text)
    process.stdout.close()


def _end(process: subprocess.Popen[str]) -> None:
    """Ranks are in sessions of their own, out of reach of a signal to the launcher's group: torchrun has to end them."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_TERM_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
