"""What a tile op's reference shows about its axes and operands, by torch on small random tensors in float64.

    tiled along n:   f(x)[:, part] = f(x[:, part])          for every part of n
    a sum over k:    f(x, w)       = sum of f(x[:, part], w[part])   over the parts of k
    linear in x:     f(x + y, w)   = f(x, w) + f(y, w)

Parts are of unequal lengths, one of them a single element, so that neither pairs nor the place along the axis go unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

import torch

from tilelink.ir.user_reference import in_float64, reference_of

_FIRST_PARTS = (1, 4)  # elements; the rest is the last part
_EXTENTS = (4, 128)  # the axes are 3, 4, 5, … times as long; the longer ones are for references that cut axes in blocks

Index = tuple[str, ...]
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class _Trial:
    """Operands and what the reference makes of them."""

    tensors: Tensors
    result: torch.Tensor


class Shown:
    """The laws that a reference keeps. Each answer is None where the reference cannot be called on small tensors."""

    def __init__(self, reference: str, reads: tuple[tuple[str, Index], ...], writes: Index) -> None:
        self._text = reference
        self._reads = dict(reads)
        self._writes = writes
        self._trials = self._try() if reference else []

    def tiled(self, axis: str) -> bool | None:
        """Whether cutting `axis`, which is written, cuts the result and changes nothing else."""
        dim = self._writes.index(axis)

        def kept(trial: _Trial) -> bool:
            wanted = _parts(trial.result, dim)
            return all(_equal(self._call(cut), part) for cut, part in zip(self._cut(trial, axis), wanted, strict=True))

        return self._in_every_trial(kept)

    def is_sum(self, axis: str) -> bool | None:
        """Whether the result is the sum of the results for the parts of `axis`, which is reduced."""
        return self._in_every_trial(lambda trial: _equal(_sum(map(self._call, self._cut(trial, axis))), trial.result))

    def is_linear(self, tensor: str) -> bool | None:
        """Whether summands of the operand `tensor` give summands of the result."""

        def kept(trial: _Trial) -> bool:
            whole = trial.tensors[tensor]
            one = torch.randn(whole.shape, generator=_generator(), dtype=torch.float64)
            summands = (self._call({**trial.tensors, tensor: part}) for part in (one, whole - one))
            return _equal(_sum(summands), trial.result)

        return self._in_every_trial(kept)

    def _in_every_trial(self, kept: Callable[[_Trial], bool]) -> bool | None:
        return all(map(kept, self._trials)) if self._trials else None

    def _try(self) -> list[_Trial]:
        """A trial with values of both signs and one with positive values, at the first extents that the reference takes."""
        axes = list(dict.fromkeys(axis for index in self._reads.values() for axis in index))
        for unit in _EXTENTS:
            extents = {axis: unit * (place + 3) for place, axis in enumerate(axes)}
            generator, trials = _generator(), []
            for fill in (torch.randn, torch.rand):
                tensors = {
                    name: fill([extents[axis] for axis in index], generator=generator, dtype=torch.float64)
                    for name, index in self._reads.items()
                }
                result = self._call(tensors)
                if result is not None and tuple(result.shape) == tuple(extents[axis] for axis in self._writes):
                    trials.append(_Trial(tensors, result))
            if len(trials) == 2 and any(bool(trial.result.isfinite().any()) for trial in trials):
                return trials
        return []

    def _cut(self, trial: _Trial, axis: str) -> Iterator[Tensors]:
        """The operands with the first part of `axis` only, with the second one only, and so on."""
        cut = {
            name: _parts(tensor, self._reads[name].index(axis))
            for name, tensor in trial.tensors.items()
            if axis in self._reads[name]
        }
        for number in range(len(_FIRST_PARTS) + 1):
            yield {**trial.tensors, **{name: parts[number] for name, parts in cut.items()}}

    def _call(self, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
        """The reference of copies; None if it fails, whatever it raises: it is the user's."""
        try:
            result = in_float64(reference_of(self._text), [tensors[name].clone() for name in self._reads])
        except Exception:
            return None
        return result if isinstance(result, torch.Tensor) else None


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _parts(tensor: torch.Tensor, dim: int) -> tuple[torch.Tensor, ...]:
    return torch.tensor_split(tensor, list(accumulate(_FIRST_PARTS)), dim)


def _sum(results: Iterable[torch.Tensor | None]) -> torch.Tensor | None:
    """Their sum; None if one is missing or of another shape."""
    known = list(results)
    shapes = {None if result is None else tuple(result.shape) for result in known}
    if len(shapes) > 1 or None in shapes:
        return None
    return torch.stack([result for result in known if result is not None]).sum(0)


def _equal(result: torch.Tensor | None, wanted: torch.Tensor) -> bool:
    if result is None or result.shape != wanted.shape:
        return False
    return torch.allclose(result.double(), wanted.double(), rtol=1e-9, atol=1e-9, equal_nan=True)
