"""Random calls made from the API data pass; each mutation of arity, keyword, constant or name is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tilelink.dialect_api import FUNCTIONS, Function, Rule, Vendor, check_source
from tilelink.stubs.functions import constants_of, module, offered_on
from tilelink.stubs.model import Choice, Exact, Parameter, Place, Symbol

CALL_RULES = {
    Rule.UNKNOWN_MODULE,
    Rule.UNKNOWN_NAME,
    Rule.TOO_MANY_ARGUMENTS,
    Rule.MISSING_ARGUMENT,
    Rule.DUPLICATE_ARGUMENT,
    Rule.UNKNOWN_KEYWORD,
    Rule.WRONG_CONSTANT,
    Rule.LITERAL_CONSTANT,
    Rule.WRONG_WIDTH,
    Rule.IMPLICIT_COMM_SCOPE,
    Rule.NOTIFY_ON_AMD,
    Rule.NOT_ON_VENDOR,
    Rule.HOST_IN_KERNEL,
    Rule.DEVICE_ON_HOST,
}


@dataclass(frozen=True)
class Call:
    """One call, argument by argument: by position first, then by keyword."""

    function: Function
    vendor: Vendor
    module: str
    positional: tuple[str, ...]
    keywords: tuple[tuple[str, str], ...]

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        shape = self.function.signature_on(self.vendor)
        return shape.parameters if isinstance(shape, Exact) else ()

    def lines(self, index: int, name: str) -> list[str]:
        """A function with this call in its last line; `name` instead of the function's."""
        words = [*self.positional, *(f"{key}={value}" for key, value in self.keywords)]
        # the name ends in two underscores in some, which a class would mangle: the kernel is a plain function
        return [
            f"import {self.module} as api{index}",
            *(["@triton_dist.jit"] if self.function.place is not Place.HOST else []),
            f"def body{index}({', '.join(f'value{one}' for one in range(9))}):",
            f"    return api{index}.{name or self.function.name}({', '.join(words)})",
        ]


Expected = Callable[[Call], set[Rule]]


def check(calls: Sequence[Call], expected: Expected, name: Callable[[Call], str] = lambda call: "") -> None:
    """That `CALL_RULES` answer to each call as `expected`: one file for all calls of a vendor."""
    for vendor in Vendor:
        lines = ["import triton_dist", "from triton_dist.language.extra import libshmem_device"]
        by_line = {}
        for index, call in enumerate(one for one in calls if one.vendor is vendor):
            lines += call.lines(index, name(call))
            by_line[len(lines)] = call
        findings = check_source("\n".join(lines) + "\n", vendor=vendor).findings if by_line else ()
        for line, call in by_line.items():
            found = {one.rule for one in findings if one.line == line} & CALL_RULES
            assert found == expected(call), (call, lines[line - 1])


def _legal(parameter: Parameter, vendor: Vendor, index: int) -> st.SearchStrategy[str]:
    match parameter.type:
        case Choice() as choice if choice.legal(vendor):
            return st.sampled_from([repr(value) for value in choice.legal(vendor)])
        case Symbol() as symbol if constants_of(symbol, vendor):
            names = [constant.name for constant in constants_of(symbol, vendor)]
            return st.sampled_from([f"libshmem_device.{name}" for name in names])
        case _:
            return st.just(f"value{index}")


KNOWN = [one for one in FUNCTIONS if isinstance(one.signature, Exact)]


@st.composite
def calls(draw: st.DrawFn, functions: Sequence[Function] = KNOWN) -> Call:
    """A legal call of one of `functions`, whose parameters are known, on a vendor that has it."""
    function = draw(st.sampled_from(functions))
    vendor = draw(st.sampled_from(function.vendors))
    module = draw(st.sampled_from([path for path in function.import_paths if offered_on(path, vendor)]))
    shape = function.signature_on(vendor)
    parameters = shape.parameters if isinstance(shape, Exact) else ()
    cut = draw(st.integers(0, len(parameters)))
    values = [draw(_legal(parameter, vendor, index)) for index, parameter in enumerate(parameters)]
    rest = [
        (parameter.name, value)
        for parameter, value in zip(parameters[cut:], values[cut:], strict=True)
        if parameter.required or parameter.name == "comm_scope" or draw(st.booleans())
    ]
    return Call(function, vendor, module, tuple(values[:cut]), tuple(draw(st.permutations(rest))))


def batches(functions: Sequence[Function] = KNOWN) -> st.SearchStrategy[list[Call]]:
    """Calls enough that few files hold many of them."""
    return st.lists(calls(functions), min_size=25, max_size=40)


FEW = settings(max_examples=3, deadline=None)


def is_exact(call: Call) -> bool:
    return isinstance(call.function.signature_on(call.vendor), Exact)


@FEW
@given(batches())
def test_a_legal_call_passes(batch: list[Call]) -> None:
    check(batch, lambda call: set())


@FEW
@given(batches())
def test_one_argument_too_many(batch: list[Call]) -> None:
    changed = []
    for call in filter(is_exact, batch):
        longer = ("value0",) * (len(call.parameters) + 1)
        changed.append(replace(call, positional=longer, keywords=()))
    check(changed, lambda call: {Rule.TOO_MANY_ARGUMENTS})


@FEW
@given(batches(), st.data())
def test_a_missing_argument(batch: list[Call], data: st.DataObject) -> None:
    changed = []
    for call in batch:
        required = [parameter.name for parameter in call.parameters if parameter.required]
        gone = data.draw(st.sampled_from(required)) if required else ""
        keep = tuple((name, "value0") for name in required if name != gone)
        if required:
            changed.append(replace(call, positional=(), keywords=(*keep, *_scope(call))))
    check(changed, lambda call: {Rule.MISSING_ARGUMENT})


def _scope(call: Call) -> tuple[tuple[str, str], ...]:
    return (("comm_scope", "'gpu'"),) if call.function.name == "notify" else ()


@FEW
@given(batches())
def test_an_unknown_keyword(batch: list[Call]) -> None:
    changed = [replace(one, keywords=(*one.keywords, ("nothing_of_this", "1"))) for one in filter(is_exact, batch)]
    check(changed, lambda call: {Rule.UNKNOWN_KEYWORD})


@FEW
@given(batches())
def test_an_argument_given_twice(batch: list[Call]) -> None:
    twice = [
        replace(one, keywords=(*one.keywords, (one.parameters[0].name, "value0"))) for one in batch if one.positional
    ]
    check(twice, lambda call: {Rule.DUPLICATE_ARGUMENT})


TYPED = [
    one
    for one in KNOWN
    if isinstance(one.signature, Exact) and any(isinstance(p.type, Choice | Symbol) for p in one.signature.parameters)
]


@FEW
@given(batches(TYPED), st.data())
def test_a_wrong_constant(batch: list[Call], data: st.DataObject) -> None:
    """Each Choice and Symbol in turn gets a text that is legal nowhere, or a number."""
    changed, expected = [], {}
    for call in batch:
        typed = [
            p
            for p in call.parameters
            if isinstance(p.type, Symbol) or (isinstance(p.type, Choice) and p.type.legal(call.vendor))
        ]
        if not typed:
            continue
        target = data.draw(st.sampled_from(typed))
        values = {p.name: "value0" for p in call.parameters if p.required} | dict(_scope(call))
        values[target.name] = data.draw(st.sampled_from(["'everywhere'", "9"]))
        number = isinstance(target.type, Symbol) and values[target.name] == "9"
        changed.append(replace(call, positional=(), keywords=tuple(values.items())))
        expected[changed[-1]] = {Rule.LITERAL_CONSTANT if number else Rule.WRONG_CONSTANT}
    check(changed, expected.__getitem__)


@FEW
@given(batches())
def test_a_misspelt_name(batch: list[Call]) -> None:
    def expected(call: Call) -> set[Rule]:
        home = module(call.module)
        return {Rule.UNKNOWN_NAME} if home is not None and home.complete else set()

    check(batch, expected, lambda call: call.function.name + "_of_no_module")


@FEW
@given(batches([one for one in KNOWN if len(one.vendors) < len(Vendor)]), st.data())
def test_a_function_of_another_vendor(batch: list[Call], data: st.DataObject) -> None:
    changed = []
    for call in batch:
        home, having = call.function.module, call.function.vendors
        without = [one for one in Vendor if one not in having and offered_on(home, one)]
        if without:
            changed.append(replace(call, vendor=data.draw(st.sampled_from(without)), module=home))
    check(changed, lambda call: {Rule.NOTIFY_ON_AMD if call.function.name == "notify" else Rule.NOT_ON_VENDOR})
