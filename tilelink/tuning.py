"""A schedule chosen by measuring: the best alternatives of the planner run on all ranks in turns, and the fastest one stays.

The result is kept in the user's cache folder (`tilelink.planner.plan_cache`), for the spec with its sizes, pins, machine, GPU
and versions. Ranks may have folders of their own: what they find counts only if it is the same on all of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

import torch
import torch.distributed as dist

from tilelink.errors import NothingTuned, TuneNeedsGpus
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import BoundSpec
from tilelink.measuring.contender import Contender, Kind, Mode
from tilelink.measuring.device import CudaDevice, Device
from tilelink.measuring.measure import Options, measure_row
from tilelink.measuring.ours import prepare
from tilelink.measuring.spec_problem import spec_problem
from tilelink.planner.alternatives import alternatives, library_schedule
from tilelink.planner.choices import REUSED, Pin, Pins
from tilelink.planner.decisions import pins_of
from tilelink.planner.fields import pin_text
from tilelink.planner.pins import checked_pins
from tilelink.planner.plan_cache import cache_folder, keep, kept, plan_key
from tilelink.runtime.machine import is_fabric
from topologies.topology import Topology

PLANNED, LIBRARY = "planned", "library"
_OPTIONS = Options(rounds=5, row_budget_s=30.0, load_ms=20.0)
_WORTH = 0.995  # of the time of what is planned unmeasured, another schedule must take less: the noise of five rounds


@dataclass(frozen=True, slots=True)
class Timed:
    """A schedule that took part. `us`: the slowest rank, the median of rounds; None if it failed, for the `failure`."""

    name: str
    predicted_us: float
    us: float | None
    failure: str
    choices: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Tuned:
    """`timed` in the order of predicted times, what is planned unmeasured first, the library's last. `known`: from the cache."""

    schedule: Schedule
    timed: tuple[Timed, ...]
    known: bool

    @property
    def chosen(self) -> str:
        """The name of the schedule."""
        return fastest(self.timed)


def candidates(topology: Topology, planned: Schedule, count: int, pins: Mapping[str, str]) -> dict[str, Schedule]:
    """What is planned unmeasured, at most `count` alternatives that have all pins too, and the library's own schedule."""
    wanted = checked_pins(planned.spec, topology, pins)
    found = {PLANNED: planned}
    others = (one for one in alternatives(topology, planned, count) if _has(one, topology, wanted))
    found |= {f"alternative {number}": one for number, one in enumerate(others, 1)}
    library = library_schedule(planned.spec, topology)
    known = {one.program.hash for one in found.values()}
    if library is not None and _has(library, topology, wanted) and library.program.hash not in known:
        found[LIBRARY] = library
    return found


def tuned(
    device: Device,
    torch_device: torch.device,
    topology: Topology,
    planned: Schedule,
    count: int,
    pins: Mapping[str, str],
    group: object = None,
    target: str = "triton",
    seed: int = 0,
) -> Tuned:
    """The fastest of the `candidates`; all ranks call it alike and get the same. Raises NothingTuned if none ran right, and
    tilelink.measuring's DeviceLost."""
    spec = planned.spec
    file = _file(spec, topology, pins, target)
    known = _known(device, spec, topology, file, count)
    if known is not None:
        return known
    schedules = candidates(topology, planned, count, pins)
    contenders = [
        Contender(name, Kind.OURS, Mode.GRAPH, partial(prepare, schedule=one, group=group, target=target))
        for name, one in schedules.items()
    ]
    problem = spec_problem(spec, device.rank, seed, torch_device)
    results = measure_row(device, problem, contenders, _OPTIONS, lambda *_: None)
    device.release()
    timed = tuple(
        Timed(one.name, schedules[one.name].predicted_us, one.median_us, one.failure, dict(schedules[one.name].choices))
        for one in results
    )
    best = device.exchange(fastest(timed))[0]  # the first rank decides
    if not best:
        why = "\n".join(f"{one.name}: {one.failure}" for one in timed)
        raise NothingTuned(operator=planned.name, why=why)
    if file is not None:
        keep(file, schedules[best], {"count": count, "timed": [asdict(one) for one in timed]})
    return Tuned(schedules[best], timed, known=False)


def tuned_on(
    group: object,
    topology: Topology,
    planned: Schedule,
    count: int,
    pins: Mapping[str, object],
    target: str = "triton",
) -> Tuned:
    """`tuned` on the GPUs of a torch process group, by default the world. Raises TuneNeedsGpus, too."""
    if is_fabric(group):
        raise TuneNeedsGpus(operator=planned.name)
    assert group is None or isinstance(group, dist.ProcessGroup), "no fabric"
    here = torch.device("cuda", torch.cuda.current_device())
    texts = {str(name): pin_text(value) for name, value in pins.items()}
    return tuned(CudaDevice(here, group), here, topology, planned, count, texts, group, target)


def fastest(timed: Sequence[Timed]) -> str:
    """The name of the one that stays, or "" if none ran right: another one than planned only if it takes clearly less."""
    times = {one.name: one.us for one in timed if one.us is not None}
    if not times:
        return ""
    best = min(times, key=lambda name: (times[name], name))
    return best if PLANNED not in times or times[best] < _WORTH * times[PLANNED] else PLANNED


def _has(schedule: Schedule, topology: Topology, pins: Pins) -> bool:
    """Whether all pins hold: of a value, or of all values that have such a field. That outputs may be reused asks for nothing."""
    held = pins_of(schedule.spec, topology, schedule.decided)

    def values(pin: Pin) -> list[object]:
        return [value for one, value in held.items() if one[1] is pin[1] and pin[0] in ("", one[0])]

    return all(set(values(pin)) == {value} for pin, value in pins.items() if pin not in REUSED)


def _file(spec: BoundSpec, topology: Topology, pins: Mapping[str, str], target: str) -> Path | None:
    folder = cache_folder()
    if folder is None:
        return None
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    versions = (str(torch.__version__), str(torch.version.cuda or torch.version.hip or ""), version("triton"))
    parts = (plan_key(spec, topology, pins), target, gpu, *versions)
    return folder / "tuned" / f"{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()}.json"


def _known(device: Device, spec: BoundSpec, topology: Topology, file: Path | None, count: int) -> Tuned | None:
    """What the cache holds, if all ranks have found the same, measured among at least as many alternatives."""
    found = kept(spec, topology, file) if file is not None else None
    mine = ""
    if found is not None:
        held = found[1].get("count")
        mine = json.dumps([found[0].hash, found[1]]) if isinstance(held, int) and held >= count else ""
    texts = device.exchange(mine)
    if found is None or not mine or any(text != mine for text in texts):
        return None
    try:
        listed = found[1]["timed"]
        assert isinstance(listed, list), "as it was kept"
        return Tuned(found[0], tuple(Timed(**one) for one in listed), known=True)
    except (KeyError, TypeError):
        return None
