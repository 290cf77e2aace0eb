"""Stubs of Triton-distributed for type checkers, one folder a vendor, made from the API data.

`python -m tilelink.stubs.write` writes them again; a test compares. An editor or mypy finds them by their folder:
`mypy_path = .../tilelink/stubs/nvidia`, for pyright `stubPath`. Only modules of which signatures are known have a stub.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterator

from tilelink.stubs.functions import (
    MODULES,
    described_in,
    find,
    find_constant,
    module,
    names_of,
    offered_on,
)
from tilelink.stubs.model import ApiModule, Choice, Exact, Function, Parameter, Place, Plain, Symbol, Vendor
from tilelink.stubs.typecheck import folder

_SYMBOLS = {Symbol.SIGNAL_OP: "SignalOp", Symbol.COMPARE: "Compare", Symbol.TEAM: "Team"}
_RETURNS = {"bool": "bool", "int": "int", "dict": "dict[str, Any]"}
_HEAD = "# Written by python -m tilelink.stubs.write from the API data: do not edit.\n"
_TYPES = """from typing import Any, Protocol

class Constexpr(Protocol):  # tl.constexpr, whose value is known when the kernel is compiled
    @property
    def value(self) -> Any: ...

class Address(Protocol):  # a pointer or a number, on which one can do arithmetic; the constants below are none
    def __add__(self, other: Any, /) -> Any: ...

# constants whose numbers differ between vendors: an int is none of them
class SignalOp: ...
class Compare: ...
class Team: ...

other: Any  # names about which no more is known than that they exist
"""
_CONFIG = """# What `tilelink verify --api` asks of mypy: calls of Triton-distributed only, in functions without annotations too.
[mypy]
mypy_path = $MYPY_CONFIG_FILE_DIR
check_untyped_defs = True
follow_imports = skip
ignore_missing_imports = True
no_site_packages = True
explicit_package_bases = True

[mypy-triton_dist.*,pyrocshmem]
follow_imports = normal
"""


def files(vendor: Vendor) -> dict[str, str]:
    """Text by path in the folder of the vendor."""
    stubbed = {
        one.path for one in MODULES if _has_stub(one) and all(offered_on(at, vendor) for at in _way_to(one.path))
    }
    packages = {at for path in stubbed for at in _way_to(path)[:-1]}
    found = {"mypy.ini": _CONFIG, "triton_dist/_types.pyi": _HEAD + _TYPES}
    for path in sorted(stubbed | packages):
        name = path.replace(".", "/") + ("/__init__.pyi" if path in packages else ".pyi")
        found[name] = _HEAD + _module(path, vendor)
    return found


def _way_to(path: str) -> list[str]:
    """`a`, `a.b`, `a.b.c` of `a.b.c`."""
    parts = path.split(".")
    return [".".join(parts[: index + 1]) for index in range(len(parts))]


def _has_stub(one: ApiModule) -> bool:
    """Whether more is known of a module than that it exists. `triton_dist.jit` is the function of that name."""
    known = any(find(f"{one.path}.{name}") or find_constant(f"{one.path}.{name}") for name in described_in(one.path))
    return (known or one.complete) and find(one.path) is None


def _module(path: str, vendor: Vendor) -> str:
    """Signatures, then the names about which no more is known."""
    known, others = dict[str, str](), list[str]()
    for name in names_of(path):
        function, constant = find(f"{path}.{name}"), find_constant(f"{path}.{name}")
        if function is not None:
            if vendor not in function.vendors:
                continue
            known[name] = _function(function, vendor)
        elif constant is not None:
            if constant.vendor is vendor:
                known[name] = f"{name}: {_SYMBOLS[constant.symbol]}\n"
        elif module(f"{path}.{name}") is None:
            others.append(name)
    listed = module(path)
    whole = listed is not None and listed.complete
    others = [name for name, lines in known.items() if not lines] + (others if whole else [])
    offers_any = "Any" in others  # as a name that the module has imported itself
    others = [name for name in others if name != "Any"]
    body = "".join(known.values())
    classes = [name for name in others if re.fullmatch(r"[A-Z]\w*[a-z]\w*", name)]
    body += "".join(f"class {name}(Any): ...\n" for name in classes)
    body += "".join(f"{line}= other\n" for line in _chains([name for name in others if name not in classes]))
    if not whole:
        body += "def __getattr__(name: str) -> Any: ...\n"  # the list of its names may have gaps
    if any(name.startswith("__") for name in known):
        body += _exports([name for name in {**known, **dict.fromkeys(others)} if not re.match("_[^_]", name)])
    return _imports(body, offers_any=offers_any) + body


def _imports(body: str, *, offers_any: bool) -> str:
    named = set(re.findall(r"\w+", body))
    typing = ["Any as Any"] if offers_any else ["Any"] if "Any" in named else []
    typing += ["Literal"] if "Literal" in named else []
    ours = [name for name in ("Address", "Compare", "Constexpr", "SignalOp", "Team", "other") if name in named]
    lines = [
        f"from {module} import {', '.join(names)}\n"
        for module, names in (("typing", typing), ("triton_dist._types", ours))
        if names
    ]
    return "".join(lines) + "\n" * bool(body)


def _chains(names: list[str]) -> Iterator[str]:
    for line in textwrap.wrap(" ".join(names), 70, break_long_words=False, break_on_hyphens=False):
        yield "".join(f"{name} = " for name in line.split()).rstrip()[:-1]


def _exports(names: list[str]) -> str:
    """`import *` binds names that begin with underscores only if they are listed."""
    text = textwrap.fill(", ".join(f'"{name}"' for name in names), 110, break_on_hyphens=False)
    return f"__all__ = [\n{textwrap.indent(text, '    ')},\n]\n"


def _function(function: Function, vendor: Vendor) -> str:
    """The lines of one function, empty where its parameters are not known."""
    shape = function.signature_on(vendor)
    if not isinstance(shape, Exact):
        return ""
    parameters = ", ".join(_parameter(one, vendor) for one in shape.parameters)
    returns = _RETURNS.get(function.returns, "Any")
    if function.place is not Place.KERNEL:
        return f"def {function.name}({parameters}) -> {returns}: ...\n"
    return (  # called in a kernel, or launched with options of the compiler beside its arguments
        f"class _launch_{function.name}:\n    def __call__(self, {parameters}, **options: Any) -> Any: ...\n"
        f"class _kernel_{function.name}:\n    def __call__(self, {parameters}) -> {returns}: ...\n"
        f"    def __getitem__(self, grid: Any) -> _launch_{function.name}: ...\n"
        f"{function.name}: _kernel_{function.name}\n"
    )


def _parameter(parameter: Parameter, vendor: Vendor) -> str:
    match parameter.type:
        case Choice() as choice if legal := choice.legal(vendor):
            literals = ", ".join(f'"{one}"' for one in legal)
            text = f"{parameter.name}: Literal[{literals}] | Constexpr"
        case Symbol() as symbol:
            text = f"{parameter.name}: {_SYMBOLS[symbol]} | Constexpr"
        case Plain.POINTER:
            text = f"{parameter.name}: Address"
        case _:
            text = f"{parameter.name}: Any"
    return f"{text} = {parameter.default}" if parameter.default else text


def write() -> None:
    """Write all stubs, and nothing else is left in their folders."""
    for vendor in Vendor:
        shutil.rmtree(folder(vendor), ignore_errors=True)
        for path, text in files(vendor).items():
            at = folder(vendor) / path
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
