"""Find a descriptor by name or path, and cut it to the ranks of the group."""

from __future__ import annotations

import operator
from dataclasses import replace
from importlib import resources
from pathlib import Path

from topologies.descriptor import Descriptor, parse
from topologies.errors import IllegalNodes, IllegalRanks, UnknownTopology, UnreadableDescriptor, did_you_mean
from topologies.nodes import alone, in_nodes
from topologies.topology import Level, Topology, numbers

SUFFIX = ".toml"


def names() -> tuple[str, ...]:
    """The topologies that ship with this package, sorted."""
    files = (entry.name for entry in resources.files("topologies").iterdir())
    return tuple(sorted(file.removesuffix(SUFFIX) for file in files if file.endswith(SUFFIX)))


def load(name_or_path: str, num_ranks: int | None = None, nodes: int | None = None) -> Topology:
    """The topology `name_or_path` with `num_ranks` ranks, all that it has by default; of one node, on so many of them if `nodes`
    says how many, with a NIC of 400 Gb/s for each rank.

    A path has a slash or ends in `.toml`; anything else is one of `names()`. `NAME@2` is the same as `NAME` on two nodes.
    Raises UnknownTopology, UnreadableDescriptor, MalformedDescriptor, IllegalRanks, IllegalNodes.
    """
    base, at, number = name_or_path.rpartition("@")
    if nodes is None and at and number.isdigit():  # the name of what is made below
        return load(base, num_ranks, int(number))
    topology = load_descriptor(name_or_path).topology
    if nodes is None:
        return topology if num_ranks is None else with_ranks(topology, num_ranks)
    if num_ranks is not None:
        if nodes < 1 or num_ranks % nodes:
            raise IllegalNodes(nodes=nodes, topology=topology.name, reason=f"of {num_ranks} ranks each has as many")
        part = with_ranks(topology, num_ranks // nodes) if num_ranks > nodes else alone(topology)
        return in_nodes(part, nodes, topology.levels)
    return in_nodes(topology, nodes, topology.levels)


def load_descriptor(name_or_path: str) -> Descriptor:
    """All that the file says. Raises UnknownTopology, UnreadableDescriptor, MalformedDescriptor."""
    if "/" in name_or_path or name_or_path.endswith(SUFFIX):
        return parse(_read(name_or_path), name_or_path)
    known = names()
    if name_or_path not in known:
        raise UnknownTopology(name=name_or_path, hint=did_you_mean(name_or_path, known), legal=", ".join(known))
    file = name_or_path + SUFFIX
    return parse((resources.files("topologies") / file).read_text(encoding="utf-8"), file)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
    except UnicodeDecodeError as error:
        reason = f"byte {error.start} is not UTF-8"
    except ValueError as error:  # a NUL in the path
        reason = str(error)
    raise UnreadableDescriptor(file=path, reason=reason, legal=", ".join(names()))


def with_ranks(topology: Topology, num_ranks: int) -> Topology:
    """`topology` cut to a group of `num_ranks`, an integer of Python or numpy. Raises IllegalRanks."""
    if not isinstance(num_ranks, bool) and hasattr(num_ranks, "__index__"):
        num_ranks = operator.index(num_ranks)
    reason = _misfit(topology, num_ranks)
    if reason:
        raise IllegalRanks(
            num_ranks=num_ranks, topology=topology.name, reason=reason, legal=_legal_ranks(topology.levels)
        )
    levels: list[Level] = []
    joined = 1
    for level in topology.levels:
        size = min(level.size, num_ranks // joined)
        if size > 1:
            levels.append(replace(level, size=size))
            joined *= size
    cut = replace(topology, num_ranks=num_ranks, levels=tuple(levels))
    left = {key for key, _ in numbers(cut)}
    return replace(cut, provenance=tuple((key, origin) for key, origin in topology.provenance if key in left))


def _misfit(topology: Topology, num_ranks: int) -> str:
    """Why the fabric cannot have `num_ranks`, empty where it can."""
    if not isinstance(num_ranks, int) or isinstance(num_ranks, bool):
        return "it is not a whole number"
    if num_ranks < 1:
        return "a group has at least two ranks"
    if num_ranks == 1:
        return "a single rank has no peer, so there is nothing to communicate and nothing to overlap"
    if num_ranks > topology.num_ranks:
        return f"the fabric has {topology.num_ranks} ranks"
    joined = 1
    for level in topology.levels:
        if num_ranks <= joined * level.size:
            if num_ranks % joined:
                return f"the groups of {joined} that {level.name} joins would not be of equal size"
            return ""
        joined *= level.size
    raise AssertionError("num_ranks is at most the product of the sizes")


def _legal_ranks(levels: tuple[Level, ...]) -> str:
    joined = levels[0].size
    parts = ["2" if joined == 2 else f"2 to {joined}"]
    for level in levels[1:]:
        parts.append(", ".join(str(joined * count) for count in range(2, level.size + 1)[:8]))
        if level.size > 9:
            parts[-1] += f" and so on by {joined} to {joined * level.size}"
        joined *= level.size
    return ", ".join(parts)
