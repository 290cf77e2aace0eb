"""Words of the libraries that read the command line, put plainly."""

from __future__ import annotations

import re

_PLAIN = (
    (r"^Value error, ", ""),
    (r"^Input should be a valid (integer).*", r"it takes an \1"),
    (r"^Input should be a valid (\w+).*", r"it takes a \1"),
    (r"^Input should be greater than or equal to (\S+)$", r"it takes at least \1"),
    (r"^Input should be less than or equal to (\S+)$", r"it takes at most \1"),
    (r"^Input should be ", "it takes "),
)


def plain(message: str) -> str:
    """`message` of a value that an option does not take, without the words of its checker."""
    for pattern, words in _PLAIN:
        message = re.sub(pattern, words, message, flags=re.DOTALL)
    return message
