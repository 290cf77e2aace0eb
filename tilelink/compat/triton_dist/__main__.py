"""`python -m tilelink.compat.triton_dist FILE.py [args]`: run a file of the dialect as a script, on stock Triton."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from tilelink.compat.triton_dist.installing import install


def main(arguments: list[str]) -> int:
    """Run a file with the rest of the arguments; 2 if there is none."""
    if not arguments or not Path(arguments[0]).is_file():
        given = arguments[0] if arguments else "nothing"
        text = (
            f"python -m tilelink.compat.triton_dist got {given}.\nLegal: the path of a Python file, then its arguments."
        )
        print(text, file=sys.stderr)
        return 2
    install()
    sys.argv = arguments
    sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
    runpy.run_path(arguments[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
