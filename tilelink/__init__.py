"""tilelink: declare the tile graph of compute and collectives, get a proven overlapped multi-GPU kernel.

The public names are those of `tilelink.api`, which is imported when the first of them is asked for. To import this package,
or a module of it, runs nothing but the lines below.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilelink.api import *  # noqa: F403  # their list stands there, once
    from tilelink.api import __all__ as __all__
    from tilelink.ir.functions import *  # noqa: F403  # mypy does not follow a list that is added to another
else:

    def __getattr__(name: str) -> object:
        """A public name, or `__all__`. Raises UnknownOp for a name that the package does not have."""
        if name.startswith("__") and name != "__all__":  # what tools ask for; they expect this very class
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        api = import_module("tilelink.api")
        globals().update({word: getattr(api, word) for word in ("__all__", *api.__all__)})
        if name not in globals():  # where modules of the package stand, too, once they are imported
            raise api.unknown(name)
        return globals()[name]

    def __dir__() -> list[str]:
        return sorted({*globals(), *import_module("tilelink.api").__all__})
