"""One side of a replay: what the code beside this file makes of each case, as JSON. `python -m tests.replay.side` is run
in the tree of either commit, always with the replay of the working tree."""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypedDict

from tests.replay import surface
from tests.replay.cases import Case, cases
from tests.replay.normal import beside_kernels, normal_ir
from tests.replay.record import Launched, record


class Facts(TypedDict):
    """What is known of a case; texts are named by their hash. `errors`: stage -> what was raised there."""

    key: str
    seconds: dict[str, float]  # of the processor, by stage
    choices: dict[str, str]
    predicted_us: float
    kernels: dict[str, str]  # the number of a kernel by its first launch, and of its variant -> IR
    names: dict[str, str]  # the same -> what the file calls it; not compared
    host: dict[str, str]  # rank -> operations
    beside: str  # fabric and self-check
    errors: dict[str, str]


class Side(TypedDict):
    digest: str  # of the replay itself
    cases: dict[str, Facts]
    texts: dict[str, str]


MACHINERY = ("surface.py", "normal.py", "record.py", "specs.py", "side.py")  # cases have keys of their own


def digest() -> str:
    """What facts depend on beside the commit and the case."""
    import torch
    import triton

    here = Path(__file__).parent
    texts = [(here / name).read_text() for name in MACHINERY] + [torch.__version__, triton.__version__]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def key(case: Case) -> str:
    return hashlib.sha256(repr(case).encode()).hexdigest()[:16]


class Describing:
    """Facts of one case, stage by stage; a stage that raises ends it."""

    def __init__(self, case: Case, texts: dict[str, str]) -> None:
        self.case, self._texts = case, texts
        self.facts = Facts(
            key=key(case),
            seconds={},
            choices={},
            predicted_us=0.0,
            kernels={},
            names={},
            host={},
            beside="",
            errors={},
        )

    def run(self) -> Facts:
        schedule = self._stage("plan", self._plan)
        source = schedule and self._stage("emit", lambda: surface.emit(schedule, self.case.target))
        if source:
            self.of_source(source, surface.arch(schedule))
        return self.facts

    def of_source(self, source: str, arch: str) -> None:
        """What an emitted file is."""
        module = self._stage("load", lambda: surface.load(source, "replayed"))
        if module is None:
            return
        launches = self._stage("host", lambda: self._host(module))
        self._stage("kernels", lambda: self._kernels(launches or [], arch))
        self.facts["beside"] = self._text(beside_kernels(source, surface.operator_class(module).__name__))

    def _stage(self, name: str, do: Callable[[], Any]) -> Any:
        start = time.process_time()  # other processes on the machine do not count
        try:
            return do()
        except Exception as error:  # of any kind: it is a fact of this side
            self.facts["errors"][name] = f"{type(error).__name__}: {error}"[:4000]
            return None
        finally:
            self.facts["seconds"][name] = round(time.process_time() - start, 3)

    def _plan(self) -> Any:
        case = self.case
        sizes, pins = dict(case.sizes), dict(case.pins)
        schedule = surface.plan(case.operator, case.topology, case.num_ranks, sizes, case.dtype, pins)
        self.facts["choices"], self.facts["predicted_us"] = surface.choices(schedule), surface.predicted_us(schedule)
        return schedule

    def _host(self, module: ModuleType) -> list[Launched]:
        logs = [record(module, self.case.num_ranks, rank) for rank in range(self.case.num_ranks)]
        for rank, log in enumerate(logs):
            self.facts["host"][str(rank)] = self._text("\n".join(log.lines))
        return logs[0].launches

    def _kernels(self, launches: Iterable[Launched], arch: str) -> None:
        """The IR of each launch on rank 0; launches with other constants are variants."""
        variants: dict[str, list[str]] = {}
        for one in launches:
            written = surface.written_ir(one.kernel, one.grid, one.arguments, one.options, arch)
            text = self._text(normal_ir(written, arch))
            known = variants.setdefault(one.label, [])
            if text not in known:
                known.append(text)
                name = one.label + (f", variant {len(known) - 1}" if len(known) > 1 else "")
                self.facts["kernels"][name] = text
                self.facts["names"][name] = str(one.kernel.__name__)

    def _text(self, text: str) -> str:
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        self._texts[name] = text
        return name


def describe(chosen: Iterable[Case]) -> Side:
    """Facts of these cases."""
    texts: dict[str, str] = {}
    return Side(digest=digest(), cases={case.name: Describing(case, texts).run() for case in chosen}, texts=texts)


def share(chosen: Sequence[Case], part: int, parts: int) -> list[Case]:
    """Every `parts`-th plan of `chosen`; cases of one plan, in several languages, stay together."""
    plans: dict[object, int] = {}
    for case in chosen:
        plans.setdefault(_plan_of(case), len(plans))
    return [case for case in chosen if plans[_plan_of(case)] % parts == part]


def _plan_of(case: Case) -> object:
    return case.operator, case.topology, case.num_ranks, case.dtype, case.sizes, case.pins


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", type=Path, required=True, help="a file with a case's name a line")
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()

    import tilelink

    found = Path(str(tilelink.__file__)).resolve()
    assert found.is_relative_to(surface.ROOT), f"tilelink comes from {found}, not from {surface.ROOT}"
    names = set(arguments.names.read_text().splitlines())
    chosen = [case for case in cases() if case.name in names]
    side = describe(share(chosen, arguments.part, arguments.parts))
    arguments.out.write_text(json.dumps(side))


if __name__ == "__main__":
    main()
