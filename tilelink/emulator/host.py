"""What host code of the emulated ranks has done besides filling streams."""

from __future__ import annotations

from tilelink.emulator.loading import Loads
from tilelink.emulator.protocols import Enqueuing
from tilelink.emulator.recording import Recording


class Host:
    """`loading`: ranks whose launches only load kernels; `recording`: where operations go during a capture."""

    def __init__(self, num_ranks: int, lazy_loading: bool) -> None:
        self.loading: set[int] = set()
        self.recording: Recording | None = None
        self.loads = Loads(num_ranks, lazy_loading)
        self.protocols: list[list[Enqueuing]] = [[] for _ in range(num_ranks)]
