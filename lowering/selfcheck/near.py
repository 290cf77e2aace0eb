"""Values in float64, each element with a bound of the error that rounding explains.

A bound follows from dtype, length of the sum and magnitude of the operands. Rounding to nearest of a stored value errs by at
most `u` of its magnitude (`u` is half of `torch.finfo(dtype).eps`). Sums of many terms have a probabilistic bound: errors of
independent sign grow like their root mean square (Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis,
SIAM J. Sci. Comput. 41(5), 2019), while the worst case of Higham, Accuracy and Stability of Numerical Algorithms (2002,
ch. 3) grows like their sum, and would hide a lost summand. The operands of a check are independent random numbers, for
which this holds; the constants leave 8 standard deviations.
"""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch


class Near(NamedTuple):
    """A tensor, and how far from each element a right result may be: float32 of its shape, or 0.0 where it is exact."""

    value: torch.Tensor
    error: torch.Tensor | float = 0.0

    @staticmethod
    def input(parts: list[torch.Tensor], dim: int | None) -> Near:
        """An input on whole tensors, from what each rank holds: cut along `dim`, or the same everywhere."""
        return Near(parts[0] if dim is None else torch.cat(parts, dim))

    @property
    def T(self) -> Near:
        return Near(self.value.T, self.error if isinstance(self.error, float) else self.error.T)

    def parts(self, num_ranks: int, dim: int) -> list[Near]:
        """What each rank holds where `dim` is cut."""
        values = self.value.chunk(num_ranks, dim)
        if isinstance(self.error, float):
            return [Near(value) for value in values]
        return [Near(value, error) for value, error in zip(values, self.error.chunk(num_ranks, dim), strict=True)]

    def narrow(self, dim: int, start: int, length: int) -> Near:
        """The elements from `start` on along `dim`."""
        value = self.value.narrow(dim, start, length)
        return Near(value, self.error if isinstance(self.error, float) else self.error.narrow(dim, start, length))

    def viewed(self, shape: tuple[int, ...]) -> Near:
        """The same elements in another shape."""
        return Near(self.value.view(shape), self.error if isinstance(self.error, float) else self.error.view(shape))

    def chosen(self, index: torch.Tensor | int) -> Near:
        """Some rows, or one part along the first dimension."""
        return Near(self.value[index], self.error if isinstance(self.error, float) else self.error[index])

    def shifted(self, num_ranks: int, dim: int, by: int) -> Near:
        """After every rank has received the part of the rank `by` before it."""
        found = self.parts(num_ranks, dim)
        found = [found[(rank - by) % num_ranks] for rank in range(num_ranks)]
        value = torch.cat([part.value for part in found], dim)
        errors = [part.error for part in found if not isinstance(part.error, float)]
        return Near(value, torch.cat(errors, dim) if errors else 0.0)

    def rounded(self, dtype: torch.dtype) -> Near:
        """Stored as `dtype` on its way, or not: both are right. Where the range of `dtype` ends, anything is."""
        kind = torch.finfo(dtype)
        size = self.value.abs().float() + self.error
        error = self.error + kind.eps / 2 * size + max(kind.tiny * kind.eps / 2, torch.finfo(torch.float32).tiny)
        return Near(self.value, torch.where(size < kind.max, error, torch.inf))

    def times(self, other: Near, library: torch.dtype | None = None) -> Near:
        """The matrix product, summed in fp32 in any order. A library may round pieces of a sum to its dtype and add these.

        Partial sums stay below |x @ w| + 4 * spread, where `spread` is the root of the sum of squares of the terms. Each
        addition rounds; tensor cores truncate instead, once in 8 terms or more, which errs to one side (Fasi et al., Numerical
        Behavior of NVIDIA Tensor Cores, PeerJ Comput. Sci. 7, 2021). Pieces err by 0.6 u * spread, however many there are.
        The errors of the operands themselves are of independent sign: 5 of their spread are the worst case of 25 terms.
        """
        value = self.value.double() @ other.value.double()
        terms = self.value.shape[1]
        spread = spread_of(self.value, other.value)
        additions = torch.finfo(torch.float32).eps / 2 * min(terms, 8 * terms**0.5 + terms / 8)
        error = additions * (value.abs().float() + 4 * spread)
        if library is not None:
            error += 4 * torch.finfo(library).eps / 2 * spread
        if not isinstance(self.error, float):
            error += 5 * spread_of(self.error, other.value)
        if not isinstance(other.error, float):
            error += 5 * spread_of(self.value.abs() + self.error, other.error)
        return Near(value, error)

    @staticmethod
    def sum(summands: list[Near], library: torch.dtype | None = None) -> Near:
        """Over ranks, in fp32 in any order. A library rounds each partial sum to its dtype on the way from rank to rank."""
        value = torch.zeros_like(summands[0].value, dtype=torch.float64)
        positive, error = value.clone(), torch.zeros_like(value, dtype=torch.float32)
        for part in summands:
            value += part.value
            positive += part.value.clamp_min(0)
            error += part.error
        largest = torch.maximum(positive, positive - value).float()  # that a partial sum can be, whatever the order
        additions = (len(summands) - 1) * torch.finfo(torch.float32).eps / 2
        if library is not None:  # the last one is rounded like any result
            additions += (len(summands) - 2) * torch.finfo(library).eps / 2
        return Near(value, error + additions * largest)

    def rows(self, first: int, last: int, shape: torch.Size) -> Near:
        """Some rows of this tensor broadcast to `shape`."""
        value = self.value.expand(shape)[first:last].double()
        return Near(value, self.error if isinstance(self.error, float) else self.error.expand(shape)[first:last])

    def moved(self, way: str) -> torch.Tensor:
        """Each element as far off as it may be: "up", "down", or towards zero; empty: where it is."""
        limit = torch.as_tensor(self.error, device=self.value.device)
        to_zero = -self.value.clamp(-limit, limit)
        return self.value + {"": torch.zeros_like(limit), "up": limit, "down": -limit, "to zero": to_zero}[way]

    @staticmethod
    def map(function: Callable[..., torch.Tensor], *operands: Near) -> Near:
        """`function` of each element, in fp32: how far it moves where its operands move as far as they may, or to zero."""
        shape = torch.broadcast_shapes(*(x.value.shape for x in operands))
        ways: list[tuple[str, ...]] = [()]
        for x in operands:
            each = ("",) if isinstance(x.error, float) else ("up", "down", "to zero")
            ways = [(*others, way) for others in ways for way in each]
        value = torch.empty(shape, dtype=torch.float64, device=operands[0].value.device)
        error = torch.empty_like(value, dtype=torch.float32)
        for first in range(0, shape[0], 1024):  # rows at a time: there are many tensors of that size
            some = [x.rows(first, first + 1024, shape) for x in operands]
            result = function(*(x.value for x in some))
            # exp and erf err relative to their argument
            size = result.abs() + (some[0].value.abs() if len(some) == 1 else 0)
            off = torch.zeros_like(result)
            for way in ways:
                found = function(*(x.moved(how) for x, how in zip(some, way, strict=True)))
                off = torch.maximum(off, (found - result).abs())
            value[first : first + 1024] = result
            error[first : first + 1024] = off + 2**-20 * size
        return Near(value, error)

    @staticmethod
    def user(function: Callable[..., torch.Tensor], dtype: torch.dtype, *operands: Near) -> Near:
        """A tile op of the user's, from its reference. Its error is seen, not derived: 4 times the largest of 4 trials whose
        operands move at random by their errors and by one rounding to `dtype`, as values inside the op may be rounded, or by
        those of an fp32 sum along their longest dimension; and at least that of the mean of the row, because an element may
        stay where it is by chance; and at least 4 units in the last place of fp32, as functions of it have (CUDA: 2 for exp, 2
        for a fast division). Integers do not move."""
        terms = max(extent for x in operands for extent in x.value.shape)
        step = max(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps * terms) / 2
        whole = [x.value.double() if x.value.is_floating_point() else x.value.long() for x in operands]
        value = function(*whole).double()
        generator = torch.Generator(value.device).manual_seed(0)
        error = torch.zeros_like(value, dtype=torch.float32)
        for _ in range(4):
            moved = []
            for x, given in zip(operands, whole, strict=True):
                if not given.is_floating_point():
                    moved.append(given)
                    continue
                signs = torch.rand(given.shape, generator=generator, device=value.device).sub_(0.5).sign_()
                moved.append(given + signs * (x.error + step * x.value.abs().float()))
            error = torch.maximum(error, (function(*moved) - value).abs().float())
        seen = 4 * torch.maximum(error, error.mean(-1, keepdim=True))
        return Near(value, torch.maximum(seen, 4 * torch.finfo(torch.float32).eps * value.abs().float()))


def spread_of(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The root of the sum of squares of the terms of each element of `x @ w`, in float32."""
    return (x.float().square() @ w.float().square()).sqrt()
