"""The modules of the dialect come and go, a real triton_dist is left alone, and files run as scripts."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilelink.compat.triton_dist import install, uninstall
from tilelink.compat.triton_dist.__main__ import main

ROOT = Path(__file__).resolve().parents[3]
ROOTS = ("triton_dist", "pyrocshmem")
IMPORTS = """
import triton, triton.language as tl, torch
import triton_dist
import triton_dist.language as dl
from triton_dist.language.extra import libshmem_device
from triton_dist.language.extra.language_extra import __syncthreads, atomic_add, ld, st, tid
from triton_dist.language.extra.cuda.language_extra import arrive_inc, multimem_st_v4, smid, wait_eq
from triton_dist.utils import initialize_distributed, finalize_distributed, nvshmem_create_tensors
from triton_dist.utils import nvshmem_barrier_all_on_stream, launch_cooperative_grid_options
from triton_dist.kernels.nvidia.common_ops import _wait_eq_cuda, _set_signal_cuda, _memcpy_async_cuda
from triton_dist.kernels.amd.common_ops import _set_signal_hip, _wait_eq_hip
from triton_dist.language.extra.hip.language_extra import ld
import pyrocshmem
from triton_dist.kernels.common_ops import wait_eq, set_signal, fence, globaltimer, pack_b32_v2
"""


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Leaves the modules as other tests have them."""
    kept = {name: module for name, module in sys.modules.items() if name.split(".")[0] in ROOTS}
    yield
    for name in [name for name in sys.modules if name.split(".")[0] in ROOTS]:
        del sys.modules[name]
    sys.modules.update(kept)


def test_names_are_there_after_install_and_gone_after_uninstall() -> None:
    assert install()
    exec(IMPORTS, {})
    uninstall()
    for name in ("triton_dist", "pyrocshmem"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name)
    uninstall()


def test_install_twice_keeps_the_modules() -> None:
    assert install()
    first = sys.modules["triton_dist"]
    assert install()
    assert sys.modules["triton_dist"] is first


def test_a_real_one_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uninstall()
    (tmp_path / "triton_dist").mkdir()
    (tmp_path / "triton_dist" / "__init__.py").write_text("real = True\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert not install()
    assert "triton_dist" not in sys.modules
    assert importlib.import_module("triton_dist").real
    assert not install()
    uninstall()
    assert "triton_dist" in sys.modules


def test_a_missing_name_says_what_there_is() -> None:
    install()
    language = importlib.import_module("triton_dist.language")
    with pytest.raises(AttributeError, match=r"simt_exec_region is not in the shim.*\nLegal: consume_token, .*wait"):
        _ = language.simt_exec_region
    assert not hasattr(language, "tma")


@pytest.mark.slow
def test_a_file_runs_as_a_script(tmp_path: Path) -> None:
    file = tmp_path / "prog.py"
    file.write_text(f"{IMPORTS}\nimport sys\nprint(__name__, sys.argv[1:])\n", encoding="utf-8")
    command = [sys.executable, "-m", "tilelink.compat.triton_dist", str(file), "--rows", "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "__main__ ['--rows', '3']\n"


def test_no_file_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert main(["missing.py"]) == 2
    assert "missing.py" in capsys.readouterr().err
