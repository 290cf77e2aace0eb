"""JSON in both directions for IR nodes: `{"type": "CommSms", "num_sms": 16}`, enums as `{"enum": "Transfer.PUSH"}`.

The format is stable: a field may be added with a default, none changes its meaning within a major version. A field that is
`LATER` is written only where it is not its default, so that text and hash of older schedules stay.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from enum import Enum
from types import MappingProxyType

LATER = MappingProxyType({"later": True})  # metadata of a field


def encode(node: object) -> object:
    """`node` as JSON-ready data. Nodes are dataclasses, enums, tuples, str, int, float, bool, None."""
    if isinstance(node, Enum):
        return {"enum": f"{type(node).__name__}.{node.name}"}
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        values = {field: getattr(node, field.name) for field in dataclasses.fields(node)}
        told = {
            field.name: encode(value)
            for field, value in values.items()
            if not (field.metadata.get("later") and value == field.default)
        }
        return {"type": _declaring(type(node)).__name__, **told}
    if isinstance(node, tuple):
        return [encode(item) for item in node]
    assert node is None or isinstance(node, str | int | float), f"{type(node).__name__} is not an IR node"
    return node


def _declaring(cls: type) -> type:
    """The class that declares the fields of `cls`: a class above it that adds none reads and writes the same text."""
    return next(one for one in cls.__mro__ if "__dataclass_fields__" in vars(one))


def to_json(node: object) -> str:
    return json.dumps(encode(node), indent=1)


def decode(data: object, types: Iterable[type]) -> object:
    """The node that `encode` made `data` from; `types` are the classes that may occur."""
    known = {cls.__name__: cls for cls in types}

    def visit(item: object) -> object:
        if isinstance(item, list):
            return tuple(visit(element) for element in item)
        if not isinstance(item, dict):
            return item
        if "enum" in item:
            name, _, member = item["enum"].partition(".")
            return known[name][member]  # type: ignore[index]
        fields = {key: visit(value) for key, value in item.items() if key != "type"}
        return known[item["type"]](**fields)

    return visit(data)
