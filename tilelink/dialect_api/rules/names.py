"""Names: modules and names exist, and exist on the vendor of the file."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator

from tilelink.dialect_api.context import Context
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

_OURS = ("triton_dist", "pyrocshmem")
_AMD_SUFFIX = {"_block": "_wg", "_warp": "_wave"}


def check(context: Context) -> Iterator[Finding]:
    """Imports first, then each dotted name that starts at an import."""
    choosing = _choosing(context.file.tree)
    for node in ast.walk(context.file.tree):
        match node:
            case ast.Import():
                for alias in node.names:
                    yield from _module(context, alias, alias.name, chosen=id(node) in choosing)
            case ast.ImportFrom() if node.module and not node.level:
                yield from _from(context, node, chosen=id(node) in choosing)
            case ast.Attribute():
                yield from _attribute(context, node)
            case _:
                pass


def _choosing(tree: ast.Module) -> set[int]:
    """Imports that a file may leave out on other GPUs: in functions, branches and handlers, by their `id`."""
    kinds = ast.FunctionDef | ast.If | ast.Try
    return {id(node) for outer in ast.walk(tree) if isinstance(outer, kinds) for node in ast.walk(outer)}


def is_of_api(path: str) -> bool:
    """Whether an import path leads into Triton-distributed."""
    return path.split(".")[0] in _OURS


def _close(name: str, known: list[str]) -> tuple[str, ...]:
    return tuple(difflib.get_close_matches(name, known, n=2, cutoff=0.75))


def _modules_like(path: str) -> tuple[str, ...]:
    """Known modules of which one part is spelt otherwise: other folders may well exist."""
    parts = path.split(".")
    found = []
    for known in MODULES:
        pairs = [pair for pair in zip(known.path.split("."), parts, strict=False) if pair[0] != pair[1]]
        same_depth = known.path.count(".") == path.count(".")
        if same_depth and len(pairs) == 1 and _close(pairs[0][1], [pairs[0][0]]):
            found.append(known.path)
    return tuple(found)


def _module(context: Context, node: Node, path: str, *, chosen: bool) -> Iterator[Finding]:
    if not is_of_api(path):
        return
    if module(path) is None:
        close = _modules_like(path)
        if path.startswith(LANGUAGE):  # all modules of which are listed
            yield finding(Rule.UNKNOWN_MODULE, node, f"there is no module {path!r}{_did_you_mean(close)}", *close)
        else:
            yield finding(
                Rule.UNLISTED_NAME, node, f"the API data lists no module {path!r}{_did_you_mean(close)}", *close
            )
    elif not (chosen or offered_on(path, context.file.vendor)):
        yield _missing(context, node, f"module {path!r}")


def _from(context: Context, node: ast.ImportFrom, *, chosen: bool) -> Iterator[Finding]:
    owner = node.module or ""
    if not is_of_api(owner):
        return
    if module(owner) is None or not (chosen or offered_on(owner, context.file.vendor)):
        yield from _module(context, node, owner, chosen=chosen)
        return
    for alias in node.names:
        if alias.name != "*":
            yield from _name(context, alias, owner, alias.name, chosen=chosen)


def _attribute(context: Context, node: ast.Attribute) -> Iterator[Finding]:
    owner = context.file.full_path(node.value)
    if owner and is_of_api(owner) and module(owner) is not None:
        yield from _name(context, node, owner, node.attr)


def _name(context: Context, node: Node, owner: str, name: str, *, chosen: bool = False) -> Iterator[Finding]:
    path = f"{owner}.{name}"
    if name.startswith("__") and name.endswith("__"):
        return  # `__path__` and the like, which modules have by themselves
    if not exists(path):
        known = module(owner)
        close = _close(name, list(names_of(owner)))
        listed = known is not None and known.complete
        if listed:
            yield finding(Rule.UNKNOWN_NAME, node, f"{owner} has no {name!r}{_did_you_mean(close)}", *close)
        else:  # likeness proves nothing: modules grow names that differ by a word
            message = f"the API data lists no {name!r} of {owner}{_did_you_mean(close)}"
            yield finding(Rule.UNLISTED_NAME, node, message, *close)
        return
    if chosen:
        return
    if module(path) is not None and not offered_on(path, context.file.vendor):
        yield _missing(context, node, f"module {path!r}")
    yield from _vendor_of_name(context, node, path)


def _vendor_of_name(context: Context, node: Node, path: str) -> Iterator[Finding]:
    vendor = context.file.vendor
    function = find(path)
    if function is not None and vendor not in function.vendors:
        if function.path == f"{LANGUAGE}.notify":
            instead = 'st(dl.symm_at(word, rank), value, scope="sys", semantic="release")'
            yield finding(Rule.NOTIFY_ON_AMD, node, f"dl.notify is not lowered on {vendor.value}", instead)
        else:
            yield _missing(context, node, f"{function.name!r}", *_instead(path, vendor))
    constant = find_constant(path)
    if constant is not None and constant.vendor is not vendor:
        legal = [one.name for one in constants_of(constant.symbol, vendor)]
        yield _missing(context, node, f"constant {constant.name!r}", *legal)


def _instead(path: str, vendor: Vendor) -> tuple[str, ...]:
    """The same function with the suffix of the other vendor, if it is there."""
    name = path.rpartition(".")[2]
    for cuda, amd in _AMD_SUFFIX.items():
        for one, other in ((cuda, amd), (amd, cuda)):
            found = find(f"{SHMEM}.{name.removesuffix(one)}{other}") if name.endswith(one) else None
            if found is not None and vendor in found.vendors:
                return (found.name,)
    return ()


def _missing(context: Context, node: Node, what: str, *legal: str) -> Finding:
    return finding(Rule.NOT_ON_VENDOR, node, f"{what} does not exist on {context.file.vendor.value}", *legal)


def _did_you_mean(close: tuple[str, ...]) -> str:
    return f": did you mean {close[0]!r}?" if close else ""
