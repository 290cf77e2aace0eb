"""The fabric that both targets share on GPUs: ranks of a process group, and streams of this rank."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from lowering.host.library import LibraryCalls


class GpuStream(LibraryCalls):
    """Operations in order on one stream of this rank's GPU."""

    def __init__(self, stream: torch.cuda.Stream, fabric: Any) -> None:
        self.stream = stream
        self.fabric = fabric

    @staticmethod
    def most_registers(per_sm: int, options: dict[str, Any]) -> dict[str, int]:
        """The option of a launch that keeps registers of a thread so few that `per_sm` programs fit on an SM of 65,536."""
        most = 65536 // (per_sm * 32 * options.get("num_warps", 4)) // 8 * 8
        return {"maxnreg": most} if most < 255 and torch.version.hip is None else {}

    def captures(self) -> bool:
        with self._current():
            return torch.cuda.is_current_stream_capturing()


class GpuFabric:
    """The ranks of a process group, one GPU each. `stream_type` wraps a CUDA stream for this fabric."""

    stream_type: Callable[[torch.cuda.Stream, Any], Any]
    PRIORITY = -1  # of side streams; the caller's stream has priority 0 by default

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.rank = group.rank()
        self.num_ranks = group.size()
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.num_sms = torch.cuda.get_device_properties(self.device).multi_processor_count
        self.is_loading = False
        self._streams: dict[str, Any] = {}

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """A context in which launches only compile and load their kernels, and copies, writes and waits do nothing.

        The driver cannot load a kernel while another one spins. All kernels are therefore loaded before the first call.
        """
        self.is_loading = True
        try:
            yield
        finally:
            self.is_loading = False
        self.barrier()

    def agree(self, schedule: str) -> None:
        """Raises RuntimeError unless every rank holds the same schedule."""
        held: list[str] = [""] * self.num_ranks
        dist.all_gather_object(held, schedule, group=self.group)
        if len(set(held)) > 1:
            raise RuntimeError(f"ranks hold different schedules and would hang: {held}")

    def stream(self, name: str) -> Any:
        """The side stream `name`, of higher priority than the caller's stream."""
        if name not in self._streams:
            self._streams[name] = self.stream_type(self.new_stream(), self)
        return self._streams[name]

    def channel(self, sms: int) -> dist.ProcessGroup:
        """The same ranks, with a communicator whose kernels hold at most `sms` SMs. All ranks ask for theirs in one order."""
        # messages whose buffers NCCL registers for a graph never end beside a kernel that spins (2.28, peers by NVLink)
        os.environ.setdefault("NCCL_GRAPH_REGISTER", "0")
        options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
        options.config.max_ctas = sms
        ranks = dist.get_process_group_ranks(self.group)
        found: dist.ProcessGroup
        found = dist.new_group(ranks, backend="nccl", pg_options=options, use_local_synchronization=True)
        return found

    def new_stream(self) -> torch.cuda.Stream:
        """One of the 32 high-priority streams that torch hands out in turn; the caller should use none of them."""
        return torch.cuda.Stream(priority=self.PRIORITY)  # type: ignore[no-untyped-call]

    def barrier(self) -> None:
        torch.cuda.synchronize()
        dist.barrier(group=self.group)
        torch.cuda.synchronize()
