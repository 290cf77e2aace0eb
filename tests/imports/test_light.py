"""What is not loaded: compilers and symbolic libraries by `import tilelink`, `tilelink --help` and `tilelink topo list`."""

from __future__ import annotations

import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import tilelink
from tilelink import api
from tilelink.cli import COMMANDS
from tilelink.demo import ag_gemm
from tilelink.errors import UnknownOp
from tilelink.late_command import Late

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "triton", "sympy", "networkx", "numpy", "greenlet")
_COMMAND = """sys.argv = ['tilelink', {words}]
from tilelink.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code"""


def loaded(code: str, names: tuple[str, ...], folder: Path = ROOT) -> set[str]:
    """Which of `names` a fresh interpreter has loaded after `code`."""
    text = (
        f"import sys\nsys.path.insert(0, {str(folder)!r})\n{code}\nprint()\nprint(*set(sys.modules) & set({names!r}))"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "code",
    [
        "import tilelink",
        "import tilelink.errors, topologies",
        _COMMAND.format(words="'--help'"),
        _COMMAND.format(words="'topo', 'list'"),
        _COMMAND.format(words="'topo', 'show', 'laptop-switch'"),
    ],
    ids=["import tilelink", "import errors", "--help", "topo list", "topo show"],
)
@pytest.mark.quick(2)
def test_nothing_heavy_is_loaded(code: str) -> None:
    assert loaded(code, HEAVY) == set()


@pytest.mark.slow
def test_names_are_there_when_they_are_asked_for() -> None:
    assert {"torch", "sympy"} <= loaded("import tilelink; tilelink.matmul", HEAVY)
    assert loaded("from tilelink import *; assert callable(overlap) and Shard(0)", ("tilelink.api",))


@pytest.mark.slow
def test_an_emitted_file_loads_no_symbolic_library(tmp_path: Path) -> None:
    ours = ("sympy", "networkx", "tilelink", "lowering", "topologies")
    source = ag_gemm.emit(topology="h200-nvswitch", num_ranks=4, M=4096, K=1024, N=1024)
    (tmp_path / "emitted.py").write_text(source)
    assert loaded("import emitted", (*ours, "emitted"), tmp_path) == {"emitted"}


def test_the_face_has_the_names_of_the_api() -> None:
    assert tilelink.__all__ == api.__all__
    assert all(getattr(tilelink, name) is getattr(api, name) for name in api.__all__)
    assert set(api.__all__) <= set(dir(tilelink))
    with pytest.raises(UnknownOp, match="matmul"):
        getattr(tilelink, "matmull")  # noqa: B009  # a type checker knows that it is missing
    with pytest.raises(AttributeError, match="__wrapped__"):
        getattr(tilelink, "__wrapped__")  # noqa: B009


def test_no_public_name_is_a_module() -> None:
    """To import a module sets an attribute of its package, which would hide the public name."""
    assert not {module.name for module in pkgutil.iter_modules(tilelink.__path__)} & set(api.__all__)


@pytest.mark.parametrize("late", COMMANDS, ids=lambda late: late.name)
def test_the_list_of_commands_says_what_they_say(late: Late) -> None:
    command = late.load()
    assert command.name == late.name
    assert " ".join(inspect.cleandoc(command.help).split("\n\n")[0].split()) == late.help
