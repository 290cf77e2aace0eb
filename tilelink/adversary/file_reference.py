"""The `reference` of a file: how it is called, and what of it cannot be compared with as one error.

Its parameters say which of two forms it has, those with a default left out:

| parameters | called | returns |
| --- | --- | --- |
| those of INPUTS, by name or as many of them as there are | for each rank, with its own inputs | that rank's outputs |
| one, which no input is called like | once, with a list of all ranks' inputs by name | a list of all ranks' outputs |

In the first form `dist` of the module stands for torch.distributed, and ranks are threads. Outputs of emitted files have a bound
for each element; others are tensors, taken to be as exact as `TOLERANCE` of the module says.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import torch

from lowering.selfcheck.near import Near
from tilelink.adversary.ranks_in_threads import ThreadedRanks
from tilelink.errors import FileReferenceFailed

Inputs = list[dict[str, torch.Tensor]]  # by rank, then by name
Outputs = list[tuple[torch.Tensor, ...]]  # by rank
Wanted = list[tuple[Near, ...]]  # by rank

_DEFAULT_TOLERANCE = 1e-2  # of bf16 sums
_RMS = 4  # of an output, which an element may have lost to cancellation: 4 standard deviations


@dataclass(frozen=True)
class FileReference:
    """Outputs of all ranks from the inputs of all ranks, by the user's `function`. Calls raise FileReferenceFailed."""

    function: Callable[..., object]
    module: ModuleType
    names: tuple[str, ...]  # of INPUTS
    num_ranks: int
    of_all_ranks: bool  # one call with a list, otherwise one for each rank
    tolerance: float  # relative, of a tensor

    @property
    def where(self) -> str:
        """file:line of its definition."""
        code = getattr(self.function, "__code__", None)
        file = Path(str(self.module.__file__)).name
        return f"{file}:{code.co_firstlineno}" if code is not None else file

    def __call__(self, inputs: Inputs) -> Wanted:
        """[rank][output]. Raises FileReferenceFailed."""
        try:
            results = self._of_list(inputs) if self.of_all_ranks else self._of_each(inputs)
        except FileReferenceFailed:
            raise
        except Exception as error:
            where = _line_in(error, str(self.module.__file__)) or self.where
            raise self._failed(f"it raises {type(error).__name__}: {error}", where) from error
        return [tuple(self._near(rank, *one) for one in enumerate(_outputs(each))) for rank, each in enumerate(results)]

    def _near(self, rank: int, number: int, output: object) -> Near:
        """An output with its bounds.

        An element of a tensor may be off by the tolerance of its magnitude and of 4 root mean squares of the tensor: sums of like
        summands err alike, also where these cancel.
        """
        if isinstance(bounded := getattr(output, "value", None), torch.Tensor) and hasattr(output, "error"):
            return Near(bounded, output.error)
        if not isinstance(output, torch.Tensor):
            raise self._failed(f"output {number} of rank {rank} is a {type(output).__name__}, not a tensor")
        wanted = output.double()
        magnitude = wanted.abs() + _RMS * wanted.square().mean().sqrt() if wanted.numel() else wanted
        return Near(wanted, (self.tolerance * magnitude).float())

    def check(self, got: Outputs, wanted: Wanted) -> None:
        """Raises FileReferenceFailed where the operator returns other outputs, in number or in shape."""
        for rank, (ours, theirs) in enumerate(zip(got, wanted, strict=True)):
            if len(ours) != len(theirs):
                counts = f"{len(theirs)} outputs of rank {rank}, and the operator {len(ours)}"
                raise self._failed(f"it returns {counts}")
            for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
                if one.shape != other.value.shape:
                    shapes = f"{list(other.value.shape)}, and that of the operator {list(one.shape)}"
                    raise self._failed(f"output {number} of rank {rank} has the shape {shapes}")

    def _of_list(self, inputs: Inputs) -> list[object]:
        results = self.function(inputs)
        if isinstance(results, torch.Tensor) or not isinstance(results, Iterable):
            raise self._failed(f"it returns a {type(results).__name__}, not a list with an item for each rank")
        listed = list(results)
        if len(listed) != self.num_ranks:
            raise self._failed(f"it returns a list of {len(listed)} items for {self.num_ranks} ranks")
        return listed

    def _of_each(self, inputs: Inputs) -> list[object]:
        threads = ThreadedRanks(self.num_ranks)
        before = vars(self.module).get("dist")
        self.module.dist = threads  # type: ignore[attr-defined]
        try:
            return threads.run(lambda rank: self._of_rank(inputs[rank]))
        finally:
            self.module.dist = before  # type: ignore[attr-defined]

    def _of_rank(self, inputs: dict[str, torch.Tensor]) -> object:
        """By name where names are those of the inputs, else in their order."""
        if _required(self.function) == set(self.names):
            return self.function(**inputs)
        return self.function(*inputs.values())

    def _failed(self, reason: str, where: str = "") -> FileReferenceFailed:
        return FileReferenceFailed(where or self.where, reason=reason, inputs=", ".join(self.names))


def reference_of(module: ModuleType, names: tuple[str, ...], num_ranks: int) -> FileReference | None:
    """The `reference` of `module`, whose operator has inputs `names`; None without one. Raises FileReferenceFailed."""
    function = getattr(module, "reference", None)
    if function is None:
        return None
    tolerance = float(getattr(module, "TOLERANCE", _DEFAULT_TOLERANCE))
    found = FileReference(function, module, names, num_ranks, of_all_ranks=False, tolerance=tolerance)
    if not callable(function):
        raise found._failed(f"it is a {type(function).__name__}, not a function")
    required = _required(function)
    if required is None or required == set(names) or (len(names) > 1 and len(required) == len(names)):
        return found
    if len(required) == 1 and not required & set(names):
        return replace(found, of_all_ranks=True)
    raise found._failed(f"it takes ({', '.join(inspect.signature(function).parameters)})")


def _outputs(result: object) -> tuple[object, ...]:
    """Of a rank: one with bounds is a tuple itself."""
    if isinstance(result, tuple | list) and not hasattr(result, "error"):
        return tuple(result)
    return (result,)


def _required(function: Callable[..., object]) -> set[str] | None:
    """The parameters that have no default; None if it takes any number of them."""
    parameters = inspect.signature(function).parameters.values()
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return None
    return {one.name for one in parameters if one.default is one.empty and one.kind is not one.VAR_KEYWORD}


def _line_in(error: Exception, file: str) -> str:
    """file:line of the last frame of an exception that lies in `file`."""
    lines = [line for line in traceback.extract_tb(error.__traceback__) if line.filename == file]
    return f"{Path(file).name}:{lines[-1].lineno}" if lines else ""
