"""Steps of programs that put by NVSHMEM, which also sets words of ranks of the own node."""

from __future__ import annotations

from lowering.steps.puts import Puts


class NvshmemPrograms(Puts):
    def puts_words(self) -> bool:
        return True
