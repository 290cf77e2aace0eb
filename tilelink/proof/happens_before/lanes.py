"""A step for many at once: lanes are the (rank, call, position, round) for which it is done, as columns of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tilelink.proof.happens_before.refuted import Refuted, Wrong
from tilelink.schedule.index import Index, Ints, NoSuchEntry, Number, evaluate, spelled

Tables = Mapping[str, Ints]
Flags = NDArray[np.bool_]
Chosen = Ints | Flags  # numbers of lanes, or for each lane whether it is one


@dataclass(frozen=True, slots=True)
class Lanes:
    """`names`: what indices may use, a number for all lanes or an array of one for each. `order`: where in the program."""

    names: dict[str, int | Ints]
    program: Ints
    order: Ints

    def __len__(self) -> int:
        return len(self.program)

    def later(self, by: int) -> Lanes:
        return replace(self, order=self.order + by) if by else self

    def having(self, **names: int | Ints) -> Lanes:
        return replace(self, names={**self.names, **names})

    def at(self, lanes: Chosen) -> Lanes:
        names = {name: one[lanes] if isinstance(one, np.ndarray) else one for name, one in self.names.items()}
        return Lanes(names, self.program[lanes], self.order[lanes])

    def repeated(self, counts: Ints) -> tuple[Lanes, Ints]:
        """Each lane as often as `counts` says, and the number of each among its equals."""
        lanes = np.repeat(np.arange(len(counts)), counts)
        return self.at(lanes), np.arange(len(lanes)) - np.repeat(np.cumsum(counts) - counts, counts)

    def value(self, index: Number, tables: Tables) -> Ints:
        """`index` for each lane. Raises Refuted where it has no value."""
        if isinstance(index, int):
            return np.full(len(self), index, np.int64)
        try:
            with np.errstate(divide="raise"):
                found = evaluate(index, self.names, tables)
        except NoSuchEntry as missing:
            raise Refuted(Wrong.NO_ENTRY, detail=f"{missing}, which is looked up for {spelled(index)}") from missing
        except KeyError as missing:
            raise Refuted(
                Wrong.MALFORMED, detail=f"{spelled(index)}: the name {missing} stands for nothing"
            ) from missing
        except (ZeroDivisionError, FloatingPointError) as error:
            raise Refuted(Wrong.MALFORMED, detail=f"{spelled(index)} divides by zero") from error
        except ValueError as error:  # a table with another number of dimensions
            raise Refuted(Wrong.MALFORMED, detail=f"{spelled(index)}: {error}") from error
        if isinstance(found, np.ndarray) and found.shape == self.program.shape and found.dtype == np.int64:
            return found
        return np.full(len(self), found, np.int64)

    def with_let(self, let: tuple[tuple[str, Number], ...], tables: Tables) -> Lanes:
        lanes = self
        for name, index in let:
            lanes = lanes.having(**{name: index if isinstance(index, int) else lanes.value(index, tables)})
        return lanes


def by_call(tables: Mapping[str, object] | list[Mapping[str, object]]) -> tuple[dict[str, Ints], bool]:
    """Tables as arrays; if there is one set of tables a call, with the call as their first dimension, and True."""
    if isinstance(tables, Mapping):
        return {name: np.asarray(table, np.int64) for name, table in tables.items()}, False
    names = tables[0] if tables else {}
    return {name: np.stack([np.asarray(one[name], np.int64) for one in tables]) for name in names}, True


def looked_up_by_call(index: Number) -> Number:
    """`table[i]` as `table[call - 1, i]`."""
    if isinstance(index, int) or index.is_name:
        return index
    args = tuple(looked_up_by_call(one) for one in index.args)
    return Index(index.op, (Index("call") - 1, *args) if index.is_lookup else args)
