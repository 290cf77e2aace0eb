"""Outputs in symmetric memory that are the caller's for as long as he holds them, on every fabric."""

from __future__ import annotations

from typing import Any

import torch


class Pool:
    """An output in symmetric memory with several places for it. A call takes a place in which no tensor lies any more.

    If there is none it takes the last place, and its result is copied out of it. What is taken while a CUDA graph is
    captured is for graphs only from then on: a replay writes there again.
    """

    PLACES = 4  # as many as `told` has room for

    def __init__(self, fabric: Any, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self.fabric = fabric
        self.places = [fabric.symmetric(shape, dtype) for _ in range(self.PLACES)]
        self._storages = [place.local.untyped_storage() for place in self.places]
        self._unused: list[int] = []  # uses of each place in which no result lies, from the first call on
        self._captured = [False] * self.PLACES
        self._streams: list[Any] = [None] * self.PLACES  # on which it was taken
        self._numbers = {place.local.data_ptr(): number for number, place in enumerate(self.places)}

    def take(self, main: Any, shape: tuple[int, ...]) -> torch.Tensor:
        """Where the result of the call that is enqueued on `main` next shall lie."""
        if not self._unused and not self.fabric.is_loading:  # what lies there now are descriptors, no results
            self._unused = [self._uses(number) for number in range(self.PLACES)]
        number = self._free(main.captures())
        if self._streams[number] is not None:
            main.after(self._streams[number])  # the caller has let go of it behind what he enqueued there
        self._streams[number] = main
        found: torch.Tensor = self.places[number].local.view(shape)
        return found

    def place_of(self, out: torch.Tensor) -> int:
        return self._numbers[out.data_ptr()]

    def give(self, main: Any, out: torch.Tensor) -> torch.Tensor:
        """What the caller gets: `out`, or a copy of it."""
        if self.place_of(out) < self.PLACES - 1:
            return out
        result = torch.empty_like(out)
        main.copy(result, out)
        return result

    def _free(self, captures: bool) -> int:
        """A place in which no tensor lies, and which this call may take, or the last one."""
        last = self.PLACES - 1
        # in a capture those places first that graphs have taken before
        order = sorted(range(last), key=self._captured.__getitem__, reverse=True) if captures else range(last)
        for number in order:
            unused = not self._unused or self._uses(number) == self._unused[number]
            if unused and (captures or not self._captured[number]):
                self._captured[number] = captures
                return number
        return last

    def _uses(self, number: int) -> int:
        """Tensors that lie in a place; views of a tensor count as well."""
        return torch._C._storage_Use_Count(self._storages[number]._cdata)
