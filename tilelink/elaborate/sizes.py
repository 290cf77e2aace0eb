"""Which sizes of a planned schedule are one: extents of axes, of parts, of buffers, that operands and exchanges bring together.

    y_parts[NUM_RANKS, rows, cols]   written at (m, n) of y, read at (m, n) of out:   rows = Y_M_SIZE = OUT_M_SIZE
    x[rows, cols]                    read at segments of m:                           rows = NUM_RANKS * Y_M_SIZE

The smallest of a class is its size, the others follow: as equal to it, or as it on every rank. What is none of both, and what
windows cut out of a buffer, is a size of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from tilelink.ir import steps as ir
from tilelink.ir.calls import CollectiveCall, LibraryOp
from tilelink.ir.node_sums import sum_levels
from tilelink.ir.nodes import ComputeRole, CopyOwn, Exchange, Kind, Publish
from tilelink.ir.routed import Placed
from tilelink.ir.schedule import Schedule

Key = tuple[str, str, str | int]  # ("axis", role, name), ("rows", exchange, 0), ("buffer", name, dimension)


class Sizes:
    """`of[key]`: the key that a size follows from, and how many times it is that; itself for a free one."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.values: dict[Key, int] = {}
        self.parent: dict[Key, Key] = {}
        self.shapes = {buffer.name: buffer.shape for buffer in schedule.buffers}
        for one in nodes_in(schedule.launches):
            if isinstance(one, ComputeRole):
                self._role(one)
        for exchange in schedule.exchanges:
            self._exchange(exchange)
        for buffer in schedule.buffers:
            for dim, extent in enumerate(buffer.shape):
                self._known(("buffer", buffer.name, dim), extent)
        for launch in schedule.launches:
            match launch:
                case LibraryOp():
                    self._called(launch)
                case CollectiveCall():
                    self._alike(launch.operand, launch.out)
                case Publish(copy_from=name) | CopyOwn(copy_from=name) if name:
                    self._alike(name, schedule.exchange(launch.exchange).source)
        self.of = self._followed()

    def _known(self, key: Key, value: int) -> Key:
        self.values.setdefault(key, value)
        self.parent.setdefault(key, key)
        return key

    def _root(self, key: Key) -> Key:
        while self.parent[key] != key:
            key = self.parent[key]
        return key

    def _join(self, one: Key, other: Key) -> None:
        self.parent[self._root(other)] = self._root(one)

    def _dim(self, buffer: str, from_end: int) -> Key:
        dim = len(self.shapes[buffer]) - from_end
        return self._known(("buffer", buffer, dim), self.shapes[buffer][dim])

    def _there(self, *names: str) -> list[str]:
        """Buffers that exist: tiles send some values without one."""
        return [name for name in names if name in self.shapes]

    def _role(self, role: ComputeRole) -> None:
        keys = {axis.name: self._known(("axis", role.name, axis.name), axis.extent) for axis in role.axes}
        for node in nodes_in(role.body):
            match node:
                case ir.Operand():
                    for buffer in self._there(node.buffer, node.own):
                        self._operand(buffer, node, keys)
                case ir.SumPackets() if node.result in self.shapes:
                    for place, name in enumerate(node.index):
                        self._join(keys[name], self._dim(node.result, len(node.index) - place))

    def _operand(self, buffer: str, operand: ir.Operand, keys: dict[str, Key]) -> None:
        for place, name in enumerate(operand.index):
            if not name or operand.window or name not in keys or (operand.along and operand.along[place]):
                continue
            if name == operand.item:  # a tile is an item, of which parts have so many
                exchange = next(one for one in self.schedule.exchanges if one.target == buffer)
                self._join(keys[name], self._known(("rows", exchange.name, 0), exchange.rows))
            else:
                self._join(keys[name], self._dim(buffer, len(operand.index) - place))

    def _exchange(self, exchange: Exchange) -> None:
        rows = self._known(("rows", exchange.name, 0), exchange.rows)
        source, target = self._there(exchange.source), self._there(exchange.target)
        if not source + target:
            return
        dims = len(self.shapes[(target or source)[0]]) - (1 if target or exchange.kind is Kind.SCATTER else 0)
        if exchange.kind is Kind.GATHER and source and source != target:
            dims = len(self.shapes[source[0]])
        if exchange.kind is Kind.RETURN:  # rows lie by assignment, and not part by part
            if source:  # those of all ranks
                return
            dims = len(self.shapes[target[0]])
        # slots have the rows of an item, and tiles that find rows at places have rows that nobody sends
        parts = [] if exchange.slots or isinstance(exchange.sent, Placed) else target
        target += [one for level in sum_levels(exchange) for one in self._there(level.landing(exchange.name))]
        for buffer in source + parts:
            self._join(rows, self._dim(buffer, min(dims, len(self.shapes[buffer]))))
        for back in range(1, dims):
            for buffer in source + target:
                self._join(self._dim((source + target)[0], back), self._dim(buffer, back))

    def _called(self, launch: LibraryOp) -> None:
        first: dict[str, Key] = {}
        for operand in (launch.out, *launch.operands):
            for buffer in self._there(operand.buffer, operand.own):
                for place, name in enumerate(operand.index):
                    if name and not operand.window:
                        key = self._dim(buffer, len(operand.index) - place)
                        self._join(first.setdefault(name, key), key)

    def _alike(self, one: str, other: str) -> None:
        """Two tensors that differ in how many parts they have at most."""
        for back in range(1, min(len(self.shapes[one]), len(self.shapes[other])) + 1):
            self._join(self._dim(one, back), self._dim(other, back))

    def _followed(self) -> dict[Key, tuple[Key, int]]:
        classes: dict[Key, list[Key]] = {}
        for key in self.values:
            classes.setdefault(self._root(key), []).append(key)
        found: dict[Key, tuple[Key, int]] = {}
        for keys in classes.values():
            free = min(keys, key=lambda one: self.values[one])  # the first of the smallest ones
            for key in keys:
                times, rest = divmod(self.values[key], max(self.values[free], 1))
                found[key] = (free, times) if rest == 0 and times in (1, self.schedule.num_ranks) else (key, 1)
        return found


def nodes_in(node: object) -> Iterator[object]:
    """All nodes in `node`."""
    if isinstance(node, tuple):
        for one in node:
            yield from nodes_in(one)
    elif is_dataclass(node):
        yield node
        for field in fields(node):
            yield from nodes_in(getattr(node, field.name))
