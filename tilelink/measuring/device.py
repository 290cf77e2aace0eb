"""What the measuring loop needs of a machine, and GPUs of one host under torchrun as such a machine."""

from __future__ import annotations

import contextlib
import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Protocol

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

Outputs = tuple[torch.Tensor, ...]
Call = Callable[[], Outputs]  # enqueues work and returns its outputs, which are valid once the device is done
Change = Callable[[int], object]  # enqueues other inputs for the batch of this number
_MADE: Counter[str] = Counter()  # devices of each group: texts of an earlier one must not be read by a later one
FLUSH_BYTES = 256 * 2**20  # several times any L2


class Device(Protocol):
    """One rank's view. All methods but `rank`-local timing are called by every rank in the same order."""

    @property
    def rank(self) -> int: ...

    @property
    def num_ranks(self) -> int: ...

    def meet(self) -> None:
        """Return when the devices of all ranks are idle."""

    def exchange(self, text: str) -> list[str]:
        """The texts of all ranks, by the host alone: it works while a device is in trouble."""

    def usable(self) -> bool:
        """Whether the device still takes work; idle afterwards."""

    def capture(self, call: Call, calls: int) -> Call:
        """`calls` calls as one that is cheap to enqueue. Raises what the capture raises."""

    def time(self, batch: Call, lead_in: int, batches: int, change: Change | None = None) -> list[float]:
        """us of each of `batches` batches, back to back, after `lead_in` untimed ones that absorb the ranks' skew.

        `change` comes before each of all of them, and is not in their time."""

    def host_us(self, call: Call, calls: int) -> float:
        """us of the host to enqueue one call, over `calls` calls on an idle device; idle afterwards."""

    def now_s(self) -> float:
        """Seconds on a clock that does not go back."""

    def flush_l2(self) -> None:
        """Enqueue a write that leaves nothing of earlier calls in the L2."""

    def release(self) -> None:
        """Give back memory that no tensor holds."""


class Texts:
    """Texts from every rank to every rank through the store of a rendezvous, by the host alone."""

    def __init__(self, store: c10d.Store, rank: int, num_ranks: int) -> None:
        self._store = c10d.PrefixStore("tilelink-bench", store)
        self._rank = rank
        self._num_ranks = num_ranks
        self._done = 0

    def exchange(self, text: str) -> list[str]:
        self._done += 1
        number = self._done
        if number > 2:  # whoever is here has seen that every rank left the exchange before the last one
            self._store.delete_key(f"{number - 2}/{self._rank}")
        self._store.set(f"{number}/{self._rank}", f"={text}")
        return [self._store.get(f"{number}/{rank}").decode()[1:] for rank in range(self._num_ranks)]


class CudaDevice:
    """A GPU of a process group, by default of the world; the texts go through the store of its rendezvous. All
    ranks of a group make theirs in the same order."""

    def __init__(self, device: torch.device, group: dist.ProcessGroup | None = None) -> None:
        self.rank = dist.get_rank(group)
        self.num_ranks = dist.get_world_size(group)
        self.torch_device = device
        self._group = group
        name = "" if group is None else str(group.group_name)
        _MADE[name] += 1
        store = c10d.PrefixStore(f"{name}/{_MADE[name]}", c10d._get_default_store())
        self._texts = Texts(store, self.rank, self.num_ranks)
        self._flushed: torch.Tensor | None = None

    def meet(self) -> None:
        torch.cuda.synchronize()
        dist.barrier(self._group)
        torch.cuda.synchronize()

    def exchange(self, text: str) -> list[str]:
        return self._texts.exchange(text)

    def usable(self) -> bool:
        try:
            torch.cuda.synchronize()
            torch.zeros(1, device=self.torch_device).add_(1).item()
        except RuntimeError:
            return False
        return True

    def capture(self, call: Call, calls: int) -> Call:
        gc.collect()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        outputs: Outputs = ()
        # other threads (that of NCCL) may talk to the driver meanwhile
        with _no_collection(), torch.cuda.graph(graph, capture_error_mode="thread_local"):
            for _ in range(calls):
                outputs = call()
        torch.cuda.synchronize()

        def replay() -> Outputs:
            graph.replay()
            return outputs

        return replay

    def time(self, batch: Call, lead_in: int, batches: int, change: Change | None = None) -> list[float]:
        ends = [torch.cuda.Event(enable_timing=True) for _ in range(batches + 1)]  # type: ignore[no-untyped-call]
        starts = ends[:-1]
        if change is not None:
            starts = [torch.cuda.Event(enable_timing=True) for _ in range(batches)]  # type: ignore[no-untyped-call]
        with _no_collection():
            for number in range(lead_in):
                if change is not None:
                    change(number)
                batch()
            ends[0].record()
            for number, (start, end) in enumerate(zip(starts, ends[1:], strict=True), lead_in):
                if change is not None:
                    change(number)
                    start.record()
                batch()
                end.record()
        torch.cuda.synchronize()
        return [1e3 * start.elapsed_time(end) for start, end in zip(starts, ends[1:], strict=True)]

    def host_us(self, call: Call, calls: int) -> float:
        torch.cuda.synchronize()
        with _no_collection():
            start = time.perf_counter()
            for _ in range(calls):
                call()
            seconds = time.perf_counter() - start
        torch.cuda.synchronize()
        return 1e6 * seconds / calls

    def now_s(self) -> float:
        return time.monotonic()

    def flush_l2(self) -> None:
        if self._flushed is None:
            self._flushed = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=self.torch_device)
        self._flushed.zero_()

    def release(self) -> None:
        gc.collect()
        torch.cuda.empty_cache()


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Freed tensors and graphs call the driver, which a capture forbids and a timed host does not want."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
