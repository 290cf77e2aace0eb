"""One edit of a good descriptor a case: each is refused with the key and what is legal."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

import pytest

import topologies
from topologies import MalformedDescriptor

if TYPE_CHECKING:
    from pathlib import Path

GOOD = (resources.files("topologies") / "h800-2-nodes.toml").read_text(encoding="utf-8")


def fault(tmp_path: Path, text: str) -> dict[str, object]:
    """The facts of the error that `text` meets."""
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(MalformedDescriptor) as caught:
        topologies.load(str(path))
    assert caught.value.facts["file"] == str(path)
    assert caught.value.facts["legal"]
    return caught.value.facts


def edited(old: str, new: str) -> str:
    """The good descriptor with the first line that starts with `old` replaced by `new`."""
    lines = GOOD.splitlines()
    [index, *_] = [i for i, line in enumerate(lines) if line.startswith(old)]
    lines[index] = new
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("old", "new", "where", "words"),
    [
        # unknown and missing keys
        ("num_sms", "num_sm = 132", "key gpu.num_sm", "unknown key"),
        ("multicast", "multi_cast = true", "key levels[0].multi_cast", "unknown key"),
        ("push_sms", "push = [[1, 2]]", "key push", "unknown key"),
        ("bf16", "bf61 = 989", "key gpu.dense_tflops.bf61", "unknown key"),
        ("num_sms", "", "key gpu.num_sms", "missing"),
        ("size = 2", "", "key levels.infiniband.size", "missing"),
        ("pull_sms", "", "key pull_sms", "missing"),
        ("name", "", "key name", "missing"),
        # wrong types
        ("num_sms", "num_sms = 132.0", "key gpu.num_sms", "wrong type"),
        ("num_sms", "num_sms = true", "key gpu.num_sms", "true has the wrong type"),
        ("num_sms", 'num_sms = "132"', "key gpu.num_sms", '"132" has the wrong type'),
        ("memory_gb_per_s", "memory_gb_per_s = 2026-11-01", "key gpu.memory_gb_per_s", "2026-11-01 has the"),
        ("multicast", "multicast = 1", "key levels.nvswitch.multicast", "wrong type"),
        ("name", "name = 3", "key name", "wrong type"),
        ("name", 'name = " "', "key name", "empty"),
        ("push_sms", "push_sms = 32", "key push_sms", "wrong type"),
        ("name", 'name = "x"\ndevice_names = [3]', "key device_names", "wrong type"),
        # numbers out of range
        ("num_sms", "num_sms = 0", "key gpu.num_sms", "below 1"),
        ("size = 8", "size = 1", "key levels.nvswitch.size", "below 2"),
        ("gb_per_s", "gb_per_s = -1.0", "key levels.nvswitch.gb_per_s", "not positive"),
        ("signal_us", "signal_us = 0", "key levels.nvswitch.signal_us", "not positive"),
        ("signal_us", "signal_us = nan", "key levels.nvswitch.signal_us", "not positive"),
        ("signal_us", "signal_us = inf", "key levels.nvswitch.signal_us", "not positive"),
        ("signal_us", "signal_us = 1" + "0" * 400, "key levels.nvswitch.signal_us", "not positive"),
        ("gemm_efficiency", "gemm_efficiency = 1.1", "key gpu.gemm_efficiency", "beat the dense peak"),
        ("bf16", "bf16 = 0", "key gpu.dense_tflops.bf16", "not positive"),
        # words that are not legal
        ("vendor", 'vendor = "nvida"', "key gpu.vendor", "not one of them"),
        ("fabric", 'fabric = "fullmesh"', "key levels.nvswitch.fabric", "not one of them"),
        ("arch", 'arch = "gfx942"', "key gpu.arch", "no architecture of nvidia"),
        ("name = \"nvswitch\"", 'name = "a.b"', "key levels[0].name", "cannot name a level"),
        ("name = \"nvswitch\"", 'name = "infiniband"', "key levels", "two levels"),
        ('fabric = "network"', 'fabric = "switch"\n[[levels]]\nname = "x"', "key levels.infiniband.size", ""),
        # ramps
        ("push_sms", "push_sms = []", "key push_sms", "empty"),
        ("push_sms", "push_sms = [[1, 2], [1, 3]]", "key push_sms", "not greater"),
        ("push_sms", "push_sms = [[2, 2], [1, 3]]", "key push_sms", "[1, 3] is not greater than"),
        ("push_sms", "push_sms = [[1, 2, 3]]", "key push_sms", "not a point"),
        ("push_sms", "push_sms = [1, 2]", "key push_sms", "not a point"),
        ("push_sms", "push_sms = [[1, true]]", "key push_sms", "[1, true] is not a point"),
        ("push_sms", "push_sms = [[0, 2]]", "key push_sms", "not a point"),
        ("push_sms", "push_sms = [[1, nan]]", "key push_sms", "not a point"),
        ("push_sms", "push_sms = [[1, 32], [133, 300]]", "key push_sms", "133 SMs"),
        # provenance
        ('"gpu.num_sms"', "", "key gpu.num_sms", "no provenance"),
        ('"gpu.dense_tflops"', '"gpu.dense_tflops.bf16" = "datasheet"', "key gpu.dense_tflops.fp16", "no "),
        ('"push_sms"', "", "key push_sms", "no provenance"),
        ('"gpu.num_sms"', '"gpu.num_sm" = "datasheet"', 'key provenance."gpu.num_sm"', "no number"),
        ('"gpu.num_sms"', '"gpu.num_sms" = "a guess"', 'key provenance."gpu.num_sms"', "is no provenance"),
        ('"gpu.num_sms"', '"gpu.num_sms" = "measured"', 'key provenance."gpu.num_sms"', "is no provenance"),
        ('"gpu.num_sms"', '"gpu.num_sms" = "estimate:"', 'key provenance."gpu.num_sms"', "is no provenance"),
        ('"gpu.num_sms"', '"gpu.num_sms" = "datasheets"', 'key provenance."gpu.num_sms"', "is no provenance"),
        ('"gpu.num_sms"', '"gpu.num_sms" = 3', 'key provenance."gpu.num_sms"', "3 is no provenance"),
    ],
)  # fmt: skip
def test_malformed(tmp_path: Path, old: str, new: str, where: str, words: str) -> None:
    facts = fault(tmp_path, edited(old, new))
    assert facts["where"] == where
    assert words in str(facts["reason"])


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("name = \n", "line 1, column 8"),
        ("name = 'a'\n[gpu\n", "line 2, column 5"),
        ("name = 'a'\nname = 'b'\n", "line 2, column 11"),
        ("name = 'a", "end of document"),
        ("name = " + "1" * 5000, "as a whole"),
        ("name = " + "[" * 100_000, "as a whole"),
    ],
)
def test_not_toml(tmp_path: Path, text: str, where: str) -> None:
    facts = fault(tmp_path, text)
    assert "not TOML" in str(facts["reason"])
    assert facts["where"] == where


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "key levels"),
        ("levels = 3", "key levels"),
        ("levels = []", "key levels"),
        ("levels = [3]", "key levels"),
        ("levels = [{}]", "key levels[0].name"),
    ],
)
def test_no_levels(tmp_path: Path, text: str, where: str) -> None:
    assert fault(tmp_path, text)["where"] == where


def test_no_dtype(tmp_path: Path) -> None:
    head, rest = GOOD.split("[gpu.dense_tflops]")
    text = f"{head}[gpu.dense_tflops]\n[[levels]]{rest.split('[[levels]]', 1)[1]}"
    assert fault(tmp_path, text)["where"] == "key gpu.dense_tflops"


def test_network_inside_a_node(tmp_path: Path) -> None:
    text = edited('fabric = "switch"', 'fabric = "network"').replace(
        'name = "infiniband"\nfabric = "network"', 'name = "infiniband"\nfabric = "switch"'
    )
    facts = fault(tmp_path, text)
    assert facts["where"] == "key levels"
    assert "infiniband (switch) lies outside the network nvswitch" in str(facts["reason"])


def test_hints(tmp_path: Path) -> None:
    assert "Did you mean 'num_sms'?" in str(fault(tmp_path, edited("num_sms", "num_sm = 1"))["legal"])
    assert "Did you mean 'full mesh'?" in str(fault(tmp_path, edited("fabric", 'fabric = "fullmesh"'))["legal"])
    assert "Did you mean 'gpu.num_sms'?" in str(
        fault(tmp_path, edited('"gpu.num_sms"', '"gpu.num_sm" = "datasheet"'))["legal"]
    )


@pytest.mark.parametrize(
    "line",
    [
        '"gpu.num_sms" = "estimate"',
        '"gpu.num_sms" = "estimate: counted the dies"',
        '"gpu.num_sms" = "measured 2026-11 4xH800"',
        '"gpu" = "datasheet"',
        'gpu.num_sms = "datasheet"',
    ],
)
def test_legal_provenance(tmp_path: Path, line: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(edited('"gpu.num_sms"', line), encoding="utf-8")
    origins = dict(topologies.load(str(path)).provenance)
    assert f'"{origins["gpu.num_sms"]}"' in line
    assert origins["gpu.kernel_launch_us"].startswith("estimate: ")  # the nearer key wins over "gpu"
