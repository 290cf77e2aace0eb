"""No import circle: not when modules run, not for type checkers, not by way of a package's face, not from a function."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import pytest

from tests.imports.import_graph import RUN, circles, import_graph

ROOT = Path(__file__).parents[2]
TREES = ("tilelink", "lowering", "topologies")


@pytest.fixture(scope="module")
def graph() -> nx.DiGraph[str]:
    return import_graph(ROOT, TREES)


def test_the_import_graph_has_no_circle(graph: nx.DiGraph[str]) -> None:
    assert len(graph) > 400
    assert circles(graph) == []


def test_it_sees_what_is_imported_late(graph: nx.DiGraph[str]) -> None:
    assert graph.has_edge("tilelink", "tilelink.api")
    assert graph.has_edge("tilelink.cli", "tilelink.verify_command")
    assert graph.has_edge("lowering.emit", "tilelink" + RUN)
    assert not list(graph.successors("tilelink" + RUN)), "the face of tilelink imports nothing of ours when it runs"


FACE = "from pack.sub.high import High\n"
UP = "import pack.sub.low\nclass High: ...\n"
PLANTED = {
    "two modules": {"pack/a.py": "import pack.b", "pack/b.py": "from pack import a"},
    "relative": {"pack/a.py": "from . import b", "pack/b.py": "from .a import name"},
    "for type checkers": {
        "pack/a.py": "import pack.b",
        "pack/b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pack.a import Name",
    },
    "from a function": {"pack/a.py": "import pack.b", "pack/b.py": "def late():\n    import pack.a"},
    "by a string": {"pack/a.py": "import pack.b", "pack/b.py": "LATE = 'pack.a'"},
    "by a face": {"pack/sub/__init__.py": FACE, "pack/sub/high.py": "import pack.user", "pack/user.py": "import pack.sub.low"},
    "by a face, in a branch": {
        "pack/sub/__init__.py": f"try:\n    {FACE}except ImportError:\n    pass\n",
        "pack/sub/high.py": "import pack.user",
        "pack/user.py": "import pack.sub.low",
    },
    "a module and its own face": {"pack/sub/__init__.py": FACE, "pack/sub/high.py": "from pack.sub import Low"},
    "two trees": {"pack/__init__.py": "import tree.b", "tree/b.py": "import pack.a", "pack/a.py": ""},
}  # fmt: skip


def _planted(folder: Path, files: dict[str, str]) -> list[str]:
    for name in ("pack/__init__.py", "pack/sub/__init__.py", "pack/sub/low.py", "tree/__init__.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    for name, text in files.items():
        (folder / name).write_text(text)
    return circles(import_graph(folder, ("pack", "tree")))


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_circle_is_found(name: str, tmp_path: Path) -> None:
    assert len(_planted(tmp_path, PLANTED[name])) == 1


@pytest.mark.parametrize(
    "face",
    [
        f"def __getattr__(name):\n    {FACE}    return High",
        f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {FACE}",
        FACE.replace("high", "low").replace("High", "Low"),
    ],
    ids=["late", "for type checkers", "lower names only"],
)
def test_no_circle_where_a_face_does_not_run_it(face: str, tmp_path: Path) -> None:
    files = {
        "pack/sub/__init__.py": face,
        "pack/sub/high.py": "import pack.user",
        "pack/user.py": "import pack.sub.low",
    }
    assert _planted(tmp_path, files) == []
