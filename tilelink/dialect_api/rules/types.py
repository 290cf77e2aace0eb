"""Names, arguments and constants: what mypy says of the API by its stubs, in its words; and which modules exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tilelink.dialect_api.rule import Finding, Node, Rule, finding
from tilelink.dialect_api.source import SourceFile, bind
from tilelink.dialect_api.walk import Context
from tilelink.stubs.functions import LANGUAGE, constants_of, exists, find, find_constant, legal_of, module, offered_on
from tilelink.stubs.typecheck import Span, span

_KINDS = {  # of messages about calls, by their words
    "Too many (positional )?arguments": Rule.TOO_MANY_ARGUMENTS,
    "Missing positional argument": Rule.MISSING_ARGUMENT,
    "Unexpected keyword argument": Rule.UNKNOWN_KEYWORD,
    "gets multiple values for keyword argument": Rule.DUPLICATE_ARGUMENT,
    'to "remote_mc_ptr" has incompatible type "Team"': Rule.MC_PTR_ORDER,
    'incompatible type "int"; expected "(SignalOp|Compare|Team)': Rule.LITERAL_CONSTANT,
    # of a `str` mypy does not know which: `values` follows it
    'incompatible type "(?!str"; expected "Literal)': Rule.WRONG_CONSTANT,
}
_NO_NAME = re.compile(r'(?:has no attribute "|Name "\S+\.)(\w+)"')
_INSTEAD_OF_NOTIFY = 'st(dl.symm_at(word, rank), value, scope="sys", semantic="release")'


def check(context: Context) -> Iterator[Finding]:
    """Messages about names and calls of the API, reached by a kernel or not, and modules that do not exist."""
    file, names, calls = context.file, dict[tuple[Span, str], tuple[Node, str]](), dict[Span, tuple[str, ...]]()
    for node in ast.walk(file.tree):
        match node:
            case ast.ImportFrom(str() as owner, aliases, 0):
                names |= {(span(node), one.name): (one, f"{owner}.{one.name}") for one in aliases}
            case ast.Attribute(value, name) if module(file.full_path(value)) is not None:
                names[span(node), name] = node, file.full_path(node)
            case ast.Call():
                calls |= _legal(file, node)
    chosen = {id(node) for node in _chosen(file)}
    for node in ast.walk(file.tree):
        yield from _modules(file, node, chosen)
    for at, text in context.messages:
        missing = _NO_NAME.search(text)
        if missing and (at, missing[1]) in names:
            yield from _name(file, *names[at, missing[1]], text, chosen)
        elif at in calls:
            rules = [rule for words, rule in _KINDS.items() if re.search(words, text)]
            yield from (Finding(rule, at.line, at.column + 1, text, calls[at]) for rule in rules[:1])


def _chosen(file: SourceFile) -> Iterator[ast.AST]:
    """What a file may leave out on other GPUs: imports in functions, branches and handlers are of no vendor."""
    for outer in ast.walk(file.tree):
        if isinstance(outer, ast.FunctionDef | ast.If | ast.Try):
            yield from (node for node in ast.walk(outer) if isinstance(node, ast.Import | ast.ImportFrom | ast.alias))


def _legal(file: SourceFile, call: ast.Call) -> dict[Span, tuple[str, ...]]:
    """What is legal in a call of the API and at each of its arguments. mypy takes `*` for as many as there may be."""
    function = find(file.full_path(call.func.value if isinstance(call.func, ast.Subscript) else call.func))
    if function is None or any(isinstance(argument, ast.Starred) for argument in call.args):
        return {}
    shape, bound = (function.text(file.vendor),), bind(call, function.signature_on(file.vendor))
    return {span(call): shape} | {span(node): legal_of(one.type, file.vendor) or shape for one, node in bound}


def _modules(file: SourceFile, node: ast.AST, chosen: set[int]) -> Iterator[Finding]:
    """Stubs describe the modules of which functions are known; whether a module is there stands in the data."""
    named: list[tuple[Node, str]] = []
    match node:
        case ast.Import(aliases):
            named = [(one, one.name) for one in aliases]
        case ast.ImportFrom(str() as owner, aliases, 0):
            inside = [(one, f"{owner}.{one.name}") for one in aliases]
            named = [(node, owner), *((one, path) for one, path in inside if module(path) is not None)]
        case ast.Attribute() if module(file.full_path(node)) is not None:
            named = [(node, file.full_path(node))]
    for at, path in named:
        if path.startswith(f"{LANGUAGE}.") and module(path) is None:  # all of which are listed
            yield finding(Rule.UNKNOWN_MODULE, at, f"there is no module {path!r}")
        elif not offered_on(path, file.vendor) and id(at) not in chosen:
            yield finding(Rule.NOT_ON_VENDOR, at, f"module {path!r} does not exist on {file.vendor.value}")


def _name(file: SourceFile, node: Node, path: str, text: str, chosen: set[int]) -> Iterator[Finding]:
    """A name that a stub does not have: of nobody, or of another vendor."""
    vendor, constant = file.vendor.value, find_constant(path)
    if not exists(path):
        yield finding(Rule.UNKNOWN_NAME, node, text)
    elif module(path) is None and id(node) not in chosen:
        if path == f"{LANGUAGE}.notify":
            yield finding(Rule.NOTIFY_ON_AMD, node, f"dl.notify is not lowered on {vendor}", _INSTEAD_OF_NOTIFY)
        else:
            legal = constants_of(constant.symbol, file.vendor) if constant is not None else ()
            yield finding(Rule.NOT_ON_VENDOR, node, f"{text} (on {vendor})", *(one.name for one in legal))
