"""Names of sizes and axes, several in one text."""

from __future__ import annotations

import keyword

from tilelink.errors import BadNames
from tilelink.ir.location import here


def split_names(names: object, function: str) -> list[str]:
    """`"M N, K"` as `["M", "N", "K"]`, for `function`. Raises BadNames."""
    found = names.replace(",", " ").split() if isinstance(names, str) else []
    if not found or not all(name.isidentifier() and not keyword.iskeyword(name) for name in found):
        raise BadNames(here(), function=function, names=names)
    return found
