"""What the text of a kernel takes as parameters, noted where it is spelled."""

from __future__ import annotations

from lowering.steps.constants import Constants
from lowering.steps.indices import Scope, Spelling
from tilelink.schedule.index import Index


class Needing(Spelling):
    """Notes what a kernel takes as parameters: `rank`, `call`, tables, positions of loops of the host."""

    def __init__(self, scope: Scope, constants: Constants, needs: dict[str, str]) -> None:
        super().__init__(scope, constants)
        self.needs = needs

    def name(self, name: str) -> str:
        if name in ("rank", "call", "program"):
            self.needs[name] = ""
        return super().name(name)

    def entry(self, index: Index) -> list[str]:
        self.needs[index.op] = ""
        return super().entry(index)
