"""Places in a schedule: each node with the path to it, and the schedule with something else there.

for site in sites(schedule, Wait):
    site.label                                   # "role out, step 0 Wait x_full_arrived"
    site.put(replace(site.node, fence=False))    # the schedule with that one field changed
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from tilelink.ir.calls import Collective, LibraryGemm
from tilelink.ir.nodes import (
    Axis,
    Buffer,
    CommRole,
    ComputeRole,
    CopyOwn,
    CopyProgram,
    Exchange,
    Kernel,
    Publish,
    Signal,
    TellPlace,
)
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import (
    Apply,
    AwaitPlaces,
    IfOwn,
    Load,
    MatmulBody,
    Notify,
    Operand,
    SlotNotify,
    SlotWait,
    Store,
    SumParts,
    SumWords,
    UserBody,
    Wait,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

N = TypeVar("N", bound="DataclassInstance")
Path = tuple[str | int, ...]  # names of fields, positions in tuples
Edits = Iterator[tuple[str, Schedule]]  # (site, mutated schedule)
Operator = Callable[[Schedule], Edits]  # its name, with spaces, is that of the operator

_PARTS = ("machine", "buffers", "signals", "exchanges", "launches")  # the spec is given, choices say what was wished


@dataclass(frozen=True, slots=True)
class Site(Generic[N]):
    """`node` at `path` in `schedule`; `ancestors` are the nodes on the way to it, outermost first."""

    schedule: Schedule
    path: Path
    ancestors: tuple[object, ...]
    node: N

    @property
    def label(self) -> str:
        """Where it is, in words of the printed schedule."""
        return _label(self.path, (*self.ancestors, self.node))

    @property
    def role(self) -> ComputeRole | None:
        """The tile loop that the node belongs to."""
        return next((node for node in self.ancestors if isinstance(node, ComputeRole)), None)

    @property
    def siblings(self) -> tuple[object, ...]:
        """The tuple that the node stands in; itself alone if it is the value of a field."""
        if not isinstance(self.path[-1], int):
            return (self.node,)
        parent = _at(self.schedule, self.path[:-1])
        assert isinstance(parent, tuple)
        return parent

    @property
    def position(self) -> int:
        """Index among the siblings."""
        last = self.path[-1]
        return last if isinstance(last, int) else 0

    def put(self, node: object) -> Schedule:
        """The schedule with `node` here."""
        return cast("Schedule", _rebuilt(self.schedule, self.path, node))

    def put_all(self, *nodes: object) -> Schedule:
        """The schedule with any number of nodes in place of this one, which stands in a tuple."""
        before, after = self.siblings[: self.position], self.siblings[self.position + 1 :]
        return cast("Schedule", _rebuilt(self.schedule, self.path[:-1], (*before, *nodes, *after)))

    def drop(self) -> Schedule:
        """Without this node: gone from its tuple, or None where a field may be None."""
        return self.put_all() if isinstance(self.path[-1], int) else self.put(None)

    def swap_with_next(self) -> Schedule:
        """With this node behind its next sibling."""
        order = list(self.siblings)
        here = self.position
        order[here], order[here + 1] = order[here + 1], order[here]
        return cast("Schedule", _rebuilt(self.schedule, self.path[:-1], tuple(order)))

    @property
    def follower(self) -> object:
        """The next sibling, or None."""
        later = self.siblings[self.position + 1 :]
        return later[0] if isinstance(self.path[-1], int) and later else None


def sites(schedule: Schedule, kind: type[N]) -> Iterator[Site[N]]:
    """Every node of class `kind`, in the order of the printed schedule."""
    for part in _PARTS:
        for path, ancestors, node in _walk(getattr(schedule, part), (part,), ()):
            if isinstance(node, kind):
                yield Site(schedule, path, ancestors, node)


def variants(schedule: Schedule, kind: type[N], change: Callable[[Site[N]], Iterable[N]]) -> Edits:
    """Each node of class `kind` replaced by each of `change(site)`; the site says which fields differ."""
    for site in sites(schedule, kind):
        for node in change(site):
            if node != site.node:
                yield f"{site.label}: {difference(site.node, node)}", site.put(node)


def difference(before: DataclassInstance, after: DataclassInstance) -> str:
    """`rows m -> n` for each field that differs."""
    return ", ".join(
        f"{field.name} {shown(getattr(before, field.name))} -> {shown(getattr(after, field.name))}"
        for field in fields(before)
        if getattr(before, field.name) != getattr(after, field.name)
    )


def shown(value: object) -> str:
    """A field's value for a site."""
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, str):
        return value or "nothing"
    return repr(value)


def _walk(
    node: object, path: Path, ancestors: tuple[object, ...]
) -> Iterator[tuple[Path, tuple[object, ...], DataclassInstance]]:
    if isinstance(node, tuple):
        for position, item in enumerate(node):
            yield from _walk(item, (*path, position), ancestors)
    elif is_dataclass(node) and not isinstance(node, type):
        yield path, ancestors, node
        for field in fields(node):
            yield from _walk(getattr(node, field.name), (*path, field.name), (*ancestors, node))


def _at(node: object, path: Path) -> object:
    for step in path:
        node = cast("tuple[object, ...]", node)[step] if isinstance(step, int) else getattr(node, step)
    return node


def _rebuilt(node: object, path: Path, new: object) -> object:
    if not path:
        return new
    head, rest = path[0], path[1:]
    if isinstance(head, int):
        items = list(cast("tuple[object, ...]", node))
        items[head] = _rebuilt(items[head], rest, new)
        return tuple(items)
    return replace(cast("DataclassInstance", node), **{head: _rebuilt(getattr(node, head), rest, new)})


def _label(path: Path, nodes: tuple[object, ...]) -> str:
    """`nodes` are those along `path`; a node in a tuple is preceded by its position there."""
    words: list[str] = []
    reached: object = None
    positions = _positions(path, nodes)
    for node, (field, position) in zip(nodes, positions, strict=True):
        if isinstance(node, ComputeRole) and words:
            words.pop()  # the kernel is called after its role
        words.append(_word(node, reached, field, position))
        reached = node
    return ", ".join(words)


def _positions(path: Path, nodes: tuple[object, ...]) -> list[tuple[str, int]]:
    """(field, position in its tuple or -1) of each node; pairs in a tuple count as one step."""
    groups: list[tuple[str, int]] = []
    for step in path:
        if isinstance(step, str):
            groups.append((step, -1))
        elif groups[-1][1] < 0:
            groups[-1] = (groups[-1][0], step)
    assert len(groups) == len(nodes), "every node on the way was reached through one field"
    return groups


def _word(node: object, parent: object, field: str, position: int) -> str:
    kind, name = type(node).__name__, _name(node)
    title = f"{kind} {name}".rstrip()
    if field == "launches":
        return f"launch {position} {title}"
    if isinstance(parent, ComputeRole | IfOwn) and field in ("body", "own", "others"):
        return f"{'' if field == 'body' else f'{field} '}step {position} {title}"
    match node:
        case ComputeRole() | CommRole():
            return f"{'role' if isinstance(node, ComputeRole) else 'communication'} {name}"
        case Signal() | Buffer() | Exchange() | Axis():
            return f"{kind.lower()} {name}"
        case Operand():
            return f"{field} {name}"
        case Wait() | SlotWait() | SlotNotify() | AwaitPlaces():
            return title
        case _:
            return field


def _name(node: object) -> str:
    match node:
        case Signal() | Buffer() | Exchange() | Axis() | ComputeRole() | Kernel():
            return node.name
        case CommRole() | CopyProgram() | Publish() | TellPlace() | CopyOwn():
            return node.exchange
        case LibraryGemm(out=out):
            return out.buffer
        case Collective(function=function):
            return function
        case Wait(signal=signal) | SlotWait(signal=signal) | SlotNotify(signal=signal) | AwaitPlaces(signal=signal):
            return signal
        case Notify(count=count):
            return count
        case Operand(buffer=buffer):
            return buffer
        case Store(operand=operand):
            return operand.buffer
        case MatmulBody(result=result) | UserBody(result=result) | SumParts(result=result) | SumWords(result=result):
            return result
        case Load(result=result) | Apply(result=result):
            return result
        case IfOwn(axis=axis):
            return axis
        case _:
            return ""
