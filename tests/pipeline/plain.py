"""Emitted text with numbers where it has named constants, for tests that look for numbers."""

from __future__ import annotations

import ast
import re

from tilelink.runtime.constants import constants_of

_START = "# ---- device helpers"


def plain(source: str) -> str:
    """`source` from its device helpers on, without the names of its constants; each call on one line."""
    constants = constants_of(ast.parse(source))
    names = re.compile(rf"\b({'|'.join(constants)})\b(?!=[^=])(\.value)?")
    text = names.sub(lambda name: str(constants[name[1]]), source[source.index(_START) :])
    return re.sub(r",\n +", ", ", re.sub(r",\n +\)", ")", re.sub(r"\(\n +", "(", text)))
