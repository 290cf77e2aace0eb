"""Strings that name something of a schedule. They say of what kind it is, so that a name can be told from prose, and a check
or a mutation may go through the names of one kind.

    get_type_hints(Wait, include_extras=True)["signal"]  # Annotated[str, "signal"]
"""

from __future__ import annotations

from typing import Annotated

SignalName = Annotated[str, "signal"]
BufferName = Annotated[str, "buffer"]
ValueName = Annotated[str, "value"]  # a tile that a program holds
OpName = Annotated[str, "op"]
FunctionName = Annotated[str, "function"]  # of a library
StreamName = Annotated[str, "stream"]
