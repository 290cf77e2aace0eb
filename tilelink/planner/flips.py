"""What would flip a choice: the nearest size, and by how much a rate of the machine had to be another one.

M = 8192: x_full by copy engines     4096: the same     2048: by 16 SMs     3072: the same     2560: by 16 SMs   ->   M=2560

Each axis (a size or a rate, smaller or larger) is walked in steps of two until another family wins, and then halved. All axes
take turns, so that a walk that is cut short has tried what is near on each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from tilelink.errors import NoLegalSchedule, TooLargeToPlan
from tilelink.ir.spec import BoundSpec
from tilelink.planner.choices import Pins
from tilelink.planner.families import Family, family_of, key_of
from tilelink.planner.plan import search
from topologies.errors import UserError
from topologies.topology import Fabric, Ramp, Topology

_MOST_STEPS = 4  # doublings of an axis
_NEAR = 1.06  # a flip is known to within so much

Bind = Callable[[Mapping[str, int]], BoundSpec]  # raises UserError


@dataclass(frozen=True, slots=True)
class Flip:
    """Where another family wins: `axis` at `value`, but not yet at `before`. `us`: the predicted time there. Of a size the value
    is its number of elements, of a rate a factor of what the descriptor says."""

    axis: str
    value: float
    before: float
    fields: Pins  # of that family
    differs: Pins  # of these, what is other than now
    us: float


@dataclass(frozen=True, slots=True)
class Walked:
    """An axis in one direction: its flip, if one was found; else the last value at which the chosen family still wins, `before`
    which nothing else was found, and why the walk ended."""

    axis: str
    larger: bool
    flip: Flip | None
    last: float
    why: str


@dataclass(frozen=True, slots=True)
class _Axis:
    """`planned`: the winner at a value, or why there is none. `rounded`: the nearest value that may be legal."""

    name: str
    larger: bool
    now: float
    planned: Callable[[float], Family | str]
    rounded: Callable[[float, float], float]
    first: float = 0.0  # value to try, 0: twice as much, or half


def flips(
    bind: Bind,
    sizes: Mapping[str, int],
    topology: Topology,
    pins: Pins,
    chosen: Family,
    more: Callable[[], bool],
) -> list[Walked]:
    """All axes, walked while there is `more` time."""
    walks = [_walk(axis, chosen) for axis in _axes(bind, sizes, topology, pins)]
    found = [next(walk) for walk in walks]
    waiting = list(range(len(walks)))
    while waiting and more():
        at = waiting.pop(0)
        step = next(walks[at], None)
        if step is not None:
            found[at] = step
            waiting.append(at)
    return found


def _axes(bind: Bind, sizes: Mapping[str, int], topology: Topology, pins: Pins) -> Iterator[_Axis]:
    def at_size(name: str) -> Callable[[float], Family | str]:
        return lambda value: _winner(lambda: bind({**sizes, name: int(value)}), topology, pins)

    def at_rate(scaled: Callable[[Topology, float], Topology]) -> Callable[[float], Family | str]:
        return lambda factor: _winner(lambda: bind(sizes), scaled(topology, factor), pins)

    for larger in (False, True):
        for name, rate in NETWORK_RATES.items() if topology.num_nodes > 1 else ():
            scale = at_rate(rate.scaled)
            yield _Axis(name, larger, 1.0, scale, lambda value, _: value, rate.likely[larger])
        for name, size in sizes.items():
            yield _Axis(name, larger, size, at_size(name), _even)
        for name, scaled in RATES.items():
            yield _Axis(name, larger, 1.0, at_rate(scaled), lambda value, _: value)


def _walk(axis: _Axis, chosen: Family) -> Iterator[Walked]:
    """What is known of an axis, after each search on it."""
    same, other = axis.now, None
    yield Walked(axis.name, axis.larger, None, same, "not tried")
    for step in range(_MOST_STEPS):
        value = axis.rounded(same * 2 if axis.larger else same / 2, same)
        value = axis.first if axis.first and not step else value
        if value == same or value <= 0:
            yield Walked(axis.name, axis.larger, None, same, "the smallest that is")
            return
        won = axis.planned(value)
        if isinstance(won, str):
            yield Walked(axis.name, axis.larger, None, same, won)
            return
        if key_of(won) != key_of(chosen):
            other = Flip(axis.name, value, same, won.fields, won.differs(chosen), won.us)
            break
        same = value
        last = step == _MOST_STEPS - 1
        yield Walked(
            axis.name, axis.larger, None, same, "no other family wins" if last else "no further value was tried"
        )
    if other is None:
        return
    yield Walked(axis.name, axis.larger, other, same, "")
    while max(other.value / same, same / other.value) > _NEAR:
        middle = axis.rounded((same * other.value) ** 0.5, same)
        if not min(same, other.value) < middle < max(same, other.value):
            break
        won = axis.planned(middle)
        if isinstance(won, str):
            break
        if key_of(won) == key_of(chosen):
            same, other = middle, replace(other, before=middle)
        else:
            other = Flip(axis.name, middle, same, won.fields, won.differs(chosen), won.us)
        yield Walked(axis.name, axis.larger, other, same, "")


def _winner(bound: Callable[[], BoundSpec], topology: Topology, pins: Pins) -> Family | str:
    """The family that is planned, or why nothing is."""
    try:
        return family_of(search(bound(), topology, pins)[0])
    except (NoLegalSchedule, TooLargeToPlan) as error:
        return f"nothing is planned beyond: {type(error).__name__}"
    except UserError as error:
        return f"sizes beyond are not legal: {type(error).__name__}"


def _even(value: float, near: float) -> float:
    """A whole number with many factors of two, so that ranks and tiles divide it: within 1/8 of the distance to `near`."""
    unit = 1
    while unit * 16 <= max(1.0, abs(value - near)):
        unit *= 2
    return float(max(1, round(value / unit)) * unit)


def _with_links(topology: Topology, factor: float) -> Topology:
    levels = tuple(replace(level, gb_per_s=level.gb_per_s * factor) for level in topology.levels)
    ramps = (topology.copy_engine, topology.push_sms, topology.pull_sms)
    copy_engine, push, pull = (Ramp(tuple((x, rate * factor) for x, rate in ramp.points)) for ramp in ramps)
    return replace(topology, levels=levels, copy_engine=copy_engine, push_sms=push, pull_sms=pull)


def _with_network(topology: Topology, rate: float, latency: float) -> Topology:
    levels = (
        replace(level, gb_per_s=level.gb_per_s * rate, signal_us=level.signal_us * latency)
        if level.fabric is Fabric.NETWORK
        else level
        for level in topology.levels
    )
    return replace(topology, levels=tuple(levels))


def _with_matmuls(topology: Topology, factor: float) -> Topology:
    peaks = tuple((dtype, rate * factor) for dtype, rate in topology.gpu.dense_tflops)
    return replace(topology, gpu=replace(topology.gpu, dense_tflops=peaks))


def _with_memory(topology: Topology, factor: float) -> Topology:
    return replace(topology, gpu=replace(topology.gpu, memory_gb_per_s=topology.gpu.memory_gb_per_s * factor))


def _with_latency(topology: Topology, factor: float) -> Topology:
    levels = tuple(replace(level, signal_us=level.signal_us * factor) for level in topology.levels)
    gpu = replace(topology.gpu, kernel_launch_us=topology.gpu.kernel_launch_us * factor)
    start = topology.copy_engine_start_us * factor
    return replace(topology, gpu=gpu, levels=levels, copy_engine_start_us=start)


# what the descriptor says of a machine, together; starts that are constants of the cost model are in none of them
RATES: Mapping[str, Callable[[Topology, float], Topology]] = {
    "link bandwidth": _with_links,
    "matmul rate": _with_matmuls,
    "memory bandwidth": _with_memory,
    "latency of signals, launches and copies": _with_latency,
}


@dataclass(frozen=True, slots=True)
class Likely:
    """A rate, and between which factors of what the descriptor says it may well be."""

    scaled: Callable[[Topology, float], Topology]
    likely: tuple[float, float]


# one NIC of 400 Gb/s passes 42 to 48 GB/s, and a put with its signal takes 6 to 12 us (half of the 16 to 24 us there and back
# that GIN and NVSHMEM were measured at): beside 45 GB/s and 8 us
NETWORK_RATES: Mapping[str, Likely] = {
    "network bandwidth": Likely(lambda topology, factor: _with_network(topology, factor, 1.0), (0.93, 1.07)),
    "network latency": Likely(lambda topology, factor: _with_network(topology, 1.0, factor), (0.75, 1.5)),
}
