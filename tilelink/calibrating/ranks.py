"""One rank of a calibration: it joins the group, measures with the others, and ends whatever happens."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import traceback
from datetime import date
from pathlib import Path
from typing import NoReturn

import torch
import torch.distributed as dist

from lowering.host.symmetric_memory import SymmetricMemoryFabric
from tilelink.calibrating.calibrate import Calibrated, calibrated, copy_sizes, measured
from tilelink.calibrating.crossing import crossings
from tilelink.calibrating.errors import CalibrationStopped, DescriptorExists
from tilelink.calibrating.start import check_machine, seen_here, start
from tilelink.calibrating.work import GpuWork
from tilelink.cli_errors import OutputNotWritable
from tilelink.measuring.device import CudaDevice
from tilelink.runtime.peers import check_peers
from tilelink.runtime.ranks import MULTICAST_OFF, join
from topologies.errors import TileLinkError

LIMIT_S = 300.0  # of a whole calibration, which takes one or two minutes


def is_first() -> bool:
    """Whether this process answers for all ranks: what they all find is said once."""
    return os.environ.get("RANK", "0") == "0"


def calibrate(output: Path | None, like: str | None, tflops: float | None) -> Calibrated:
    """Measure this machine with the other ranks. Never uses multicast of the switch.

    Raises CannotCalibrate, PeakUnknown, DescriptorExists, WordsLost, BytesDiffer, GemmBeatsPeak, PeersDiffer, and what loading a
    descriptor raises: the same on all ranks. Where a rank fails otherwise, or LIMIT_S seconds have gone by, its process ends
    with CalibrationStopped on stderr, and torchrun ends the others.
    """
    ranks = check_machine(os.environ)
    check_output(output)
    os.environ.update(MULTICAST_OFF)
    watch = _Watch(LIMIT_S)
    try:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        month, seen = f"{date.today():%Y-%m}", seen_here()
        begin = start(seen, ranks, like, tflops, month)
        cut = begin.cut(ranks)
        places = len(crossings(cut))
        watch.note("joining the other ranks")
        join()
        check_peers(None)
        device = CudaDevice(torch.device("cuda", torch.cuda.current_device()))
        work = GpuWork(SymmetricMemoryFabric(), copy_sizes(cut)[-1], places)
        gc.collect()
        gc.freeze()  # what the imports made is for ever: collections before captures stay short
        device.meet()
        findings = measured(device, work, begin, watch.note)
        watch.note("leaving the other ranks")
        device.meet()  # peers may read symmetric memory until here
        dist.destroy_process_group()
    except TileLinkError:  # on all ranks
        if dist.is_initialized():
            dist.destroy_process_group()
        watch.stop()
        raise
    except Exception as error:  # the others cannot know, and may wait for this rank
        traceback.print_exc()
        give_up(watch.step, f"{type(error).__name__}: {error}"[:500])
    watch.stop()
    return calibrated(begin, findings, seen, ranks, month)


def check_output(output: Path | None) -> None:
    """Raises DescriptorExists, and OutputNotWritable where no file can be made: before minutes are spent."""
    if output is None:
        return
    if os.path.lexists(output):
        raise DescriptorExists(path=output)
    folder = output.absolute().parent
    if not folder.is_dir():
        raise OutputNotWritable(path=str(output), reason="there is no such folder")
    if not os.access(folder, os.W_OK):
        raise OutputNotWritable(path=str(output), reason="the folder is not writable")


def write_new(path: Path, text: str) -> None:
    """Write all of `text` or nothing, to a file that is not there. Raises DescriptorExists, OutputNotWritable."""
    temporary = path.absolute().with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        try:
            os.link(temporary, path)  # unlike a rename, it fails where a file has come meanwhile
        except FileExistsError:
            raise DescriptorExists(path=path) from None
        except OSError:  # a file system without links
            check_output(path)
            os.rename(temporary, path)
    except OSError as error:
        raise OutputNotWritable(path=str(path), reason=error.strerror or str(error)) from error
    finally:
        temporary.unlink(missing_ok=True)


def give_up(step: str, reason: str) -> NoReturn:
    """End this process: torchrun then ends the others. Nothing waits for the GPU, which may be stuck."""
    stopped = CalibrationStopped(rank=os.environ.get("RANK", "0"), step=step, reason=reason)
    print(f"{type(stopped).__name__}: {stopped}", file=sys.stderr, flush=True)
    os._exit(stopped.exit_code)


class _Watch:
    """Ends the process after a time, in whatever call it is, and says in which step; the first rank tells each step."""

    def __init__(self, limit_s: float) -> None:
        self.step = "beginning"
        self._start, self._limit_s, self._stopped = time.monotonic(), limit_s, threading.Event()
        threading.Thread(target=self._look, daemon=True).start()

    def note(self, step: str) -> None:
        self.step = step
        if is_first():
            print(f"calibrating: {step}, {time.monotonic() - self._start:.0f} s", file=sys.stderr, flush=True)

    def stop(self) -> None:
        self._stopped.set()

    def _look(self) -> None:
        if not self._stopped.wait(self._limit_s):
            give_up(self.step, f"{self._limit_s:.0f} s have gone by")
