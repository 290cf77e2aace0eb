"""Random calls made from the API data pass; each mutation of arity, keyword, constant or name is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tilelink.dialect_api import FUNCTIONS, Function, Rule, Vendor, check_source
from tilelink.dialect_api.functions import constants_of, module, offered_on
from tilelink.dialect_api.model import Choice, Exact, Parameter, Place, Symbol

CALL_RULES = {
    Rule.UNKNOWN_MODULE,
    Rule.UNKNOWN_NAME,
    Rule.UNLISTED_NAME,
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

    def found(self, name: str = "") -> set[Rule]:
        """Rules of `CALL_RULES` that answer to a file with this call; `name` instead of the function's."""
        words = [*self.positional, *(f"{key}={value}" for key, value in self.keywords)]
        # the name ends in two underscores in some, which a class would mangle: the kernel is a plain function
        call = f"api.{name or self.function.name}({', '.join(words)})"
        device = self.function.place is not Place.HOST
        values = [f"value{index}" for index in range(9)]
        text = "\n".join(
            (
                "import triton_dist",
                f"import {self.module} as api",
                "from triton_dist.language.extra import libshmem_device",
                "@triton_dist.jit" if device else "",
                f"def body({', '.join(values)}):",
                f"    return {call}",
            )
        )
        report = check_source(text + "\n", vendor=self.vendor)
        return {finding.rule for finding in report.findings} & CALL_RULES


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


@settings(max_examples=100)
@given(calls())
def test_a_legal_call_passes(call: Call) -> None:
    assert call.found() == set()


@settings(max_examples=50)
@given(calls())
def test_one_argument_too_many(call: Call) -> None:
    assume(isinstance(call.function.signature_on(call.vendor), Exact))
    every = tuple(value for value in (*call.positional, *(value for _, value in call.keywords)))
    longer = (*every, *("value0",) * (len(call.parameters) - len(every) + 1))
    changed = Call(call.function, call.vendor, call.module, longer, ())
    assert Rule.TOO_MANY_ARGUMENTS in changed.found()


@settings(max_examples=50)
@given(calls(), st.data())
def test_a_missing_argument(call: Call, data: st.DataObject) -> None:
    required = [index for index, parameter in enumerate(call.parameters) if parameter.required]
    assume(required)
    gone = data.draw(st.sampled_from(required))
    keep = [(p.name, "value0") for index, p in enumerate(call.parameters) if p.required and index != gone]
    assert Rule.MISSING_ARGUMENT in Call(call.function, call.vendor, call.module, (), tuple(keep)).found()


@settings(max_examples=50)
@given(calls())
def test_an_unknown_keyword(call: Call) -> None:
    assume(isinstance(call.function.signature_on(call.vendor), Exact))
    changed = Call(call.function, call.vendor, call.module, call.positional, (*call.keywords, ("nothing_of_this", "1")))
    assert changed.found() == {Rule.UNKNOWN_KEYWORD}


@settings(max_examples=50)
@given(calls())
def test_an_argument_given_twice(call: Call) -> None:
    assume(call.positional)
    again = (call.parameters[0].name, "value0")
    changed = Call(call.function, call.vendor, call.module, call.positional, (*call.keywords, again))
    assert changed.found() == {Rule.DUPLICATE_ARGUMENT}


TYPED = [
    one
    for one in KNOWN
    if isinstance(one.signature, Exact) and any(isinstance(p.type, Choice | Symbol) for p in one.signature.parameters)
]


@settings(max_examples=50)
@given(calls(TYPED), st.data())
def test_a_wrong_constant(call: Call, data: st.DataObject) -> None:
    """Each Choice and Symbol in turn gets a text that is legal nowhere, or a number."""
    typed = [
        p
        for p in call.parameters
        if isinstance(p.type, Symbol) or (isinstance(p.type, Choice) and p.type.legal(call.vendor))
    ]
    assume(typed)
    target = data.draw(st.sampled_from(typed))
    values = {p.name: "value0" for p in call.parameters if p.required or p.name == "comm_scope"}
    values[target.name] = data.draw(st.sampled_from(["'everywhere'", "9"]))
    if values.get("comm_scope") == "value0":
        values["comm_scope"] = "'gpu'"
    number = isinstance(target.type, Symbol) and values[target.name] == "9"
    expected = Rule.LITERAL_CONSTANT if number else Rule.WRONG_CONSTANT
    assert Call(call.function, call.vendor, call.module, (), tuple(values.items())).found() == {expected}


@settings(max_examples=50)
@given(calls())
def test_a_misspelt_name(call: Call) -> None:
    wrong = call.function.name + "x"
    assume(all(function.name != wrong for function in FUNCTIONS))
    home = module(call.module)
    assert home is not None
    assert call.found(wrong) == {Rule.UNKNOWN_NAME if home.complete else Rule.UNLISTED_NAME}


@settings(max_examples=50)
@given(calls([one for one in KNOWN if len(one.vendors) < len(Vendor)]), st.data())
def test_a_function_of_another_vendor(call: Call, data: st.DataObject) -> None:
    function = call.function
    without = [vendor for vendor in Vendor if vendor not in function.vendors and offered_on(function.module, vendor)]
    assume(without)
    changed = Call(function, data.draw(st.sampled_from(without)), function.module, call.positional, call.keywords)
    expected = Rule.NOTIFY_ON_AMD if function.name == "notify" else Rule.NOT_ON_VENDOR
    assert expected in changed.found()
