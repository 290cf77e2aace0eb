"""What the text of a kernel takes as parameters, noted where it is spelled."""

from __future__ import annotations

from lowering.steps.constants import Constants
from lowering.steps.indices import Scope, Spelling
from tilelink.schedule.index import Number


class Needing(Spelling):
    """Notes what a kernel takes as parameters: `rank`, `call`, tables, positions of loops of the host."""

    def __init__(self, scope: Scope, constants: Constants, needs: dict[str, str]) -> None:
        super().__init__(scope, constants)
        self.needs = needs

    def name(self, name: str) -> str:
        if name in ("rank", "call", "program"):
            self.needs[name] = ""
        return super().name(name)

    def look_up(self, index: Number) -> str:
        assert not isinstance(index, int)
        self.needs[index.op] = ""
        return super().look_up(index)
