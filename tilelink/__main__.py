"""`python -m tilelink`: the command line, where the console script is not on the path."""

from __future__ import annotations

from tilelink.cli import main

main()
