"""What every test shares: how hypothesis searches, which suite a test is in, and the golden files."""

from __future__ import annotations

import gc
import os
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.machine_speed import limit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TURNS = 4  # of long tests, commits until each has run, on average
_QUICK_S = 3.0  # CPU seconds of a usual machine that no quick test takes
GOLDEN = Path(__file__).parent / "golden"

# tests run beside each other, on matrices that several threads do not multiply faster; torch reads it when it is imported
os.environ.setdefault("OMP_NUM_THREADS", "1")

# plans are made, not taken from what an earlier run or the user has left
os.environ["TILELINK_CACHE"] = "off"

# the same examples on every machine and run; a slow machine is no failure
settings.register_profile(
    "ci", derandomize=True, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
# HYPOTHESIS_PROFILE=explore pytest ...: new examples each time, many of them
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


# imports and collection make a million objects that stay, runs and searches make crowds that die young: look rarely
gc.set_threshold(50_000, 20, 20)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/golden anew from what is emitted")
    parser.addoption(
        "--share", type=int, default=1, help="run one of so many slow parameters of each test: those of COMMIT"
    )
    parser.addoption(
        "--list-slow", type=float, default=0.0, help="list parameters that take so many s in tests/not_quick.txt"
    )
    parser.addoption("--list-long", type=float, default=0.0, help="list tests that take so many s in tests/long.txt")
    parser.addoption(
        "--random-specs", type=int, default=40, help="how many random specs run (tests/pipeline/test_meaning.py)"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`quick(n)`: the quick suite has the first n parameters of the test, the whole suite all of them. With a share of n, an
    n-th of the slow parameters of each test run, at least one; tests of `long.txt`, of more than 5 s each, take turns: a quarter
    of them for each commit."""
    seen: Counter[str] = Counter()
    listed = _listed("not_quick.txt")
    for item in items:
        marked = item.get_closest_marker("slow") is not None
        if item.nodeid in listed:
            item.add_marker(pytest.mark.slow)
        limit = item.get_closest_marker("quick")
        if limit is not None and not marked:  # those of the list count: no other one takes their place
            name = item.nodeid.partition("[")[0]
            seen[name] += 1
            if seen[name] > limit.args[0]:
                item.add_marker(pytest.mark.slow)
    share = config.getoption("--share")
    if share > 1:
        left_out = _left_out([item for item in items if item.get_closest_marker("slow")], share)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
        items[:] = [item for item in items if item.nodeid not in left_out]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """The quick suite stays quick: a test of it that takes long fails, unless it is about to be listed."""
    start = time.process_time()
    yield
    taken = time.process_time() - start
    quick = item.get_closest_marker("slow") is None and item.get_closest_marker("gpu") is None
    if quick and taken > _QUICK_S and not item.config.getoption("--list-slow"):
        most = limit(_QUICK_S)
        assert taken < most, (
            f"it takes {taken:.1f} s, a quick test {most:.1f}: mark it slow, or run pytest --list-slow 0.1"
        )


class _Lister:
    """Lists in a file what takes more than so many seconds, for whoever hands tests out to processes: tests with their
    parameters, or without."""

    def __init__(self, name: str, seconds: float, *, parameters: bool) -> None:
        self.name, self.seconds, self.parameters = name, seconds, parameters
        self.found = _listed(name)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.duration > self.seconds:
            self.found.add(report.nodeid if self.parameters else report.nodeid.partition("[")[0])

    def pytest_sessionfinish(self) -> None:
        path = Path(__file__).parent / self.name
        path.write_text("".join(f"{name}\n" for name in sorted(self.found)), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return
    if slow := config.getoption("--list-slow"):
        config.pluginmanager.register(_Lister("not_quick.txt", slow, parameters=True))
    if long := config.getoption("--list-long"):
        config.pluginmanager.register(_Lister("long.txt", long, parameters=False))


def _listed(name: str) -> set[str]:
    return set((Path(__file__).parent / name).read_text(encoding="utf-8").splitlines())


def _left_out(slow: list[pytest.Item], share: int) -> set[str]:
    """Of each test all but an n-th of its parameters, which a number of name and commit picks; and long ones out of turn."""
    commit, long = os.environ.get("COMMIT", ""), _listed("long.txt")
    by_test: dict[str, list[str]] = {}
    for item in slow:
        by_test.setdefault(item.nodeid.partition("[")[0], []).append(item.nodeid)
    found = set[str]()
    for test, names in by_test.items():
        names.sort(key=lambda name: zlib.crc32(f"{commit} {name}".encode()))
        out_of_turn = test in long and zlib.crc32(f"{commit} {test}".encode()) % _TURNS
        found.update(names if out_of_turn else names[-(-len(names) // share) :])
    return found


def pytest_collection_finish() -> None:
    """What is imported and collected stays until the end: the garbage collector need not go through it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden("ag_gemm__h200_nvswitch__triton.py", source)` fails unless the file has exactly that text."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            GOLDEN.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} is missing: run pytest --update-golden and read what it wrote"
        assert text == path.read_text(encoding="utf-8"), f"{name} differs: pytest --update-golden, then read the diff"

    return check
