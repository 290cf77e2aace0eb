"""What is known of a workload, and its page."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.report.pages import Reader, facts_of_workload, page_of_workload
from tilelink.report.facts import Facts


@pytest.fixture
def facts() -> Callable[[str], Facts]:
    """`facts("gemm_rs")`: of one of `WORKLOADS`."""
    return facts_of_workload


@pytest.fixture
def shown() -> Callable[[str], Reader]:
    """`shown("gemm_rs")`: its page, read."""
    return lambda name: Reader.of(page_of_workload(name))
