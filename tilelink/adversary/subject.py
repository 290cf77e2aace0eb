"""What is run: a host class, on how many ranks, with which inputs, against which expected outputs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

from lowering.host.inputs import inputs_of
from lowering.libraries import library_values
from lowering.selfcheck.states import random_elements, random_lengths, random_logs, random_pages
from tilelink.adversary.file_reference import FileReference, Inputs, Outputs, Wanted, reference_of
from tilelink.emulator.world import STEP_LIMIT
from tilelink.errors import NotAnOperatorFile
from tilelink.ir.schedule import Schedule
from tilelink.runtime.compare import Difference, compare_ranks, outputs_with_bounds
from tilelink.runtime.load import load_source
from tilelink.runtime.reference import make_inputs

Declared = dict[str, tuple[tuple[int, ...], torch.dtype]]  # shape and dtype of each input of a file
Build = Callable[[object], Callable[..., object]]  # fabric -> operator

_DEFAULT_RANKS = 4
_DEFAULT_SMS = 132


@dataclass(frozen=True)
class Subject:
    """An operator under test. `expected` is None for a file without a reference: then only hangs and races count."""

    name: str
    build: Build
    num_ranks: int
    num_sms: int
    make_inputs: Callable[[int], Inputs]  # seed -> local inputs
    expected: Callable[[Inputs], Wanted] | None
    outputs: tuple[str, ...] = ()  # names, where they are known
    peer_atomics: bool = True
    multicast: bool = False
    ranks_per_node: int = 0  # that a store by multicast reaches; 0: all
    any_stream: bool = True  # calls may come from several streams without being ordered by the caller
    graphs: bool = True  # calls may be captured in a CUDA graph
    step_limit: int = STEP_LIMIT  # switches and memory accesses of a run, after which it is given up
    command: str = ""  # that verifies it; a seed and a policy are appended to replay a run

    def difference(self, got: Outputs, inputs: Inputs, call: int) -> Difference | None:
        """The first output with an element that rounding does not explain. Raises FileReferenceFailed."""
        assert self.expected is not None
        names = self.outputs or [f"output {number}" for number in range(len(got[0]))]
        wanted = self.expected(inputs)
        if isinstance(self.expected, FileReference):
            self.expected.check(got, wanted)
        found = compare_ranks(names, got, wanted, call).differences
        return found[0] if found else None


def of_schedule(schedule: Schedule, source: str, command: str = "", build: Build | None = None) -> Subject:
    """The operator that was emitted for `schedule`, or `build` in its place; outputs are those of the spec in float64. The GPUs
    have as many SMs as the emitted one needs: on one less it has to refuse."""
    emitted = _host_class(load_source(source, schedule.name), schedule.name)
    return Subject(
        schedule.name,
        build or emitted,
        schedule.num_ranks,
        min(schedule.machine.num_sms, int(getattr(emitted, "NUM_SMS", schedule.machine.num_sms))),
        lambda seed: make_inputs(schedule.spec, seed),
        lambda inputs: outputs_with_bounds(schedule.spec, inputs, library_values(schedule)),
        schedule.spec.outputs,
        peer_atomics=schedule.machine.peer_atomics,
        multicast=schedule.machine.multicast,
        ranks_per_node=int(getattr(emitted, "RANKS_PER_NODE", 0)),
        command=command,
    )


def of_file(path: Path, num_ranks: int | None = None, num_sms: int | None = None) -> Subject:
    """The operator of a Python file: emitted, edited, or written by hand with the same interface.

    The file defines one class with `INPUTS = {name: (shape, dtype)}`, `__init__(self, fabric)` and
    `__call__(self, *inputs)`, and optionally `NUM_RANKS`, `NUM_SMS`, `STEP_LIMIT`, `ANY_STREAM`, `GRAPHS`, `PEER_ATOMICS`,
    `MULTICAST` and `RANKS_PER_NODE` in the class, `TOLERANCE`, `SCALES`, `REPLICATED` and `reference` beside it. See
    docs/verification.md.
    Raises NotAnOperatorFile and FileReferenceFailed.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise NotAnOperatorFile(path=str(path), reason=str(error)) from error
    sys.path.insert(0, str(path.resolve().parent))
    try:
        module = load_source(text, path.stem, path)
    except (Exception, SystemExit) as error:
        raise NotAnOperatorFile(path=str(path), reason=f"it does not run: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    return of_module(module, str(path), num_ranks, num_sms)


def of_module(module: ModuleType, path: str, num_ranks: int | None = None, num_sms: int | None = None) -> Subject:
    """The operator of a loaded module. Raises NotAnOperatorFile and FileReferenceFailed."""
    host = _host_class(module, path)
    inputs = _inputs(host, path)
    ranks = num_ranks or _number(module, host, path, "NUM_RANKS", _DEFAULT_RANKS)
    return Subject(
        host.__name__,
        host,
        ranks,
        num_sms or _number(module, host, path, "NUM_SMS", _DEFAULT_SMS),
        lambda seed: _random_inputs(module, [_on(host, inputs, rank) for rank in range(ranks)], seed),
        reference_of(module, tuple(inputs), ranks),
        tuple(getattr(module, "OUTPUTS", ())),
        peer_atomics=bool(getattr(host, "PEER_ATOMICS", True)),
        multicast=bool(getattr(host, "MULTICAST", False)),
        ranks_per_node=int(getattr(host, "RANKS_PER_NODE", 0)),
        any_stream=bool(getattr(host, "ANY_STREAM", False)),
        graphs=bool(getattr(host, "GRAPHS", True)),
        step_limit=_number(module, host, path, "STEP_LIMIT", STEP_LIMIT),
        command=f"tilelink verify {path} --ranks {ranks}",
    )


def _host_class(module: ModuleType, path: str) -> type:
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and hasattr(value, "INPUTS") and value.__module__ == module.__name__
    ]
    if len(found) != 1:
        names = ", ".join(value.__name__ for value in found) or "none"
        raise NotAnOperatorFile(path=path, reason=f"classes with INPUTS in it: {names}")
    return found[0]


def _inputs(host: type, path: str) -> Declared:
    """INPUTS of the class. Raises NotAnOperatorFile."""
    declared = host.INPUTS  # type: ignore[attr-defined]
    try:
        found = {str(name): (tuple(map(int, shape)), dtype) for name, (shape, dtype) in declared.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise NotAnOperatorFile(path=path, reason=f"INPUTS of {host.__name__} is {declared!r}") from error
    for name, (_, dtype) in found.items():
        if not isinstance(dtype, torch.dtype):
            raise NotAnOperatorFile(path=path, reason=f"the dtype of input {name!r} is {dtype!r}, not one of torch")
    return found


def _on(host: type, inputs: Declared, rank: int) -> Declared:
    """What `rank` takes of the inputs: of matrices of experts the last ranks have fewer."""
    return inputs_of(host, rank) if hasattr(host, "MATRICES") else inputs


def _number(module: ModuleType, host: type, path: str, name: str, default: int) -> int:
    value = getattr(host, name, getattr(module, name, default))
    if not isinstance(value, int) or value < 1:
        raise NotAnOperatorFile(path=path, reason=f"{name} is {value!r}, not a count of at least 1")
    return value


def _kind(module: ModuleType, constant: str) -> dict[str, int]:
    """Inputs that `constant` of an emitted file names, with a number if it has one. In other files it may be anything."""
    found = getattr(module, constant, {})
    return found if isinstance(found, dict) else dict.fromkeys(found, 0) if isinstance(found, set) else {}


def _random_inputs(module: ModuleType, declared: Sequence[Declared], seed: int) -> Inputs:
    """Normal numbers, other ones on each rank except for inputs in REPLICATED; integers in [0, 8). Those in LENGTHS, PAGES,
    LOGS and ELEMENTS as an emitted file draws them. `declared`: by rank."""
    replicated: set[str] = getattr(module, "REPLICATED", set())
    scales: dict[str, float] = getattr(module, "SCALES", {})
    lengths, pages, logs, elements = (_kind(module, constant) for constant in ("LENGTHS", "PAGES", "LOGS", "ELEMENTS"))
    ranks: Inputs = []
    for rank, inputs in enumerate(declared):
        ranks.append({})
        for number, (name, (shape, dtype)) in enumerate(inputs.items()):
            generator = torch.Generator()
            generator.manual_seed(1000 * seed + 10 * number + (0 if name in replicated else 1 + rank))
            if name in lengths:
                value = random_lengths(shape, lengths[name], seed, "cpu")
            elif name in pages:
                value = random_pages(shape, pages[name], seed + 5 * rank, "cpu")
            elif name in logs:
                value = random_logs(shape, seed + 5 * rank, "cpu")
            elif name in elements:
                of_rank = 0 if name in replicated else 5 * rank
                value = random_elements(shape, elements[name], seed + of_rank, "cpu")
            elif dtype.is_floating_point:
                value = torch.randn(shape, generator=generator) * scales.get(name, 1.0)
            else:
                value = torch.randint(0, 8, shape, generator=generator)
            ranks[-1][name] = value.to(dtype)
    return ranks
