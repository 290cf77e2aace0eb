"""Names: those of the public repository exist, likeness proves nothing, and each of several in one statement is judged."""

from __future__ import annotations

import re

import pytest

from tests.dialect_api.checked import without_types
from tilelink.dialect_api import Rule, Vendor, check_source
from tilelink.stubs.functions import MODULES, module, names_of, offered_on


def rules(text: str) -> list[Rule]:
    return [found.rule for found in check_source(text).findings]


def on_nvidia(lines: list[str]) -> list[tuple[int, Rule]]:
    """Numbers of the lines with findings, from 0."""
    return [(found.line - 1, found.rule) for found in check_source("\n".join(lines), vendor=Vendor.NVIDIA).findings]


def test_names_of_the_public_repository_exist() -> None:
    names = [
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
    ]
    assert on_nvidia([f"from {owner} import {name}" for owner, name in names]) == []
    assert on_nvidia([f"import {owner} as it{at}; it{at}.{name}" for at, (owner, name) in enumerate(names)]) == []


def test_every_listed_name_can_be_imported() -> None:
    """Of another vendor are those of SHMEM and of `pyrocshmem`."""
    listed = [one for one in MODULES if one.names and offered_on(one.path, Vendor.NVIDIA)]
    listed = [one for one in listed if not one.path.startswith(("triton_dist.language.extra", "pyrocshmem"))]
    lines = [f"from {one.path} import {', '.join(one.names)}" for one in listed]
    assert len(lines) > 10 and [lines[at] for at, _ in on_nvidia(lines)] == []


@pytest.mark.parametrize(
    "text",
    [
        "from triton_dist.kernels.nvidia.gemm import matmul_persistent_x\n",
        "import triton_dist.kernels.nvidia.comon_ops\n",  # as many kernels, so many modules may come
        "import triton_dist.layers.moe\n",
        "from triton_dist import layers\nlayers.moe\n",
    ],
)
def test_likeness_proves_nothing_where_the_list_may_have_gaps(text: str) -> None:
    assert rules(text) == []


def test_only_a_whole_list_makes_a_mistake() -> None:
    """One name that no module has, imported from each, and looked up in each."""
    paths = [one.path for one in MODULES if offered_on(one.path, Vendor.NVIDIA) and one.path != "triton_dist.jit"]
    assert not any("no_such_name" in names_of(path) for path in paths)
    whole = [at for at, path in enumerate(paths) for known in [module(path)] if known is not None and known.complete]
    wanted = [(at, Rule.UNKNOWN_NAME) for at in whole]
    assert on_nvidia([f"from {path} import no_such_name" for path in paths]) == wanted
    assert on_nvidia([f"import {path} as m{at}; m{at}.no_such_name" for at, path in enumerate(paths)]) == wanted
    assert 20 < len(whole) < len(paths)


def test_names_that_are_imported_together_are_separate_places() -> None:
    report = check_source("from triton_dist.language import (\n    wiat,\n    notfy, notify, rnk\n)\n")
    places = [(one.line, one.column, re.findall(r'attribute "(\w+)"', one.message)[0]) for one in report.findings]
    assert places == [(2, 5, "wiat"), (3, 5, "notfy"), (3, 20, "rnk")]


def test_a_name_in_an_annotation() -> None:
    text = "import triton_dist.language as dl\n\n\ndef f(x: dl.Nothing) -> None: ...\n"
    assert [(one.rule, one.line) for one in check_source(text).findings] == [(Rule.UNKNOWN_NAME, 4)]


def test_arguments_that_one_call_lacks_are_named() -> None:
    text = "import triton_dist\nimport triton_dist.language as dl\n\n@triton_dist.jit\ndef kernel(x):\n    dl.wait(x)\n"
    (found,) = (one for one in check_source(text).findings if one.rule is Rule.MISSING_ARGUMENT)
    assert all(f'"{name}"' in found.message for name in ("numBarriers", "scope", "semantic"))
    assert found.legal == ("wait(barrierPtrs, numBarriers, scope, semantic, waitValue=1) -> int32 token",)


def test_an_import_that_is_chosen_is_of_no_vendor() -> None:
    portable = "from triton_dist.language.extra.{}.language_extra import tid\n"
    both = portable.format("hip") + portable.format("cuda")
    assert rules(both) == [Rule.NOT_ON_VENDOR]
    assert rules(f"if amd:\n    {portable.format('hip')}else:\n    {portable.format('cuda')}") == []
    name = "from triton_dist.language import notify\n"
    assert [one.rule for one in check_source(name, vendor=Vendor.MORI).findings] == [Rule.NOTIFY_ON_AMD]
    assert check_source(f"def host():\n    {name}", vendor=Vendor.MORI).findings == ()


def test_constants_of_a_library_tell_the_vendor() -> None:
    text = "from triton_dist.language.extra import libshmem_device as shmem\n\nvalue = shmem.MORI_SIGNAL_SET\n"
    assert without_types(text).vendor is Vendor.MORI


def test_a_constant_of_another_vendor_names_those_of_the_own() -> None:
    text = "from triton_dist.language.extra.libshmem_device import NVSHMEM_SIGNAL_SET\n"
    (found,) = check_source(text, vendor=Vendor.MORI).findings
    assert (found.rule, found.legal) == (Rule.NOT_ON_VENDOR, ("MORI_SIGNAL_SET", "MORI_SIGNAL_ADD"))
