"""How large the project is where it should be small: notions of the schedule language, and lines of each part.

    python lab/proportion.py

`TARGETS` are what the design asks for. Lines are those of files with all that is in them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LANGUAGE = {  # the language of steps, and the nodes that say what the planner chose, from which steps are made
    "tilelink.ir (planned)": [
        f"tilelink/ir/{name}.py" for name in ("nodes", "steps", "calls", "order", "schedule", "enums")
    ],
    "tilelink.schedule": [f"tilelink/schedule/{name}.py" for name in ("index", "memory", "steps", "roles")],
}
PARTS = {
    "core": ["tilelink/ir", "tilelink/schedule", "tilelink/elaborate", "tilelink/planner", "tilelink/proof"],
    "core, run time": ["tilelink/runtime"],
    "core, lowering": ["lowering"],
    "mutation": ["tilelink/mutation"],
    "dialect_api": ["tilelink/dialect_api"],
}
APART = ("lowering/device", "lowering/host", "lowering/selfcheck")  # embedded in emitted files, whose code they are
TARGETS = {"core in all": 11_500, "mutation": 1_500, "dialect_api": 2_200, "longest file": 400}
NOTIONS = {"dataclasses": 30, "fields": 100, "enums": 8}


class Notions(NamedTuple):
    dataclasses: int
    fields: int
    enums: int


def python_files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not str(path.relative_to(ROOT)).startswith(APART):
                yield path


def length(path: Path) -> int:
    return len(path.read_text().splitlines())


def notions(files: list[str]) -> Notions:
    """Classes of the language: dataclasses with their fields, and enums."""
    dataclasses = fields = enums = 0
    for name in files:
        for node in ast.walk(ast.parse((ROOT / name).read_text())):
            if not isinstance(node, ast.ClassDef):
                continue
            if any("dataclass" in ast.unparse(one) for one in node.decorator_list):
                dataclasses += 1
                fields += sum(
                    isinstance(one, ast.AnnAssign) and "ClassVar" not in ast.unparse(one) for one in node.body
                )
            enums += any(ast.unparse(base) in ("Choice", "Enum") for base in node.bases)
    return Notions(dataclasses, fields, enums)


def lines() -> dict[str, int]:
    found = {part: sum(length(path) for path in python_files(*folders)) for part, folders in PARTS.items()}
    found["core in all"] = sum(count for part, count in found.items() if part.startswith("core"))
    found["longest file"] = max(length(path) for path in python_files("tilelink", "lowering", "topologies"))
    return found


def main() -> None:
    for name, files in LANGUAGE.items():
        found = notions(files)
        for what, most in NOTIONS.items():
            print(f"{name:24} {what:14} {getattr(found, what):7,}   at most {most:,}")
    for part, count in lines().items():
        target = f"   at most {TARGETS[part]:,}" if part in TARGETS else ""
        print(f"{part:24} {'lines':14} {count:7,}{target}")


if __name__ == "__main__":
    main()
