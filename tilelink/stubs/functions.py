"""The API of Triton-distributed as data, and questions to it.

`functions.txt` holds what is known of its functions, `names.txt` the names of all its modules, both of the public
repository ByteDance-Seed/Triton-distributed at 1512a811. Where our notes on it are silent, a `Function` says so.
`Function.source` is the section of the notes: 1 language, 2 SHMEM, 3 language_extra, 4 host.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TypeVar

from tilelink.stubs.model import (
    ApiModule,
    Choice,
    Constant,
    Effect,
    Exact,
    Function,
    Parameter,
    ParameterType,
    Place,
    Plain,
    Reach,
    Signature,
    Symbol,
    Unsaid,
    Vendor,
    Words,
)

LANGUAGE = "triton_dist.language"
SHMEM = f"{LANGUAGE}.extra.libshmem_device"
EXTRA, CUDA, HIP = (f"{LANGUAGE}.extra.{part}language_extra" for part in ("", "cuda.", "hip."))
UTILS = "triton_dist.utils"

Types = dict[str, ParameterType]
_SUFFIXES = {  # of `name*`: which threads make the call, where
    "": (Reach.THREAD, tuple(Vendor)),
    "_warp": (Reach.WARP, (Vendor.NVIDIA, Vendor.MORI)),
    "_block": (Reach.BLOCK, (Vendor.NVIDIA, Vendor.MORI)),
    "_wave": (Reach.WAVE, (Vendor.ROCSHMEM,)),
    "_wg": (Reach.WORKGROUP, (Vendor.ROCSHMEM,)),
}
_E = TypeVar("_E", bound=Enum)
_WORDS = {member.value: member for kind in (Place, Reach, Effect, Vendor) for member in kind}


def _lines(file: str) -> Iterator[str]:
    text = (Path(__file__).parent / file).read_text(encoding="utf-8")
    return (line for line in text.splitlines() if line and not line.startswith("#"))


def _pick(kind: type[_E], words: list[str], default: _E) -> _E:
    return next((found for word in words if isinstance(found := _WORDS.get(word), kind)), default)


def _vendors(words: list[str], default: tuple[Vendor, ...] = tuple(Vendor)) -> tuple[Vendor, ...]:
    return tuple(vendor for vendor in Vendor if vendor.value in words) or default


def _type(kind: str, values: str) -> ParameterType:
    """`words: int32 int64`, `one_word: int64`, `choice: gpu sys / agent system`, a symbol, or nothing that is checked."""
    lists = [tuple(value.strip('"') for value in part.split()) for part in f"{values}/".split("/")]
    if kind == "choice":
        return Choice(lists[0], lists[1])
    if kind in ("words", "one_word"):
        return Words(lists[0], one=kind == "one_word")
    return next((one for one in (*Symbol, *Plain) if one.value == kind), Plain.OTHER)


def _signature(text: str, types: Types, vendor: Vendor | None = None) -> Signature:
    """The parameters on one vendor, or those that all have: `ptr:pointer scope:scope="gpu" qp_id:value=0@mori`."""
    found = []
    for word in text.split():
        entry, _, only = word.partition("@")
        if only and (vendor is None or only != vendor.value):
            continue
        if entry == "?":
            return Unsaid()
        name, _, kind = entry.partition(":")
        kind, _, default = kind.partition("=")
        found.append(Parameter(name, types[kind], default))
    return Exact(tuple(found))


def _functions(line: str, header: str, types: Types) -> Iterator[Function]:
    """The functions of one row; `header` is that of its section."""
    paths, _, rest = header[1:].partition("] ")
    of_section = rest.split()
    name, parameters, returns, words, meaning, unsaid = (*(cell.strip() for cell in line.split("|")), "", "")[:6]
    own = words.split()
    reach = _pick(Reach, of_section, Reach.OPEN) if parameters != "?" else Reach.OPEN
    vendors = _vendors(own, _vendors(of_section))
    one = Function(
        name.rstrip("*"),
        tuple(paths.split()),
        _signature(parameters, types),
        vendors,
        _pick(Place, of_section, Place.DEVICE),
        _pick(Effect, own, Effect.NONE),
        _pick(Reach, own, reach),
        meaning,
        of_section[-1],
        returns,
        unsaid,
        tuple((only, _signature(parameters, types, only)) for only in Vendor if f"@{only.value}" in parameters),
    )
    if not name.endswith("*"):
        yield one
        return
    for suffix, (reach, having) in _SUFFIXES.items():
        if offered := tuple(vendor for vendor in vendors if vendor in having):
            yield replace(one, name=one.name + suffix, reach=reach, vendors=offered)


def _read() -> tuple[list[Function], list[Constant], dict[str, ApiModule], list[str]]:
    functions, constants, values, header = list[Function](), list[Constant](), list[str](), ""
    modules, types = dict[str, ApiModule](), Types()
    for line in _lines("names.txt"):
        path, _, names = line.partition(":")
        modules[path.rstrip("!")] = ApiModule(path.rstrip("!"), path.endswith("!"), names=tuple(names.split()))
    for line in _lines("functions.txt"):
        match line.split():
            case ["module", path, *words]:
                same_as = words[-1] if "=" in words else ""
                known = modules.get(path, ApiModule(path, False))
                complete = known.complete or "!" in words
                modules[path] = ApiModule(path, complete, _vendors(words), same_as, known.names)
            case ["type", name, *_]:
                kind, _, listed = line.removeprefix(f"type {name}").partition(":")
                types[name] = _type(kind.strip(), listed)
            case ["constants", symbol, vendor, *pairs]:
                for name, _, number in (pair.partition("=") for pair in pairs):
                    constants.append(Constant(name, Symbol[symbol.upper()], int(number), Vendor(vendor.rstrip(":"))))
            case ["value", path]:
                values.append(path)
            case _ if line.startswith("["):
                header = line
            case _:
                functions += _functions(line, header, types)
    return functions, constants, modules, values


_FUNCTIONS, _CONSTANTS, _MODULES, _VALUES = _read()
FUNCTIONS, CONSTANTS, MODULES = tuple(_FUNCTIONS), tuple(_CONSTANTS), tuple(_MODULES.values())
_BY_PATH = {f"{path}.{function.name}": function for function in FUNCTIONS for path in function.import_paths}
_BY_NAME = {constant.name: constant for constant in CONSTANTS}


def module(path: str) -> ApiModule | None:
    """The module of that import path, None if the API lists none."""
    return _MODULES.get(path)


def find(path: str) -> Function | None:
    """The function of a full import path, such as `triton_dist.language.wait`, by any module that offers it."""
    owner, _, name = path.rpartition(".")
    return _BY_PATH.get(f"{_home(owner)}.{name}")


def find_constant(path: str) -> Constant | None:
    """The symbolic constant of a full import path, None if it is not one."""
    owner, _, name = path.rpartition(".")
    return _BY_NAME.get(name) if _home(owner) == SHMEM else None


def _home(path: str) -> str:
    """The module whose names a module has."""
    return (_MODULES[path].same_as if path in _MODULES else "") or path


def exists(path: str) -> bool:
    """Whether a full import path is a module, function, constant or value of the API."""
    owner, _, name = path.rpartition(".")
    return path in _MODULES or (owner in _MODULES and name in names_of(owner))


@cache
def described_in(path: str) -> tuple[str, ...]:
    """The names of a module of which more is known than that they exist, in the order of the data."""
    owner = _home(path)
    constants = [f"{owner}.{constant.name}" for constant in CONSTANTS] if owner == SHMEM else []
    paths = (*_BY_PATH, *constants, *_VALUES, *_MODULES)
    return tuple(dict.fromkeys(name for key in paths for at, _, name in [key.rpartition(".")] if at == owner))


@cache
def names_of(path: str) -> tuple[str, ...]:
    """What can be imported from a module."""
    return tuple(dict.fromkeys((*described_in(path), *_MODULES[path].names)))


def of_vendor(vendor: Vendor) -> tuple[Function, ...]:
    """All functions that a vendor has, in the order of the data."""
    return tuple(function for function in FUNCTIONS if vendor in function.vendors)


def constants_of(symbol: Symbol, vendor: Vendor) -> tuple[Constant, ...]:
    """The legal names of a symbolic parameter; empty where the facts give none for that vendor."""
    return tuple(constant for constant in CONSTANTS if constant.symbol is symbol and constant.vendor is vendor)


def legal_of(kind: ParameterType, vendor: Vendor) -> tuple[str, ...]:
    """The constants that a parameter takes, as one would write them; empty where it takes others, or all."""
    match kind:
        case Choice():
            return tuple(map(repr, kind.legal(vendor)))
        case Symbol():
            return tuple(f"libshmem_device.{constant.name}" for constant in constants_of(kind, vendor))
        case _:
            return ()


def offered_on(path: str, vendor: Vendor) -> bool:
    """Whether a vendor has that module. Paths that the API does not list are offered everywhere."""
    return path not in _MODULES or vendor in _MODULES[path].vendors
