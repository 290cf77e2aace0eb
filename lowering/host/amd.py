"""What stands for the outside world in files for AMD GPUs, whose host code is not written yet: it refuses."""

from __future__ import annotations

from typing import Any

import torch


class AmdFabric:
    """No ranks and no streams: copies, stream waits and memory of peers would go through ROCm, and nothing here speaks to it.

    Raises RuntimeError when it is made. Emulated ranks run this file without it.
    """

    def __init__(self, group: Any = None) -> None:
        raise RuntimeError(
            "this file does not run on GPUs: its kernels are for AMD, and tilelink has no host code for AMD GPUs yet. "
            "Legal: `tilelink verify THIS_FILE`, which runs it on emulated ranks; or a fabric of your own, see its methods in "
            "a file that was emitted for NVIDIA GPUs."
        )

    def symmetric(self, shape: tuple[int, ...], dtype: torch.dtype) -> Any:
        """A buffer of each rank, which there is none of."""
        raise NotImplementedError
