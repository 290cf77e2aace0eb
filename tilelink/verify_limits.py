"""What `tilelink verify FILE` refuses before it runs the file: a machine that the file is not for, and hours of emulation."""

from __future__ import annotations

from pathlib import Path

from tilelink.adversary.subject import Subject
from tilelink.cli_errors import FileIsForOthers
from tilelink.emulated_time import announce, of_inputs

_CALLS = 3  # of most runs
_SMALLER = (
    "What goes wrong depends on the choices, not on the sizes: emit the same choices for small sizes, with the --pin lines of "
    "the file's header, and verify that file; or name the spec, `tilelink verify SPEC.py:FUNCTION`, which does so by itself."
)


def check_machine(path: Path, subject: Subject, num_ranks: int | None, num_sms: int | None) -> None:
    """A file that says for how many ranks and SMs it is runs on no others. Raises FileIsForOthers."""
    ranks, sms = (getattr(subject.build, name, None) for name in ("NUM_RANKS", "NUM_SMS"))
    if num_ranks is not None and isinstance(ranks, int) and num_ranks != ranks:
        legal = f"--ranks {ranks}, or without --ranks"
        raise FileIsForOthers(path=path, option="--ranks", given=num_ranks, legal=legal)
    if num_sms is not None and isinstance(sms, int) and num_sms < sms:
        raise FileIsForOthers(path=path, option="--sms", given=num_sms, legal=f"--sms {sms} or more, or without --sms")


def check_work(path: Path, subject: Subject, runs: int, workers: int, most_minutes: float) -> None:
    """Announce what takes long. Raises TooLongToEmulate for a file of sizes that no emulation gets through."""
    shapes = [shape for shape, _ in getattr(subject.build, "INPUTS", {}).values()]
    seconds = of_inputs(shapes, subject.num_ranks, _CALLS * runs) / workers
    announce(f"{runs} runs of {path}", seconds, most_minutes, _SMALLER)
