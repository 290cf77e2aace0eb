"""docs/primitives.md is what the code says, and each row of it holds."""

from __future__ import annotations

import re

import pytest

from tests.docs import primitive_facts as facts
from tests.docs.primitive_page import page
from tests.docs.primitives import CUDA, PRIMITIVES, PUSH_SMS, Code, Primitive
from tilelink.dialect_api import find
from tilelink.schedule import memory, roles, steps

PAGE = facts.ROOT / "docs" / "primitives.md"
NAME = re.compile(r"`([A-Z]\w+)(?:\.(\w+))?`")
NAMES = (
    "my_pe n_pes int_p remote_ptr barrier_all sync_all quiet fence getmem getmem_nbi putmem putmem_nbi putmem_signal "
    "putmem_signal_nbi signal_op signal_wait_until broadcast wait consume_token notify atomic_cas atomic_add ld_acquire "
    "red_release multimem_ld_reduce multimem_st"
)


@pytest.mark.slow
def test_the_page_is_that_of_the_code(request: pytest.FixtureRequest) -> None:
    wanted = page()
    if request.config.getoption("--update-golden"):
        PAGE.write_text(wanted, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == wanted, "out of date: pytest --update-golden, then read the diff"


def test_every_primitive_has_a_row() -> None:
    assert [one.name for one in PRIMITIVES] == NAMES.split()


def test_steps_of_the_schedule_exist() -> None:
    known = {**vars(memory), **vars(roles), **vars(steps)}
    for primitive in PRIMITIVES:
        for name, member in NAME.findall(primitive.schedule):
            assert name in known, f"{name}, {primitive.name}"
            assert not member or hasattr(known[name], member), f"{name}.{member}, {primitive.name}"


def test_a_test_runs_each_on_emulated_ranks() -> None:
    assert [one.name for one in PRIMITIVES if not facts.runs_it(one)] == []


def test_each_is_compiled() -> None:
    assert [one.name for one in PRIMITIVES if not facts.tests_of(one, facts.COMPILED)] == []


def test_a_check_on_gpus_runs_each_or_it_says_why_not() -> None:
    assert [one.name for one in PRIMITIVES if bool(facts.checks_of(one)) == bool(one.not_on_gpus)] == []


def test_each_is_in_the_api_the_shim_and_the_emulator() -> None:
    for primitive in PRIMITIVES:
        assert all(find(one.path) is one for one in facts.functions(primitive))
        assert facts.said(facts.shimmed(primitive)) and facts.said(facts.emulated(primitive)), primitive.name


def test_what_no_schedule_has_says_why() -> None:
    nowhere = [one for one in PRIMITIVES if not one.triton and not one.distributed]
    assert [one.name for one in nowhere if not one.schedule.startswith("None")] == ["broadcast"]


def test_what_is_named_wrongly_is_found() -> None:
    """The checks above can fail."""
    with pytest.raises(LookupError, match=r"no dl\.nothing"):
        facts.spelled((Code(PUSH_SMS, "notify", "dl.nothing"),), "triton-distributed")
    with pytest.raises(LookupError, match="no test_nothing"):
        facts.kernels_of_test("tests/compat/triton_dist/test_emulated.py", "test_nothing")
    absent = Primitive("laneid", CUDA, "", (), (), "tests/compat/triton_dist/test_emulated.py::test_libshmem")
    assert not facts.runs_it(absent)
    assert facts.checks_of(absent) == ["threads"]
    assert facts.tests_of(absent, facts.COMPILED) == ["test_vectors_and_threads"]
