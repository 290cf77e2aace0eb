"""Plans that were made before: what their key is about, what a damaged file does, and writers beside each other."""

from __future__ import annotations

import json
import multiprocessing
from dataclasses import replace
from pathlib import Path

import networkx as nx
import pytest

import topologies
from tests.imports.import_graph import RUN, import_graph
from tests.planner.operators import ag_gemm, gemm_rs
from tilelink.ir.spec import BoundSpec, bind
from tilelink.planner import plan_cache
from tilelink.planner.plan import plan
from tilelink.planner.plan_cache import cache_folder, planned
from tilelink.proof.verify import verify

SIZES = {"M": 256, "K": 64, "N": 128}
MACHINE = topologies.load("laptop-switch", 4)


def bound(sizes: dict[str, int] = SIZES, dtype: str = "bf16") -> BoundSpec:
    return bind(ag_gemm.spec, sizes, 4, dtype)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILELINK_CACHE", str(tmp_path / "plans"))
    return tmp_path / "plans"


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A line for each search."""
    seen: list[str] = []

    def counted(spec: BoundSpec, *arguments: object) -> object:
        seen.append(spec.name)
        return plan(spec, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(plan_cache, "plan", counted)
    return seen


def test_a_plan_is_searched_once(folder: Path, searches: list[str]) -> None:
    first, second = planned(bound(), MACHINE, {}), planned(bound(), MACHINE, {})
    assert first == second and searches == ["ag_gemm"]
    (file,) = folder.iterdir()
    assert file.suffix == ".json" and file.stat().st_size < 8192


def test_what_decides_a_plan_is_in_its_key(folder: Path, searches: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(MACHINE, copy_engine_start_us=MACHINE.copy_engine_start_us + 1)
    planned(bound(), MACHINE, {})
    planned(bound(), other, {})
    planned(bound(), MACHINE, {"chunks": "2"})
    planned(bound({**SIZES, "M": 512}), MACHINE, {})
    planned(bound(dtype="fp32"), MACHINE, {})
    planned(bind(gemm_rs.spec, SIZES, 4, "bf16"), MACHINE, {})
    monkeypatch.setattr(plan_cache, "_sources", lambda: "another planner")
    planned(bound(), MACHINE, {})
    assert len(searches) == 7 == len(list(folder.iterdir()))


def test_all_that_the_planner_imports_is_in_its_key() -> None:
    """But for the classes of errors, which decide nothing."""
    root = Path(__file__).parents[2]
    graph = import_graph(root, ("tilelink", "topologies"))
    read = {name.removesuffix(RUN) for name in nx.descendants(graph, "tilelink.planner.plan_cache")}
    hashed = tuple(package.__name__ for package in plan_cache.DECIDING)
    left = {one for one in read if not one.startswith(tuple(f"{name}." for name in hashed)) and one not in hashed}
    assert left == {"tilelink.errors", "tilelink.run_errors"}
    assert {"tilelink.proof.happens_before.walk", "tilelink.elaborate.tiles", "topologies.loader"} <= read


def test_a_file_deep_in_a_package_is_in_the_key(tmp_path: Path) -> None:
    deep = tmp_path / "package" / "inner" / "module.py"
    deep.parent.mkdir(parents=True)
    found = set()
    for text in ("a = 1", "a = 2"):
        deep.write_text(text)
        found.add(plan_cache._digest([tmp_path / "package"]))
    deep.rename(deep.with_name("other.py"))
    found.add(plan_cache._digest([tmp_path / "package"]))
    assert len(found) == 3


def test_lines_of_the_user_are_not(folder: Path, searches: list[str]) -> None:
    moved = replace(bound(), nodes=tuple(replace(node, line="elsewhere.py:1") for node in bound().nodes))
    planned(bound(), MACHINE, {})
    assert planned(moved, MACHINE, {}).spec == moved and len(searches) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: text[:9] + ("1" if text[9] == "0" else "0") + text[10:],  # of the sum
        lambda text: "[1, 2]",
        lambda text: json.dumps({**json.loads(text), "choices": {"type": "Choices"}}),
        lambda text: "\x00" * 64,
    ],
)
def test_a_damaged_file_is_written_anew(folder: Path, searches: list[str], damage: object) -> None:
    best = planned(bound(), MACHINE, {})
    (file,) = folder.iterdir()
    whole = file.read_text()
    file.write_text(damage(whole))  # type: ignore[operator]
    assert planned(bound(), MACHINE, {}) == best and len(searches) == 2
    assert file.read_text() == whole


def test_choices_of_another_spec_are_not_taken(folder: Path, searches: list[str]) -> None:
    """Even if the file is whole: they are built, and do not fit."""
    planned(bound(), MACHINE, {})
    (file,) = folder.iterdir()
    held = file.read_text()
    planned(bind(gemm_rs.spec, SIZES, 4, "bf16"), MACHINE, {})
    (other,) = (path for path in folder.iterdir() if path != file)
    other.write_text(held)
    assert planned(bind(gemm_rs.spec, SIZES, 4, "bf16"), MACHINE, {}).name == "gemm_rs"
    assert searches == ["ag_gemm", "gemm_rs", "gemm_rs"]


def test_a_cached_plan_is_proved(folder: Path, searches: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    planned(bound(), MACHINE, {})
    asked: list[str] = []

    def refuted(schedule: object) -> object:
        asked.append("asked")
        proof = verify(schedule)  # type: ignore[arg-type]
        return replace(proof, findings=("a finding",))  # type: ignore[arg-type]

    monkeypatch.setattr(plan_cache, "verify", refuted)
    planned(bound(), MACHINE, {})
    assert asked == ["asked"] and len(searches) == 2


def test_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, searches: list[str]) -> None:
    monkeypatch.setenv("TILELINK_CACHE", "off")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() is None
    assert planned(bound(), MACHINE, {}) == planned(bound(), MACHINE, {})
    assert not list(tmp_path.iterdir()) and searches == ["ag_gemm"] * 2


def test_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TILELINK_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "tilelink"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "tilelink"


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILELINK_CACHE", str(tmp_path / "file"))
    assert planned(bound(), MACHINE, {}).name == "ag_gemm"


def _write_often(folder: str, seed: int) -> None:
    schedule = plan(bound(), MACHINE, {})
    for _ in range(50):
        plan_cache.keep(Path(folder) / "one.json", schedule, {"seed": 1})
        assert plan_cache._read(Path(folder) / "one.json") == (schedule.decided, {"seed": 1})


@pytest.mark.slow
def test_writers_beside_each_other(tmp_path: Path) -> None:
    """Every read in between finds a whole file."""
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_often, args=(str(tmp_path), seed)) for seed in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["one.json"]


def test_the_oldest_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_cache, "_MOST", 2)
    for rows in (128, 256, 384):
        planned(bound({**SIZES, "M": rows}), MACHINE, {})
    assert len(list(folder.iterdir())) == 2
