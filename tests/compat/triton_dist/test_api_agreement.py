"""The shim has the parameters that the API has, and its page names what it lacks."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest

from tilelink.compat.triton_dist import install
from tilelink.dialect_api import FUNCTIONS, Vendor, of_vendor
from tilelink.stubs.model import Exact

PAGE = Path(__file__).resolve().parents[3] / "docs" / "triton_distributed.md"
NVIDIA = [vendor for vendor in Vendor if "nv" in vendor.value.lower()]
PATHS = sorted(
    {(path, function.name) for vendor in NVIDIA for function in of_vendor(vendor) for path in function.import_paths}
)


def offered(path: str, name: str) -> Any:
    """What the shim has at `path`, a module or the name in one; None if nothing."""
    assert install()
    module = path.removesuffix(f".{name}")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return None


def plain(value: Any) -> str:
    return str(getattr(value, "value", value))


@pytest.mark.parametrize("function", [f for f in FUNCTIONS if isinstance(f.signature, Exact)], ids=lambda f: f.name)
def test_parameters_and_defaults(function: Any) -> None:
    for path in function.import_paths:
        held = offered(path, function.name)
        if held is None:
            continue
        parameters = inspect.signature(getattr(held, "fn", held)).parameters.values()
        mine = [parameter for parameter in parameters if not parameter.name.startswith("_")]
        assert len(mine) == len(function.signature.parameters)
        if not function.name.startswith("st_v"):  # of the words that they store the facts give no names
            assert [parameter.name for parameter in mine] == [one.name for one in function.signature.parameters]
        defaults = [plain(one.default) if one.default is not inspect.Parameter.empty else "" for one in mine]
        assert defaults == [one.default.strip("\"'") for one in function.signature.parameters]


def test_what_is_missing_is_said() -> None:
    missing = {name for path, name in PATHS if ".hip." not in path and offered(path, name) is None}
    text = PAGE.read_text(encoding="utf-8")
    section = text[text.index("## Running the dialect on stock Triton") :]
    assert missing
    assert sorted(name for name in missing if f"`{name}`" not in section and not name.startswith("putmem_")) == []
    assert "`putmem_rma*`" in section and "`putmem_signal_rma*`" in section
