"""Versions of what makes a schedule and its kernels."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "tilelink-overlap"  # on the index, where another project has the name of the package


@cache
def own_version() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "of a checkout"


def versions() -> Iterator[str]:
    """Of tilelink, of the packages that it plans and compiles for, and of Python."""
    yield f"tilelink {own_version()}"
    for name in ("torch", "triton"):
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            yield f"no {name}"
    yield f"Python {platform.python_version()}"
