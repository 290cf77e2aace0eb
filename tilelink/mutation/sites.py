"""Places in a tree of frozen dataclasses and tuples: each node with the path to it, and the tree with something else there.

for site in sites(schedule, Wait):
    site.label                               # "launches[0] Launch main, roles[0] Role gemm, phases[1] Phase, body[0] Wait x"
    site.put(replace(site.node, until=0))    # the schedule with that one field changed
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar, cast

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
N = TypeVar("N")
Path = tuple[str | int, ...]  # names of fields, positions in tuples


@dataclass(frozen=True, slots=True)
class Site(Generic[T, N]):
    """`node` at `path` in `tree`."""

    tree: T
    path: Path
    node: N

    @property
    def label(self) -> str:
        """Where it is: each node on the way, by its field, its class and its name if it has one."""
        node: object = self.tree
        words: list[str] = []
        for step in self.path:
            node = at(node, (step,))
            if isinstance(step, int):
                words[-1] += f"[{step}]"
            else:
                words.append(step)
            if is_dataclass(node):
                words[-1] += f" {named(node)}"
        return ", ".join(words)

    @property
    def siblings(self) -> tuple[object, ...]:
        """The tuple that the node stands in."""
        return cast("tuple[object, ...]", at(self.tree, self.path[:-1]))

    @property
    def position(self) -> int:
        """Index among the siblings."""
        return cast("int", self.path[-1])

    def put(self, node: object) -> T:
        """The tree with `node` here."""
        return cast("T", _rebuilt(self.tree, self.path, node))

    def put_all(self, *nodes: object) -> T:
        """The tree with any number of nodes in place of this one, which stands in a tuple."""
        before, after = self.siblings[: self.position], self.siblings[self.position + 1 :]
        return cast("T", _rebuilt(self.tree, self.path[:-1], (*before, *nodes, *after)))

    def drop(self) -> T:
        """Without this node: gone from its tuple, or None where a field may be None."""
        return self.put_all() if isinstance(self.path[-1], int) else self.put(None)

    def swap_with_next(self) -> T:
        """With this node behind its next sibling."""
        order, here = list(self.siblings), self.position
        order[here], order[here + 1] = order[here + 1], order[here]
        return cast("T", _rebuilt(self.tree, self.path[:-1], tuple(order)))


def sites(tree: T, kind: type[N]) -> Iterator[Site[T, N]]:
    """Every dataclass of class `kind` below `tree`, in the order of fields."""
    for path, node in _walk(tree, ()):
        if path and is_dataclass(node) and isinstance(node, kind):
            yield Site(tree, path, node)


def named(node: object) -> str:
    """A dataclass in one or two words: its class, and its first field if that is a text."""
    first = next((getattr(node, field.name) for field in fields(cast("DataclassInstance", node))), None)
    return f"{type(node).__name__} {first}" if isinstance(first, str) and first else type(node).__name__


def at(tree: object, path: Path) -> object:
    for step in path:
        tree = cast("tuple[object, ...]", tree)[step] if isinstance(step, int) else getattr(tree, step)
    return tree


def _walk(node: object, path: Path) -> Iterator[tuple[Path, object]]:
    """All below `node`, itself first."""
    yield path, node
    if isinstance(node, tuple):
        for position, item in enumerate(node):
            yield from _walk(item, (*path, position))
    elif is_dataclass(node) and not isinstance(node, type):
        for field in fields(node):
            yield from _walk(getattr(node, field.name), (*path, field.name))


def _rebuilt(node: object, path: Path, new: object) -> object:
    if not path:
        return new
    head, rest = path[0], path[1:]
    if isinstance(head, int):
        items = list(cast("tuple[object, ...]", node))
        items[head] = _rebuilt(items[head], rest, new)
        return tuple(items)
    return replace(cast("DataclassInstance", node), **{head: _rebuilt(getattr(node, head), rest, new)})
