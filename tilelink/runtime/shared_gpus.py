"""`torchrun --nproc-per-node N -m tilelink.runtime.shared_gpus FILE.py [args]`: ranks that share GPUs, to check, not to time.

The driver gives each process on a GPU its turn for a few milliseconds, also while kernels spin, so that ranks that wait for
each other all get on. What runs and what memory does is real; how long it takes says nothing.
"""

from __future__ import annotations

import os
import runpy
import sys

from tilelink.runtime.ranks import join_shared


def main(arguments: list[str]) -> int:
    """Join, then run a file, or a module after `-m`, with the rest of the arguments; 2 if there is none."""
    is_module = arguments[:1] == ["-m"]
    rest = arguments[1:] if is_module else arguments
    if not rest:
        text = "python -m tilelink.runtime.shared_gpus got nothing to run.\nLegal: FILE.py, or -m MODULE, then its arguments."
        print(text, file=sys.stderr)
        return 2
    join_shared()
    sys.argv = rest
    if is_module:
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(rest[0])))
        runpy.run_path(rest[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
