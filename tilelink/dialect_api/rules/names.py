"""Names: modules and names exist, and exist on the vendor of the file."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Iterator

from tilelink.dialect_api.functions import (
    LANGUAGE,
    MODULES,
    SHMEM,
    constants_of,
    exists,
    find,
    find_constant,
    module,
    names_of,
    offered_on,
)
from tilelink.dialect_api.model import Vendor
from tilelink.dialect_api.rule import Finding, Node, Rule, finding
from tilelink.dialect_api.walk import Context

_OURS = ("triton_dist", "pyrocshmem")
_SUFFIXES = {"_block": "_wg", "_warp": "_wave", "_wg": "_block", "_wave": "_warp"}  # of one vendor and of the other
_INSTEAD_OF_NOTIFY = 'st(dl.symm_at(word, rank), value, scope="sys", semantic="release")'


def check(context: Context) -> Iterator[Finding]:
    """Imports, and each dotted name that starts at an import.

    Imports in functions, branches and handlers a file may leave out on other GPUs: they are of no vendor.
    """
    outers = (node for node in ast.walk(context.file.tree) if isinstance(node, ast.FunctionDef | ast.If | ast.Try))
    chosen = {id(node) for outer in outers for node in ast.walk(outer)}
    for node in ast.walk(context.file.tree):
        vendor = None if id(node) in chosen else context.file.vendor
        match node:
            case ast.Import(aliases):
                for alias in aliases:
                    yield from _module(alias, alias.name, vendor)
            case ast.ImportFrom(str() as owner, aliases, 0):
                wrong = list(_module(node, owner, vendor))
                yield from wrong
                for alias in aliases if not wrong else []:
                    yield from _name(alias, owner, alias.name, vendor)
            case ast.Attribute(value, name):
                yield from _name(node, context.file.full_path(value), name, context.file.vendor)
            case _:
                pass


def is_of_api(path: str) -> bool:
    """Whether an import path leads into Triton-distributed."""
    return path.split(".")[0] in _OURS


def _module(node: Node, path: str, vendor: Vendor | None) -> Iterator[Finding]:
    if is_of_api(path) and module(path) is None:
        close = _modules_like(path)
        if path.startswith(LANGUAGE):  # all modules of which are listed
            yield _unknown(Rule.UNKNOWN_MODULE, node, f"there is no module {path!r}", close)
        else:
            yield _unknown(Rule.UNLISTED_NAME, node, f"the API data lists no module {path!r}", close)
    elif is_of_api(path) and vendor is not None and not offered_on(path, vendor):
        yield _missing(node, f"module {path!r}", vendor)


def _name(node: Node, owner: str, name: str, vendor: Vendor | None) -> Iterator[Finding]:
    known, path = module(owner), f"{owner}.{name}"
    if known is None or name == "*" or (name.startswith("__") and name.endswith("__")):
        return  # not of the API, or `__path__` and the like, which modules have by themselves
    if not exists(path):
        close = difflib.get_close_matches(name, names_of(owner), n=2, cutoff=0.75)
        if known.complete:
            yield _unknown(Rule.UNKNOWN_NAME, node, f"{owner} has no {name!r}", close)
        else:  # likeness proves nothing: modules grow names that differ by a word
            yield _unknown(Rule.UNLISTED_NAME, node, f"the API data lists no {name!r} of {owner}", close)
    elif vendor is not None:
        yield from _module(node, path, vendor) if module(path) is not None else ()
        yield from _of_vendor(node, path, vendor)


def _of_vendor(node: Node, path: str, vendor: Vendor) -> Iterator[Finding]:
    function, constant = find(path), find_constant(path)
    if function is not None and vendor not in function.vendors:
        if function.path == f"{LANGUAGE}.notify":
            yield finding(Rule.NOTIFY_ON_AMD, node, f"dl.notify is not lowered on {vendor.value}", _INSTEAD_OF_NOTIFY)
        else:
            yield _missing(node, repr(function.name), vendor, _instead(function.name, vendor))
    if constant is not None and constant.vendor is not vendor:
        yield _missing(
            node, f"constant {constant.name!r}", vendor, [one.name for one in constants_of(constant.symbol, vendor)]
        )


def _instead(name: str, vendor: Vendor) -> Iterator[str]:
    """The same function with the suffix of the other vendor, if it is there."""
    for suffix, other in _SUFFIXES.items():
        found = find(f"{SHMEM}.{name.removesuffix(suffix)}{other}") if name.endswith(suffix) else None
        if found is not None and vendor in found.vendors:
            yield found.name


def _modules_like(path: str) -> list[str]:
    """Known modules of which one part is spelt otherwise: other folders may well exist."""
    parts, found = path.split("."), []
    for known in (one.path for one in MODULES if one.path.count(".") == path.count(".")):
        pairs = [(mine, theirs) for mine, theirs in zip(parts, known.split("."), strict=True) if mine != theirs]
        if len(pairs) == 1 and difflib.get_close_matches(pairs[0][0], [pairs[0][1]], cutoff=0.75):
            found.append(known)
    return found


def _unknown(rule: Rule, node: Node, what: str, close: list[str]) -> Finding:
    return finding(rule, node, f"{what}: did you mean {close[0]!r}?" if close else what, *close)


def _missing(node: Node, what: str, vendor: Vendor, legal: Iterable[str] = ()) -> Finding:
    return finding(Rule.NOT_ON_VENDOR, node, f"{what} does not exist on {vendor.value}", *legal)
