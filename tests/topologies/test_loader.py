"""Names, paths and numbers of ranks."""

from __future__ import annotations

import math
from importlib import resources
from typing import TYPE_CHECKING

import pytest

import topologies
from topologies import IllegalNodes, IllegalRanks, UnknownTopology, UnreadableDescriptor, numbers

if TYPE_CHECKING:
    from pathlib import Path

H200 = (resources.files("topologies") / "h200-nvswitch.toml").read_text(encoding="utf-8")


def deeper(tmp_path: Path, *sizes: int) -> str:
    """The path of H200 with a network level of each size around its switch."""
    text, provenance = H200.split("[provenance]")
    for i, size in enumerate(sizes):
        text += f'[[levels]]\nname = "net{i}"\nfabric = "network"\nsize = {size}\ngb_per_s = 45\n'
        text += "signal_us = 6.0\nmulticast = false\npeer_atomics = false\n"
        provenance += f'"levels.net{i}" = "estimate"\n'
    path = tmp_path / "deep.toml"
    path.write_text(f"{text}[provenance]{provenance}", encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", ["h200-nvswich", "H200-NVSwitch", "h200_nvswitch"])
def test_unknown_topology(name: str) -> None:
    with pytest.raises(UnknownTopology) as caught:
        topologies.load(name)
    assert caught.value.facts["name"] == name
    assert caught.value.facts["hint"] == " Did you mean 'h200-nvswitch'?"
    assert "mi300x-full-mesh" in str(caught.value)


def test_unknown_topology_that_is_like_no_other() -> None:
    with pytest.raises(UnknownTopology) as caught:
        topologies.load("")
    assert caught.value.facts["hint"] == ""


def test_load_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text(H200, encoding="utf-8")
    (tmp_path / "mine").write_text(H200, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    expected = topologies.load("h200-nvswitch", 4)
    for path in ("mine.toml", "./mine", str(tmp_path / "mine.toml")):
        assert topologies.load(path, num_ranks=4) == expected


@pytest.mark.parametrize("path", ["nowhere/mine.toml", "h200-nvswitch.toml", "./", "a\0b.toml"])
def test_unreadable_descriptor(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnreadableDescriptor) as caught:
        topologies.load(path)
    assert caught.value.facts["file"] == path
    assert caught.value.facts["reason"]


def test_descriptor_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"name = \xff")
    with pytest.raises(UnreadableDescriptor, match="byte 7 is not UTF-8"):
        topologies.load(str(path))


@pytest.mark.parametrize(
    ("name", "num_ranks", "sizes"),
    [
        ("h200-nvswitch", 2, [2]),
        ("h200-nvswitch", 5, [5]),
        ("mi300x-full-mesh", 8, [8]),
        ("l20-pcie", 3, [3]),
        ("l20-pcie", 4, [4]),
        ("l20-pcie", 8, [4, 2]),
        ("h800-2-nodes", 2, [2]),
        ("h800-2-nodes", 8, [8]),
        ("h800-2-nodes", 16, [8, 2]),
    ],
)
def test_levels_are_cut_to_the_ranks(name: str, num_ranks: int, sizes: list[int]) -> None:
    topology = topologies.load(name, num_ranks)
    assert topology.num_ranks == num_ranks
    assert [level.size for level in topology.levels] == sizes
    outer = topology.levels[-1].name
    assert topology.level_between(0, num_ranks - 1).name == outer


@pytest.mark.parametrize(
    ("name", "num_ranks", "legal"),
    [
        ("h200-nvswitch", 1, "2 to 8"),
        ("h200-nvswitch", 0, "2 to 8"),
        ("h200-nvswitch", -2, "2 to 8"),
        ("h200-nvswitch", 9, "2 to 8"),
        ("h200-nvswitch", True, "2 to 8"),
        ("h200-nvswitch", 4.0, "2 to 8"),
        ("l20-pcie", 6, "2 to 4, 8"),
        ("h800-2-nodes", 12, "2 to 8, 16"),
        ("h800-2-nodes", 24, "2 to 8, 16"),
    ],
)
def test_illegal_ranks(name: str, num_ranks: int, legal: str) -> None:
    with pytest.raises(IllegalRanks) as caught:
        topologies.load(name, num_ranks)
    facts = caught.value.facts
    assert (facts["topology"], facts["num_ranks"], facts["legal"]) == (name, num_ranks, legal)
    assert facts["reason"]


def test_one_rank_says_why() -> None:
    with pytest.raises(IllegalRanks, match="no peer"):
        topologies.load("h200-nvswitch", 1)


def test_ranks_of_three_levels(tmp_path: Path) -> None:
    path = deeper(tmp_path, 32, 4)
    assert topologies.load(path).num_ranks == 1024
    assert [level.size for level in topologies.load(path, 64).levels] == [8, 8]
    assert [level.size for level in topologies.load(path, 768).levels] == [8, 32, 3]
    assert topologies.load(path, 768).num_nodes == 96
    with pytest.raises(IllegalRanks) as caught:
        topologies.load(path, 264)
    assert caught.value.facts["legal"] == (
        "2 to 8, 16, 24, 32, 40, 48, 56, 64, 72 and so on by 8 to 256, 512, 768, 1024"
    )


def test_large_fabric_is_drawn_in_part(tmp_path: Path) -> None:
    text = topologies.show(topologies.load(deeper(tmp_path, 32, 4)))
    assert "32 of 1024 ranks are drawn" in text
    assert " 263" in text.splitlines()[2]


@pytest.mark.parametrize(("ranks", "nodes", "sizes"), [(8, 2, [4, 2]), (None, 2, [8, 2]), (3, 3, [3]), (6, 3, [2, 3])])
def test_a_node_several_times(ranks: int | None, nodes: int, sizes: list[int]) -> None:
    topology = topologies.load("h200-nvswitch", ranks, nodes)
    assert [level.size for level in topology.levels] == sizes
    assert (topology.num_nodes, topology.num_ranks) == (nodes, math.prod(sizes))
    assert {key for key, _ in numbers(topology)} == {key for key, _ in topology.provenance}
    assert topology.levels[-1].gb_per_s == pytest.approx(45, rel=0.01)


@pytest.mark.parametrize(
    ("name", "ranks", "rate"),
    [
        ("b200-nvswitch", 16, 45),
        ("a100-nvswitch", 2, 45),
        ("mi300x-full-mesh", 16, 45),
        ("l20-pcie", 16, 26),
        ("l20-pcie", 2, 26),
    ],
)
def test_a_nic_is_no_faster_than_its_slot(name: str, ranks: int, rate: float) -> None:
    assert topologies.load(name, ranks, 2).levels[-1].gb_per_s == rate
    assert (
        topologies.load("laptop-switch", 4, 2).levels[-1].gb_per_s
        < topologies.load("laptop-switch", 4).levels[0].gb_per_s
    )


@pytest.mark.parametrize(
    ("name", "ranks", "nodes"), [("h800-2-nodes", None, 2), ("h200-nvswitch", 8, 1), ("h200-nvswitch", 8, 3)]
)
def test_illegal_nodes(name: str, ranks: int | None, nodes: int) -> None:
    with pytest.raises(IllegalNodes) as caught:
        topologies.load(name, ranks, nodes)
    assert caught.value.facts["reason"]
