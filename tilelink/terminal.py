"""What commands show and write: a spinner or sparse lines of progress on stderr, and files whole or not at all."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tilelink.cli_errors import OutputNotWritable

EVERY_S = 15.0  # between two lines of progress where nobody watches a terminal


@contextmanager
def working(what: str) -> Iterator[None]:
    """A spinner on stderr while the block runs; where stderr is no terminal, a line now and then."""
    if not sys.stderr.isatty():
        lines, done = _Lines(what, 0), threading.Event()
        beat = threading.Thread(target=lines.beat, args=(done,), daemon=True)
        beat.start()
        try:
            yield
        finally:
            done.set()
        return
    with Console(stderr=True).status(f"{what} ..."):
        yield


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], object]]:
    """How many of `total` are done: a bar on stderr, and a line now and then where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield _Lines(what, total).tell
        return
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


class _Lines:
    """Lines such as `adversarial runs: 12 of 45, 40 s`, none in the first seconds."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total = what, total
        self.start = self.last = time.monotonic()

    def tell(self, done: int) -> None:
        now = time.monotonic()
        if now - self.last >= EVERY_S:
            self.last = now
            print(f"{self.what}: {done} of {self.total}, {now - self.start:.0f} s", file=sys.stderr, flush=True)

    def beat(self, done: threading.Event) -> None:
        """A line each EVERY_S seconds until `done`."""
        while not done.wait(EVERY_S):
            print(f"{self.what}: {time.monotonic() - self.start:.0f} s", file=sys.stderr, flush=True)


def check_writable(path: Path) -> None:
    """Before work is done for a file: its folder is there, and it is none itself. Raises OutputNotWritable."""
    if path.is_dir() or not path.resolve().parent.is_dir():
        reason = "it is a folder" if path.is_dir() else "its folder does not exist"
        raise OutputNotWritable(path=str(path), reason=reason)


def write_file(path: Path, text: str) -> None:
    """Write all of `text` or nothing: an interrupted run leaves the old file. Raises OutputNotWritable."""
    # a link is followed, and what is no regular file (/dev/null, a pipe) is written to, not replaced
    try:
        target = path.resolve()
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
            return
        try:
            temporary.write_text(text, encoding="utf-8")
            if target.exists():
                shutil.copymode(target, temporary)
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path, or no name
        reason = getattr(error, "strerror", None) or str(error)
        raise OutputNotWritable(path=str(path), reason=reason) from error
