"""Outputs in symmetric memory that belong to the caller while it holds them, on every fabric."""

from __future__ import annotations

from typing import Any

import torch


class Pool:
    """Several places in symmetric memory for one output. A call takes a place that no live tensor uses.

    If all are in use, it takes the last place and copies the result out. A place taken during CUDA graph capture belongs to
    graphs from then on, because each replay writes there again.
    """

    PLACES = 4  # two bits of a published word

    def __init__(self, fabric: Any, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self.fabric = fabric
        self.places = [fabric.symmetric(shape, dtype) for _ in range(self.PLACES)]
        self._storages = [place.local.untyped_storage() for place in self.places]
        self._unused: list[int] = []  # references to each place without a result, from the first call on
        self._captured = [False] * self.PLACES
        self._streams: list[Any] = [None] * self.PLACES  # on which each place was taken
        self._numbers = {place.local.data_ptr(): number for number, place in enumerate(self.places)}

    def take(self, main: Any, shape: tuple[int, ...]) -> torch.Tensor:
        """Memory for the result of the next call on `main`."""
        if not self._unused and not self.fabric.is_loading:  # only descriptors refer to the places so far
            self._unused = [self._uses(number) for number in range(self.PLACES)]
        number = self._free(main.captures())
        if self._streams[number] is not None:
            main.after(self._streams[number])  # the caller released it behind its work on that stream
        self._streams[number] = main
        found: torch.Tensor = self.places[number].local.view(shape)
        return found

    def place_of(self, out: torch.Tensor) -> int:
        return self._numbers[out.data_ptr()]

    def give(self, main: Any, out: torch.Tensor) -> torch.Tensor:
        """The result for the caller: `out`, or a copy of it."""
        if self.place_of(out) < self.PLACES - 1:
            return out
        result = torch.empty_like(out)
        main.copy(result, out)
        return result

    def _free(self, captures: bool) -> int:
        """The number of an unused place that this call may take, or of the last place."""
        last = self.PLACES - 1
        # in a capture, places that graphs have taken before come first
        order = sorted(range(last), key=self._captured.__getitem__, reverse=True) if captures else range(last)
        for number in order:
            unused = not self._unused or self._uses(number) == self._unused[number]
            if unused and (captures or not self._captured[number]):
                self._captured[number] = captures
                return number
        return last

    def _uses(self, number: int) -> int:
        """Number of tensors in a place, views included."""
        return torch._C._storage_Use_Count(self._storages[number]._cdata)
