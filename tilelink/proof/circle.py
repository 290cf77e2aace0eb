"""The wait-for relation and the search for a circle in it."""

from __future__ import annotations

from collections.abc import Hashable


class WaitFor:
    """Events; `after` and `waits` say that the first cannot happen before the second has."""

    def __init__(self) -> None:
        self._needs: dict[Hashable, list[Hashable]] = {}
        self._raised: set[Hashable] = set()
        self._awaited: dict[Hashable, None] = {}

    def __len__(self) -> int:
        return len(self._needs)

    def after(self, event: Hashable, earlier: Hashable) -> None:
        """`event` follows `earlier` in program or stream order."""
        self._needs.setdefault(event, []).append(earlier)

    def waits(self, event: Hashable, signal: Hashable) -> None:
        """`event` waits for `signal`, which happens when all of its raisers have raised it."""
        self._needs.setdefault(event, []).append(signal)
        self._awaited[signal] = None

    def raises(self, signal: Hashable, event: Hashable) -> None:
        self._needs.setdefault(signal, []).append(event)
        self._raised.add(signal)

    def never_raised(self) -> list[Hashable]:
        return [signal for signal in self._awaited if signal not in self._raised]

    def find_circle(self) -> list[str]:
        """Events of which each waits for the next and the last for the first, as short as a search from the events
        that never happen finds it; empty if there is none. Kahn's algorithm, then steps back from what is left."""
        waiting = {event: len(needs) for event, needs in self._needs.items()}
        followers: dict[Hashable, list[Hashable]] = {}
        for event, needs in self._needs.items():
            for earlier in needs:
                followers.setdefault(earlier, []).append(event)
        ready = [event for event in followers if event not in waiting]
        while ready:
            for event in followers.get(ready.pop(), ()):
                waiting[event] -= 1
                if not waiting[event]:
                    ready.append(event)
        stuck = {event for event, count in waiting.items() if count}
        return self._shortest(stuck) if stuck else []

    def _shortest(self, stuck: set[Hashable]) -> list[str]:
        """A circle through `stuck` events: walk from need to need until one comes again."""
        seen: dict[Hashable, int] = {}
        path: list[Hashable] = []
        event = min(stuck, key=str)
        while event not in seen:
            seen[event] = len(path)
            path.append(event)
            event = next(need for need in self._needs[event] if need in stuck)
        return [str(one) for one in path[seen[event] :]]
