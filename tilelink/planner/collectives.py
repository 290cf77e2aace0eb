"""How each collective of a spec may be carried out: every combination of independent fields that breaks no rule of a table.

A rule has the reason that a user reads. The fields are pins of the collective: `shots`, `protocol`, `landing`,
`multicast`, and `mover` where no exchanges of chunks carry it out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product

from tilelink.ir.collective import Adder, Collective, Landing
from tilelink.ir.dtype import DTYPES
from tilelink.ir.enums import Protocol
from tilelink.ir.movers import Fused, Library, OwnKernel
from tilelink.ir.slices import as_carried_out, as_computed
from tilelink.ir.spec import (
    DTYPE_BYTES,
    AllGather,
    AllReduce,
    BoundNode,
    BoundSpec,
    Combine,
    Elementwise,
    Matmul,
    Merged,
    ReduceScatter,
    ReduceTokens,
    SendRecv,
)
from tilelink.planner import fields
from tilelink.planner.choices import Pin, Pins, pinned
from tilelink.planner.fields import AnyField
from tilelink.planner.rules import peer_atomics
from tilelink.planner.states import merges
from topologies.topology import Topology

MOST_PACKETS = 512 << 10  # to a peer: beyond, signals cost less than the numbers that packets of LL carry (2 x H200)
COLLECTIVES = (AllGather, ReduceScatter, AllReduce, SendRecv, Merged)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A collective, a way to carry it out, and what decides whether that is legal.

    `bytes`: that go to a peer. `row_bytes`: of a row of the tiles that make what is added, 0 if no tiles do.
    """

    name: str
    operation: type
    how: Collective
    rows: int
    num_ranks: int
    bytes: int
    row_bytes: int
    is_only_output: bool
    topology: Topology
    integers: bool = False

    @property
    def packets(self) -> float:
        """To a peer, or of the share that each rank adds; tiles have shares of their own. Lines are filled up."""
        shares = self.num_ranks if self.how.shots > 1 and not self.how.in_tiles else 1
        packets = self.bytes / (self.how.protocol.data_bytes * shares)
        return math.ceil(packets) if self.how.protocol is Protocol.LL128 else packets


Rule = tuple[Callable[[Candidate], bool], Callable[[Candidate], str]]  # broken, and why that is illegal

# of fields alone
FIELD_RULES: tuple[tuple[Callable[[type, Collective], bool], str], ...] = (
    (
        lambda _, how: how.multicast and not (how.by_packets and isinstance(how.mover, OwnKernel)),
        "only packets of a kernel of its own go to all ranks by one store: mover=OwnKernel(), and protocol=ll or lamport",
    ),
    (
        lambda _, how: how.protocol is Protocol.LL128 and how.multicast,
        "a line would come to each rank in pieces: only packets of 8 bytes go to all ranks by one store",
    ),
    (
        lambda _, how: how.protocol is Protocol.LL128 and not isinstance(how.mover, OwnKernel),
        "only a kernel of its own moves lines, whose threads lie as lines need them: mover=OwnKernel()",
    ),
    (
        lambda operation, how: operation is SendRecv and how != Collective(),
        "a send_recv goes through slots, in one shot",
    ),
    (
        lambda operation, how: how.shots > 1 and operation is not AllReduce,
        "only an all_reduce has a second shot, which gathers the sums",
    ),
    (
        lambda _, how: how.lands_there and not (how.by_chunks and how.shots > 1),
        "only what exchanges gather in a second shot lands where the caller reads it",
    ),
    (
        lambda _, how: how.by_packets and not isinstance(how.mover, OwnKernel | Fused),
        "packets are moved by a kernel of their own or by tiles: mover=OwnKernel() or mover=Fused()",
    ),
    (
        lambda _, how: not how.by_packets and isinstance(how.mover, OwnKernel | Fused),
        "a kernel of its own moves packets: protocol=ll, protocol=lamport or protocol=ll128",
    ),
    (
        lambda _, how: how.by_library and how.shots > 1,
        "the library decides itself how many shots it takes",
    ),
    (
        lambda operation, how: how.multicast and operation not in (AllGather, AllReduce),
        "each rank gets other packets of it, and one store brings all ranks the same",
    ),
    (
        lambda operation, how: how.adder is Adder.RECEIVER and operation is not ReduceTokens,
        "only of what experts on several ranks make rows travel before they are added",
    ),
    (
        lambda _, how: how.adder is Adder.RECEIVER and how != Collective(adder=Adder.RECEIVER),
        "rows that travel before they are added go straight from the tiles that make them, with signals",
    ),
)

RULES: tuple[Rule, ...] = (
    (
        lambda x: x.how.multicast and not x.topology.multicast,
        lambda x: f"one store reaches all ranks where all links have multicast, and those of {x.topology.name} do not",
    ),
    (
        lambda x: bool(x.how.within_node) and x.topology.ranks_per_node == 1,
        lambda x: f"{x.how.within_node} to ranks of the same node, and each node of {x.topology.name} has one",
    ),
    (
        lambda x: x.topology.num_nodes > 1 and not x.how.by_library and not _over_nodes(x.operation, x.how),
        lambda x: (
            f"peers on other nodes of {x.topology.name} have no address here: chunks of an all_gather go to them, of a "
            "reduce_scatter, and of an all_reduce in two shots whose sums are copied; packets that number the call "
            "(protocol=ll, ll128) of an all_gather; all else is mover=Library()"
        ),
    ),
    (
        lambda x: x.how.protocol is Protocol.LL128 and not x.topology.whole_lines,
        lambda x: (
            f"a line of 128 bytes comes whole over NVLink between GPUs of NVIDIA, and {x.topology.name} has other links"
        ),
    ),
    (
        lambda x: not peer_atomics(x.topology, inside=True) and bool(x.how.why_not_without_atomics),
        lambda x: f"{x.how.why_not_without_atomics}; the links of {x.topology.name} carry none",
    ),
    (
        lambda x: x.how.by_chunks and x.how.shots > 1 and x.rows % x.num_ranks > 0,
        lambda x: f"{x.num_ranks} ranks do not divide the {x.rows} rows of {x.name}, of which each adds a share",
    ),
    (
        lambda x: x.how.lands_there and not x.is_only_output,
        lambda x: (
            f"{x.name} is read by the spec itself, or is no output, so that it cannot land where the caller reads it"
        ),
    ),
    (
        lambda x: x.integers and (x.how.by_chunks or x.how.in_tiles or x.how.protocol is Protocol.LAMPORT),
        lambda x: (
            f"{x.name} are numbers of any bits, which tables are made of at once: the library, or packets of ll or ll128"
        ),
    ),
    (
        lambda x: x.how.by_packets and x.packets % 1 > 0,
        lambda x: f"the {x.bytes} bytes of {x.name} are no whole packets of {x.how.protocol.data_bytes} bytes of data",
    ),
    (
        lambda x: x.how.by_packets and x.packets > MOST_PACKETS // x.how.protocol.threads,
        lambda x: (
            f"the {x.bytes} bytes of {x.name} are more than {MOST_PACKETS // x.how.protocol.threads:,} packets to a peer"
        ),
    ),
    (
        lambda x: x.how.in_tiles and x.operation is not AllGather and not x.row_bytes,
        lambda x: f"what {x.name} adds is not made by tiles with rows and columns",
    ),
    (
        lambda x: x.how.in_tiles and x.row_bytes % x.how.protocol.data_bytes > 0,
        lambda x: f"rows of {x.row_bytes} bytes are no whole packets of {x.how.protocol.data_bytes} bytes of data",
    ),
)


_PACKETS_OVER_NODES = (
    Collective(OwnKernel(), Protocol.LL),
    Collective(OwnKernel(), Protocol.LL, multicast=True),
    Collective(OwnKernel(), Protocol.LL128),
)


def _over_nodes(operation: type, how: Collective) -> bool:
    """Whether chunks of it go along rails, or packets that nobody has to empty."""
    if operation is AllGather and how in _PACKETS_OVER_NODES:
        return True
    return operation in (AllGather, ReduceScatter, ReduceTokens, AllReduce) and how == Collective(
        shots=2 if operation is AllReduce else 1
    )


@cache
def _every() -> tuple[Collective, ...]:
    """All combinations of fields: exchanges first, the library last."""
    movers = (None, OwnKernel(), Fused(), Library())
    found = product((False, True), (1, 2), Protocol, movers, Landing, Adder)
    every = [
        Collective(mover, protocol, shots, landing, adder, multicast=multicast)
        for multicast, shots, protocol, mover, landing, adder in found
    ]
    return tuple(sorted(every, key=lambda how: (how.by_library, not how.by_chunks)))


@cache
def _of(operation: type) -> tuple[Collective, ...]:
    """Those that no rule of fields forbids for an operation."""
    return tuple(how for how in _every() if not _broken(operation, how))


def _broken(operation: type, how: Collective) -> str:
    """The reason of the first rule of `FIELD_RULES` that it breaks, or nothing."""
    return next((reason for broken, reason in FIELD_RULES if broken(operation, how)), "")


def legal_collectives(spec: BoundSpec, topology: Topology) -> tuple[tuple[str, tuple[Collective, ...]], ...]:
    """(name, every legal way) of each collective of the spec on this machine."""
    computed = as_computed(spec)
    return tuple(
        (
            node.output.name,
            tuple(how for how in _ways(computed, node, topology) if not _why(computed, node, how, topology)),
        )
        for node in computed.nodes
        if isinstance(node.operation, COLLECTIVES)
    )


def _ways(spec: BoundSpec, node: BoundNode, topology: Topology) -> tuple[Collective, ...]:
    """Those that no rule of fields forbids; of states, those that are worth trying."""
    return merges(node, topology) if isinstance(node.operation, Merged) else _of(type(node.operation))


def _why(spec: BoundSpec, node: BoundNode, how: Collective, topology: Topology) -> str:
    """The reason of the first rule of `RULES` that it breaks, or nothing."""
    name, ranks = node.output.name, spec.num_ranks
    sent = math.prod(node.output.local) * DTYPE_BYTES[node.output.dtype]
    sent //= ranks if isinstance(node.operation, AllGather) else 1
    only = name in spec.outputs and not any(name in other.inputs for other in spec.nodes)
    of_row = 0 if isinstance(node.operation, AllGather) else _row_bytes(spec, node)
    rows, integers = node.output.local[0], DTYPES[node.output.dtype].integer
    x = Candidate(name, type(node.operation), how, rows, ranks, sent, of_row, only, topology, integers)
    return next((reason(x) for broken, reason in RULES if broken(x)), "")


def _row_bytes(spec: BoundSpec, node: BoundNode) -> int:
    """Of a row of what `node` adds, as far as it goes to one rank, if tiles with rows and columns make it."""
    maker = next((other for other in spec.nodes if other.output.name == node.inputs[0]), None)
    if maker is None or not isinstance(maker.operation, Matmul | Elementwise | Combine) or len(maker.output.local) != 2:
        return 0
    cols = maker.output.local[1]
    if isinstance(node.operation, ReduceScatter) and node.operation.dim == 1:
        cols //= spec.num_ranks
    return cols * DTYPE_BYTES[maker.output.dtype]


# ---- as pins -----------------------------------------------------------------------------------------------------------


def collective_fields(operation: type, how: Collective) -> dict[AnyField, object]:
    """Values of the fields that are choices here. What exchanges carry out has no mover: each of them has its own."""
    if operation is SendRecv:
        return {}
    if operation is Merged:
        return {field: value for field, value in _all_fields(how).items() if field in _OF_STATES}
    idle = {
        fields.SHOTS: how.by_library or operation is not AllReduce,
        fields.PROTOCOL: how.by_library,
        fields.LANDING: not how.by_chunks or how.shots == 1,
        fields.ADDER: operation is not ReduceTokens,
        fields.SPLITS: True,
        fields.FOLD: True,
        fields.MULTICAST: not how.multicast,
    }
    return {field: value for field, value in _all_fields(how).items() if not idle.get(field, False)}


_OF_STATES = (fields.PROTOCOL, fields.MOVER, fields.SPLITS, fields.FOLD)


def fits(operation: type, name: str, how: Collective, pins: Pins) -> bool:
    """Whether it has the fields that pins ask of the collective. A mover of chunks is asked of exchanges, and of nothing else."""
    return operation is SendRecv or _agree(collective_fields(operation, how), name, pins)


def _agree(values: Mapping[AnyField, object], name: str, pins: Pins) -> bool:
    """Whether the fields have the values that are pinned, as far as they are there."""
    asked = {field: pinned(pins, name, field) for field in fields.OF_COLLECTIVES}
    if fields.MOVER not in values and isinstance(asked[fields.MOVER], OwnKernel | Library):  # movers of no exchange
        return False
    return all(asked[field] in (None, value) for field, value in values.items())


def why_none_fits(spec: BoundSpec, topology: Topology, pins: Pins) -> str:
    """Why no way to carry out some collective has the fields that pins ask for, or nothing."""
    computed = as_computed(spec)
    for node in computed.nodes:
        operation, name = type(node.operation), node.output.name
        if not isinstance(node.operation, COLLECTIVES):
            continue
        every = merges(node, topology) if operation is Merged else _every()
        asked = [how for how in every if _agree(_all_fields(how), name, pins)]
        reasons = [_broken(operation, how) or _why(computed, node, how, topology) for how in asked]
        if asked and all(reasons):
            of_fields = {reason for _, reason in FIELD_RULES}
            return next((one for one in reasons if one not in of_fields), reasons[0])
    return ""


def why_not_here(spec: BoundSpec, topology: Topology, pins: Pins) -> str:
    """The same, where it is sizes or the machine that no such way goes with, or nothing."""
    reason = why_none_fits(spec, topology, pins)
    return "" if reason in {one for _, one in FIELD_RULES} else reason


def _all_fields(how: Collective) -> dict[AnyField, object]:
    """Values of all fields, whether they are choices or not."""
    mover = {} if how.mover is None else {fields.MOVER: how.mover}
    return {
        fields.SHOTS: how.shots,
        fields.PROTOCOL: how.protocol,
        fields.LANDING: how.landing,
        fields.ADDER: how.adder,
        fields.SPLITS: how.splits,
        fields.FOLD: how.tile,
        fields.MULTICAST: how.multicast,
        **mover,
    }


def collective_pins(spec: BoundSpec, collectives: Iterable[tuple[str, Collective]]) -> dict[Pin, object]:
    """The fields of some collectives, as far as they are carried out."""
    chosen = tuple(collectives)
    made = {node.output.name for node in as_carried_out(spec, chosen).nodes}
    return {
        (name, field): value
        for name, how in chosen
        if name in made
        for field, value in collective_fields(operation_of(spec, name), how).items()
    }


def collective_names(spec: BoundSpec) -> tuple[str, ...]:
    """Of the collectives, in program order."""
    return tuple(node.output.name for node in as_computed(spec).nodes if isinstance(node.operation, COLLECTIVES))


def operation_of(spec: BoundSpec, name: str) -> type:
    return next(type(node.operation) for node in as_computed(spec).nodes if node.output.name == name)
