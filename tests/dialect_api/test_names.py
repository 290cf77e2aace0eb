"""Names: those of the public repository exist, likeness proves nothing, and each of several in one statement is judged."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dialect_api.checked import without_types
from tilelink.dialect_api import Rule, Vendor, check_source
from tilelink.dialect_api.functions import MODULES, module, names_of


def rules(text: str) -> list[Rule]:
    return [found.rule for found in without_types(text).findings]


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        ("triton_dist.kernels.common_ops", "globaltimer_lo"),
        ("triton_dist.kernels.nvidia.common_ops", "cooperative_barrier_on_this_grid"),
        ("triton_dist.kernels.nvidia.common_ops", "nvshmem_barrier_all_on_stream"),  # that it imports itself
        ("triton_dist.utils", "MORI_SHMEM_SIGNAL_DTYPE"),
        ("triton_dist.utils", "mori_shmem_create_tensor"),
        ("triton_dist.utils", "nvshmem_free_lazy_tensor"),
        ("triton_dist.utils", "requires_p2p_native_atomic"),
        ("triton_dist.utils", "rocshmem_barrier_all_on_stream"),
        ("triton_dist.language.smem_ops", "__name__"),
        ("triton_dist.layers", "nvidia"),
    ],
)
def test_names_of_the_public_repository_exist(owner: str, name: str) -> None:
    assert rules(f"from {owner} import {name}\n") == []
    assert rules(f"import {owner} as it\nit.{name}\n") == []


def test_every_listed_name_can_be_imported() -> None:
    for path, listed in ((one.path, one) for one in MODULES):
        if listed.names and not path.startswith(("triton_dist.language.extra", "pyrocshmem")):
            assert rules(f"from {path} import {', '.join(listed.names)}\n") == [], path


@pytest.mark.parametrize(
    "text",
    [
        "from triton_dist.kernels.nvidia.gemm import matmul_persistent_x\n",
        "import triton_dist.kernels.nvidia.comon_ops\n",  # as many kernels, so many modules may come
        "import triton_dist.layers.moe\n",
    ],
)
def test_likeness_proves_nothing_where_the_list_may_have_gaps(text: str) -> None:
    report = without_types(text)
    assert [found.rule for found in report.findings] == [Rule.UNLISTED_NAME]
    assert not report.refuted


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([one.path for one in MODULES if Vendor.NVIDIA in one.vendors]), st.data())
def test_only_a_whole_list_makes_a_mistake(path: str, data: st.DataObject) -> None:
    name = data.draw(st.from_regex(r"[a-z]{3,12}_x", fullmatch=True).filter(lambda one: one not in names_of(path)))
    known = module(path)
    assert known is not None
    wanted = Rule.UNKNOWN_NAME if known.complete else Rule.UNLISTED_NAME
    assert rules(f"from {path} import {name}\n") == [wanted]


def test_names_that_are_imported_together_are_separate_places() -> None:
    report = without_types("from triton_dist.language import (\n    wiat,\n    notfy, notify, rnk\n)\n")
    places = [(found.line, found.column, re.findall(r"'(\w+)'", found.message)[0]) for found in report.findings]
    assert places == [(2, 5, "wiat"), (3, 5, "notfy"), (3, 20, "rnk")]


def test_arguments_that_one_call_lacks_are_separate_findings() -> None:
    text = "import triton_dist\nimport triton_dist.language as dl\n\n@triton_dist.jit\ndef kernel(x):\n    dl.wait(x)\n"
    found = [one.about for one in check_source(text).findings if one.rule is Rule.MISSING_ARGUMENT]
    assert found == ["numBarriers", "scope", "semantic"]


def test_an_import_that_is_chosen_is_of_no_vendor() -> None:
    portable = "from triton_dist.language.extra.{}.language_extra import tid\n"
    both = portable.format("hip") + portable.format("cuda")
    assert rules(both) == [Rule.NOT_ON_VENDOR]
    assert rules(f"if amd:\n    {portable.format('hip')}else:\n    {portable.format('cuda')}") == []


def test_constants_of_a_library_tell_the_vendor() -> None:
    text = "from triton_dist.language.extra import libshmem_device as shmem\n\nvalue = shmem.MORI_SIGNAL_SET\n"
    assert without_types(text).vendor is Vendor.MORI
