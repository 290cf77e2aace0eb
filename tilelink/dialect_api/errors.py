"""What keeps a file from being checked against the API: one class each."""

from __future__ import annotations

from topologies.errors import UserError


class SourceMissing(UserError):
    """Facts: path, reason (the system's words)."""

    template = "{path} cannot be read: {reason}.\nGive --api a Python file in the Triton-distributed dialect."


class SourceNotPython(UserError):
    """Facts: path, line, column, reason."""

    template = "{path}:{line}:{column}: this is not Python: {reason}.\nOnly files that Python can parse are checked."
