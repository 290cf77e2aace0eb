"""A thread that notices when a step does not end: ranks that wait for each other on the GPU spin for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Watch:
    """Calls `lost(reason)` once, from its own thread: when a step lasts longer than `limit_s` seconds, or when
    `trouble()` gives a reason, which is asked for several times a second."""

    def __init__(self, limit_s: float, lost: Callable[[str], object], trouble: Callable[[], str] = str) -> None:
        self._limit_s = limit_s
        self._lost = lost
        self._trouble = trouble
        self.step = "starting"
        self.contender = ""  # that the step belongs to
        self._since = time.monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def start(self) -> Watch:
        self._thread.start()
        return self

    def note(self, step: str, contender: str) -> None:
        """A new step begins, that of `contender` if it is not empty."""
        self.step, self.contender, self._since = f"{step} {contender}".strip(), contender, time.monotonic()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stopped.wait(min(0.25, self._limit_s / 4)):
            reason = self._trouble()
            if not reason and time.monotonic() - self._since > self._limit_s:
                reason = f"{self.step} did not end in {self._limit_s:.0f} s"
            if reason:
                self._lost(reason)
                return
