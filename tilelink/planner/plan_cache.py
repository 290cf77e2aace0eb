"""Plans that were made before: their choices, in files of the user's cache folder.

Only choices are kept. They are built and proved again, so that no file can make an unproved schedule; a file that is damaged,
or holds choices that are illegal or refuted here, is passed over and written anew.

The folder is `$TILELINK_CACHE`, or else `tilelink` in `$XDG_CACHE_HOME` or `~/.cache`; `TILELINK_CACHE=off` keeps nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import tilelink.elaborate
import tilelink.ir
import tilelink.planner
import tilelink.proof
import tilelink.schedule
import topologies
from tilelink.ir.choices import Choices, ComputeChoice, ExchangeChoice, LibraryCompute, TritonLoop
from tilelink.ir.collective import Adder, Collective, Landing
from tilelink.ir.enums import Protocol, Tail
from tilelink.ir.movers import MOVERS, Library, OwnKernel, Transfer
from tilelink.ir.nodes import TileShape
from tilelink.ir.order import Cut, Nest
from tilelink.ir.schedule import Schedule
from tilelink.ir.serialize import decode, encode, to_json
from tilelink.ir.spec import BoundSpec
from tilelink.planner.build import build
from tilelink.planner.layout import Illegal, Problem
from tilelink.planner.plan import plan
from tilelink.planner.space import structure_with
from tilelink.proof.verify import verify
from topologies.topology import Topology

# packages whose code has a say in a plan, with all that is in them; machines themselves are in the key
DECIDING = (tilelink.elaborate, tilelink.ir, tilelink.planner, tilelink.proof, tilelink.schedule, topologies)

_OFF = "off"
_MOST = 4096  # plans: about 8 MB; the oldest ones go
_TYPES = (
    *(Choices, ExchangeChoice, ComputeChoice, TritonLoop, LibraryCompute),
    *(*MOVERS, OwnKernel, Library, TileShape, Transfer, Nest, Cut),
    *(Adder, Collective, Landing, Protocol, Tail),
)


def planned(spec: BoundSpec, topology: Topology, pins: Mapping[str, str]) -> Schedule:
    """`plan`, or the same schedule from choices that an earlier plan has left. Raises what `plan` raises."""
    folder = cache_folder()
    if folder is None:
        return plan(spec, topology, pins)
    file = folder / f"{plan_key(spec, topology, pins)}.json"
    found = kept(spec, topology, file)
    if found is not None:
        return found[0]
    schedule = plan(spec, topology, pins)
    keep(file, schedule)
    return schedule


def cache_folder() -> Path | None:
    """Where plans are kept, or None if they are not."""
    asked = os.environ.get("TILELINK_CACHE", "")
    if asked == _OFF:
        return None
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return Path(asked) if asked else (Path(base) if base else Path.home() / ".cache") / "tilelink"
    except RuntimeError:  # a user without a home
        return None


def plan_key(spec: BoundSpec, topology: Topology, pins: Mapping[str, str]) -> str:
    """What decides a plan: the spec up to its lines, the machine by what is known of it, pins, and the planner itself."""
    bare = replace(spec, source=(), nodes=tuple(replace(node, line="") for node in spec.nodes))
    parts = (to_json(bare), repr(topology), json.dumps(sorted(pins.items())), _sources())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache
def _sources() -> str:
    """Of the planner and of what it reads: another one may choose otherwise."""
    return _digest([Path(package.__path__[0]) for package in DECIDING])


def _digest(folders: Sequence[Path]) -> str:
    """Of all Python files in folders, by their place there."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            name, text = path.relative_to(folder).as_posix().encode(), path.read_bytes()
            digest.update(b"%d %d " % (len(name), len(text)) + name + text)
    return digest.hexdigest()


def kept(spec: BoundSpec, topology: Topology, file: Path) -> tuple[Schedule, dict[str, object]] | None:
    """The proved schedule of the choices in the file, and what was kept beside them; None if it holds none."""
    found = _read(file)
    if found is None:
        return None
    choices, beside = found
    try:
        schedule = build(Problem(structure_with(spec, topology, choices), choices))
    except (Illegal, KeyError, AssertionError, ValueError):  # well-formed choices of something else
        return None
    return (schedule, beside) if verify(schedule).proved else None


def _read(file: Path) -> tuple[Choices, dict[str, object]] | None:
    try:
        held = json.loads(file.read_text())
        choices, beside = held["choices"], held["beside"]
        if held["sum"] != _sum([choices, beside]):
            return None
        found = decode(choices, _TYPES)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return (found, beside) if isinstance(found, Choices) else None


def keep(file: Path, schedule: Schedule, beside: Mapping[str, object] | None = None) -> None:
    """The choices of a schedule, and numbers and texts beside them. Written to another file, which is then moved, so that no
    reader and no other writer sees half of it. A folder that cannot be written keeps nothing."""
    data, more = encode(schedule.decided), dict(beside or {})
    text = json.dumps({"sum": _sum([data, more]), "choices": data, "beside": more})
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=file.parent, suffix=".tmp")
        try:
            with os.fdopen(descriptor, "w") as out:
                out.write(text)
            os.replace(name, file)
        except OSError:
            os.unlink(name)
            raise
        _prune(file.parent)


def _prune(folder: Path) -> None:
    held = list(folder.glob("*.json"))
    if len(held) > _MOST:
        by_age = sorted(held, key=lambda path: path.stat().st_mtime)
        for path in by_age[: len(held) - _MOST]:
            path.unlink(missing_ok=True)


def _sum(data: object) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
