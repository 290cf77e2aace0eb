"""docs/api.md: the public names of tilelink, with their signatures and docstrings.

`pytest --update-golden tests/docs/test_pages.py` writes the page anew.
"""

from __future__ import annotations

import inspect
from enum import Enum

import tilelink

GROUPS = {
    "Declare an operator": ("overlap", "Tensor", "dims", "Replicate", "Shard", "Partial"),
    "Operations": ("matmul", "silu", "gelu", "relu", "add", "sub", "mul", "div", "neg"),
    "Attention": ("attention", "merge_states", "flatten", "unflatten"),
    "Experts": ("route", "dispatch", "grouped_matmul", "combine"),
    "Collectives": ("all_gather", "reduce_scatter", "all_reduce", "send_recv"),
    "Tile ops of your own": ("op", "fold", "axes"),
    "Plan, emit, compile": ("Overlap", "Plan", "Schedule"),
    "Movers": (
        "CopyEngine",
        "CommSms",
        "CopyWarps",
        "NeededRails",
        "NeededRows",
        "PlacedRows",
        "Rails",
        "StreamRails",
        "LibraryRails",
        "SocketRails",
        "Fused",
        "OwnKernel",
        "Library",
    ),
    "Other values of pins": ("Protocol", "Landing", "Transfer", "Nest", "TileShape"),
    "Errors": ("TileLinkError",),
}
METHODS = {"Overlap": ("plan", "plan_for", "graph", "emit", "compile"), "Plan": ("emit",)}
METHODS |= {"Schedule": ("to_json", "from_json")}
METHODS |= {"Tensor": ("T", "t", "chunk", "split")}
LONG = 60  # characters; a longer signature has one parameter a line


def page() -> str:
    """Text of the page. Fails where a public name belongs to no group."""
    named = [name for names in GROUPS.values() for name in names]
    assert sorted(named) == sorted(tilelink.__all__), "every public name stands in one group"
    lines = [
        "# API",
        "The public names of `tilelink`, from their docstrings. Everything else may change from version to version.",
        "Emitted text comes from `lowering.emit(schedule)`; emulated ranks from `tilelink.emulator.World`.",
    ]
    for title, names in GROUPS.items():
        lines += ["", f"## {title}"]
        for name in names:
            lines += ["", *_entry(name)]
    return "\n".join(lines) + "\n"


def _entry(name: str) -> list[str]:
    found = getattr(tilelink, name)
    lines = [f"### {name}", *_signature(name, found), "", *_doc(found)]
    if inspect.isclass(found) and issubclass(found, Enum):
        lines += ["", f"Members: {', '.join(f'`{member.name}` = `{member.value}`' for member in found)}."]
    for method in METHODS.get(name, ()):
        of = inspect.getattr_static(found, method)
        plain = of.fget if isinstance(of, property) else of.__func__ if isinstance(of, classmethod) else of
        heading = "" if isinstance(of, property) else "\n".join(_signature(f".{method}", plain))
        lines += ["", heading or f"**`.{method}`**", "", *_doc(plain)]
    return lines


def _signature(name: str, found: object) -> list[str]:
    if inspect.isclass(found) and (issubclass(found, Enum | Exception) or name in ("Overlap", "Plan", "Schedule")):
        return []
    assert callable(found)
    signature = inspect.signature(found)
    hidden = (
        "self",
        "cls",
        *(("name", "location", "trace") if found is tilelink.Tensor else ()),
    )  # the trace passes them
    kept = [parameter for key, parameter in signature.parameters.items() if key not in hidden]
    parts = list(map(_parameter, kept))
    if any(p.kind is p.KEYWORD_ONLY for p in kept) and not any(p.kind is p.VAR_POSITIONAL for p in kept):
        parts.insert(next(i for i, p in enumerate(kept) if p.kind is p.KEYWORD_ONLY), "*")
    back = "" if inspect.isclass(found) else f" -> {signature.return_annotation}"
    text = f"{name}({', '.join(parts)}){back}"
    if len(text) > LONG and parts:
        text = "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){back}"])
    return ["```text", text, "```"]


def _parameter(parameter: inspect.Parameter) -> str:
    stars = (
        "*" if parameter.kind is parameter.VAR_POSITIONAL else "**" if parameter.kind is parameter.VAR_KEYWORD else ""
    )
    default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
    return f"{stars}{parameter.name}: {parameter.annotation}{default}"


def _doc(found: object) -> list[str]:
    return inspect.cleandoc(getattr(found, "__doc__", "") or "").splitlines()
