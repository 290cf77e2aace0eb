"""Commands whose code is imported when they are called: the list of them needs their names and one line each."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand
from typer.main import get_command


@dataclass(frozen=True, slots=True)
class Late:
    """One command of the command line: a function with the parameters of the command, or a group of commands (Typer)."""

    name: str
    module: str
    attribute: str
    help: str  # the first paragraph of its docstring, which the list of commands shows

    def load(self) -> Any:
        """The command itself; imports its module."""
        found = getattr(import_module(self.module), self.attribute)
        if isinstance(found, typer.Typer):
            group = get_command(found)
            group.name = self.name
            return group
        alone = typer.Typer(add_completion=False)
        alone.command(self.name)(found)
        return get_command(alone)


class LateCommand(TyperCommand):
    """Stands in a group for a command, and becomes it when its words are read."""

    def __init__(self, late: Late) -> None:
        super().__init__(late.name, help=late.help)
        self._late = late

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return self._late.load().make_context(info_name, args, parent, **extra)
