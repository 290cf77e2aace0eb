"""Run the dialect of Triton-distributed on stock Triton: on NVIDIA GPUs of one node, and on emulated ranks.

from tilelink.compat.triton_dist import install
install()  # from here on a file may import triton_dist, triton_dist.language, ...

A file is run as it stands by `python -m tilelink.compat.triton_dist FILE.py [args]`, also under torchrun.
What is weaker, stronger or missing compared with the real compiler stands in docs/triton_distributed.md.
"""

from __future__ import annotations

from tilelink.compat.triton_dist.host.emulated import on_rank
from tilelink.compat.triton_dist.installing import install, uninstall

__all__ = ["install", "on_rank", "uninstall"]
