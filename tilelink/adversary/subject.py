"""What is run: a host class, on how many ranks, with which inputs, against which expected outputs."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from lowering.libraries import library_values
from lowering.selfcheck.near import Near
from tilelink.adversary.ranks_in_threads import ThreadedRanks
from tilelink.errors import NotAnOperatorFile
from tilelink.ir.schedule import Schedule
from tilelink.runtime.compare import Difference, compare_ranks, outputs_with_bounds
from tilelink.runtime.load import load_source
from tilelink.runtime.reference import make_inputs

Inputs = list[dict[str, torch.Tensor]]  # by rank, then by name
Outputs = list[tuple[torch.Tensor, ...]]  # by rank
Wanted = list[tuple[Near, ...]]  # by rank
Build = Callable[[object], Callable[..., object]]  # fabric -> operator

_DEFAULT_RANKS = 4
_DEFAULT_SMS = 132
_DEFAULT_TOLERANCE = 1e-2  # of bf16 sums
_RMS = 4  # of an output, which an element may have lost to cancellation: 4 standard deviations


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
    any_stream: bool = True  # calls may come from several streams without being ordered by the caller
    command: str = ""  # that verifies it; a seed and a policy are appended to replay a run

    def difference(self, got: Outputs, inputs: Inputs, call: int) -> Difference | None:
        """The first output with an element that rounding does not explain."""
        assert self.expected is not None
        names = self.outputs or [f"output {number}" for number in range(len(got[0]))]
        found = compare_ranks(names, got, self.expected(inputs), call).differences
        return found[0] if found else None


def of_schedule(schedule: Schedule, source: str, command: str = "", build: Build | None = None) -> Subject:
    """The operator that was emitted for `schedule`, or another one; outputs are those of the spec in float64."""
    return Subject(
        schedule.name,
        build or _host_class(load_source(source, schedule.name), schedule.name),
        schedule.num_ranks,
        schedule.machine.num_sms,
        lambda seed: make_inputs(schedule.spec, seed),
        lambda inputs: outputs_with_bounds(schedule.spec, inputs, library_values(schedule)),
        schedule.spec.outputs,
        peer_atomics=schedule.machine.peer_atomics,
        command=command,
    )


def of_file(path: Path, num_ranks: int | None = None, num_sms: int | None = None) -> Subject:
    """The operator of a Python file: emitted, edited, or written by hand with the same interface.

    The file defines one class with `INPUTS = {name: (shape, dtype)}`, `__init__(self, fabric)` and
    `__call__(self, *inputs)`, and optionally `NUM_RANKS`, `NUM_SMS`, `ANY_STREAM`, `PEER_ATOMICS` and `MULTICAST` in
    the class, `TOLERANCE`, `SCALES`, `REPLICATED` and `reference` beside it. See docs/verification.md.
    Raises NotAnOperatorFile.
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
    """The operator of a loaded module. Raises NotAnOperatorFile."""
    host = _host_class(module, path)
    ranks = num_ranks or _number(module, host, "NUM_RANKS", _DEFAULT_RANKS)
    return Subject(
        host.__name__,
        host,
        ranks,
        num_sms or _number(module, host, "NUM_SMS", _DEFAULT_SMS),
        lambda seed: _random_inputs(module, host, ranks, seed),
        _reference(module, ranks),
        tuple(getattr(module, "OUTPUTS", ())),
        peer_atomics=bool(getattr(host, "PEER_ATOMICS", True)),
        multicast=bool(getattr(host, "MULTICAST", False)),
        any_stream=bool(getattr(host, "ANY_STREAM", False)),
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


def _number(module: ModuleType, host: type, name: str, default: int) -> int:
    value = getattr(host, name, getattr(module, name, default))
    return int(value)


def _random_inputs(module: ModuleType, host: type, num_ranks: int, seed: int) -> Inputs:
    """Normal numbers, other ones on each rank except for inputs in REPLICATED; integers in [0, 8)."""
    replicated: set[str] = getattr(module, "REPLICATED", set())
    scales: dict[str, float] = getattr(module, "SCALES", {})
    ranks: Inputs = []
    for rank in range(num_ranks):
        ranks.append({})
        for number, (name, (shape, dtype)) in enumerate(host.INPUTS.items()):  # type: ignore[attr-defined]
            generator = torch.Generator()
            generator.manual_seed(1000 * seed + 10 * number + (0 if name in replicated else 1 + rank))
            if dtype.is_floating_point:
                value = torch.randn(shape, generator=generator) * scales.get(name, 1.0)
            else:
                value = torch.randint(0, 8, shape, generator=generator)
            ranks[-1][name] = value.to(dtype)
    return ranks


def _reference(module: ModuleType, num_ranks: int) -> Callable[[Inputs], Wanted] | None:
    """`reference(rank_inputs)` for all ranks at once, or `reference(x, w, …)` on each rank with torch.distributed. Outputs of
    emitted files have a bound for each element; others are taken to be as exact as `TOLERANCE` says."""
    function = getattr(module, "reference", None)
    if function is None:
        return None
    tolerance = float(getattr(module, "TOLERANCE", _DEFAULT_TOLERANCE))

    def near(result: object) -> tuple[Near, ...]:
        if hasattr(result, "error"):
            return (_near(result, tolerance),)
        return tuple(_near(one, tolerance) for one in (result if isinstance(result, tuple) else (result,)))

    if list(inspect.signature(function).parameters) == ["rank_inputs"]:
        return lambda inputs: [near(result) for result in function(inputs)]

    def on_ranks(inputs: Inputs) -> Wanted:
        threads = ThreadedRanks(num_ranks)
        before = vars(module).get("dist")
        module.dist = threads  # type: ignore[attr-defined]
        try:
            return threads.run(lambda rank: near(function(*inputs[rank].values())))
        finally:
            module.dist = before  # type: ignore[attr-defined]

    return on_ranks


def _near(output: Any, tolerance: float) -> Near:
    """An output of a reference: one with bounds, or a tensor, of which an element may be off by `tolerance` of its magnitude and
    of 4 root mean squares of the tensor: sums of like summands err alike, also where these cancel."""
    if hasattr(output, "error"):
        return Near(output.value, output.error)
    wanted = output.double()
    magnitude = wanted.abs() + _RMS * wanted.square().mean().sqrt() if wanted.numel() else wanted
    return Near(wanted, (tolerance * magnitude).float())


def as_tuple(result: object) -> tuple[torch.Tensor, ...]:
    """Outputs of an operator or a reference, which may return a single tensor."""
    return result if isinstance(result, tuple) else (result,)
