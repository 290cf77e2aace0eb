"""What is legal: tables of independent rules over facts, each with the reason that a user reads.

These are the rules that need to know one decision and its structure. What decisions have to do with each other is found where
they are built (`Illegal`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tilelink.ir.choices import ComputeChoice, ExchangeChoice, TritonLoop
from tilelink.ir.enums import Tail
from tilelink.ir.graph import Relation
from tilelink.ir.movers import ChunkMover, Issuer, Transfer
from tilelink.ir.nodes import TURN_SLICE_BYTES, Kind
from tilelink.ir.order import Cut, Nest
from tilelink.ir.spec import DTYPE_BYTES
from tilelink.planner.group import Group
from tilelink.planner.memo import remembered
from tilelink.planner.rails import rail_ranks
from tilelink.planner.structure import Structure
from topologies.topology import Fabric, Topology


class Carried(NamedTuple):
    """How one relation is carried out, and what decides whether it can be."""

    name: str
    source: str
    mover: ChunkMover
    push: bool
    chunks: int
    cut: Cut  # what chunks are
    rows: int  # of a part
    cols: int
    along_rows: bool  # rows of all ranks are gathered, or scattered to all of them
    scattered: bool
    chunk_major: bool  # a chunk of every rank, then the next chunk
    bounded: bool  # through a number of slots
    returned: bool  # row by row, to the ranks of tokens
    by_experts: bool  # tiles that make the source have rows of one expert each
    listed: bool  # readers find rows by a routing, which says what a rank needs
    routed: bool  # readers find rows by a routing, which are in all parts
    head: int  # columns of a head, where readers are attention and need one at a time; else 0
    head_bytes: int
    by_tiles: bool  # tiles make the source
    made: bool  # in the call, by whomever
    in_place: bool  # peers put their parts into an output
    pooled: bool  # which lies in another place from call to call
    read_by_library: bool  # and by nothing else
    read_whole: bool  # its readers take one tensor: a library's matmul, or a body that reduces over all parts
    topology: Topology

    @property
    def fused(self) -> bool:
        return self.mover.issuer is Issuer.TILES

    @property
    def by_warps(self) -> bool:
        return self.mover.issuer is Issuer.WARPS

    @property
    def extent(self) -> int:
        """What is cut into chunks."""
        return self.rows if self.cut is Cut.ROWS else self.cols

    @property
    def chunk_extent(self) -> int:
        return -(-self.extent // self.chunks)

    @property
    def unit(self) -> str:
        return self.cut.value

    @property
    def no_atomics(self) -> str:
        """Why it does not cross links that carry no atomics, or nothing."""
        transfer = Transfer.PUSH if self.push else Transfer.PULL
        return self.mover.why_not_without_atomics(transfer, by_tiles=self.by_tiles)


NO_WARP_BESIDE = "warps that move are beside two warpgroups, which share tiles of attention"
NOTHING_ELSE = "programs whose warpgroups take tiles in turns do nothing else: they neither copy nor gather packets"

Rule = tuple[Callable[[Carried], bool], Callable[[Carried], str]]  # broken, and why that is illegal

RULES: tuple[Rule, ...] = (
    (
        lambda x: not 1 <= x.chunks <= x.extent,
        lambda x: f"{x.extent} {x.unit} cannot be cut into {x.chunks} chunks",
    ),
    (
        lambda x: (x.chunks - 1) * x.chunk_extent >= x.extent,
        lambda x: f"{x.extent} {x.unit} in chunks of {x.chunk_extent} {x.unit} are fewer than {x.chunks} chunks",
    ),
    (
        lambda x: x.mover.along_rails and rail_ranks(x.topology, x.mover) == x.topology.num_ranks,
        lambda x: f"all ranks of {x.topology.name} are {'on one node' if x.mover.crosses_nodes else 'in one half'}",
    ),
    (
        lambda x: x.topology.num_nodes > 1 and not x.mover.crosses_nodes and not x.bounded,
        lambda x: (
            f"{x.mover.text} reaches its node alone; Rails(n), NeededRails(n), StreamRails(n) and LibraryRails(n) cross nodes"
        ),
    ),
    (
        lambda x: x.mover.along_rails and x.mover.issuer is Issuer.STREAMS and not x.topology.gpu.stream_wait_value,
        lambda x: (
            f"streams wait for words of {x.name} that come along rails, and those of {x.topology.name} do not wait"
        ),
    ),
    (
        lambda x: x.mover.puts is Issuer.PROGRAMS and not peer_atomics(x.topology, inside=True),
        lambda x: f"programs that put {x.name} tell of ends by atomics, and links of {x.topology.name} carry none",
    ),
    (
        lambda x: x.mover.along_rails and not (x.along_rows and x.push and x.cut is Cut.ROWS),
        lambda x: f"rows go along rails that are gathered or scattered, pushed by their owner: {x.name} is not",
    ),
    (
        lambda x: x.mover.along_rails and x.scattered and x.read_by_library,
        lambda x: f"tiles add parts of {x.name} that have come along rails",
    ),
    (
        lambda x: x.mover.along_rails and x.chunk_major,
        lambda x: f"chunks of {x.name} go along rails node by node: nest=rank by rank",
    ),
    (
        lambda x: not peer_atomics(x.topology) and bool(x.no_atomics),
        lambda x: f"{x.name}: {x.no_atomics}; the links of {x.topology.name} carry none",
    ),
    (
        lambda x: x.bounded and bool(x.chunk_extent & (x.chunk_extent - 1)),
        lambda x: (
            f"{x.rows} rows in {x.chunks} items are {x.chunk_extent} rows each, and a tile has a power of two; "
            f"legal numbers of items: {', '.join(map(str, item_counts(x.rows)))}"
        ),
    ),
    (
        lambda x: x.bounded and x.topology.num_nodes > 1,
        lambda x: f"{x.topology.name} has several nodes, between which no slots lie",
    ),
    (
        lambda x: x.returned and not (x.fused and x.chunks == 1),
        lambda x: (
            f"rows of {x.name} go to the ranks of their tokens from the tiles that make them, or to the tiles that add them, "
            "and all at once"
        ),
    ),
    (
        lambda x: x.returned and not x.by_experts,
        lambda x: f"{x.source} is not made by tiles of experts, from which rows could go to ranks of their tokens",
    ),
    (
        lambda x: x.mover.listed and not x.listed,
        lambda x: f"no routing says which rows of {x.name} a rank needs: only dispatched rows are listed",
    ),
    (
        lambda x: x.mover.listed and not (x.chunks == 1 and not x.by_tiles),
        lambda x: f"listed rows of {x.name} go in one chunk, from their owner, which has them all when the call begins",
    ),
    (
        lambda x: x.mover.tile_rows > 0 and not x.push,
        lambda x: (
            f"the owner of rows of {x.name} finds their places, and pushes them there: NeededRows() may be pulled"
        ),
    ),
    (
        lambda x: x.cut is Cut.COLUMNS and not x.routed and not x.head,
        lambda x: (
            f"tiles that read {x.name} wait for rows; columns are of use where a routing finds rows in all parts, as it does "
            "for matmuls of experts, and as heads of keys and values"
        ),
    ),
    (
        lambda x: x.cut is Cut.COLUMNS and x.head > 0 and x.cols % (x.chunks * x.head) > 0,
        lambda x: f"{x.chunks} chunks of {x.cols} columns of {x.name} are no whole heads of {x.head}",
    ),
    (
        lambda x: x.by_warps and x.read_by_library,
        lambda x: f"the first reader of {x.name} is no tile loop beside which warps could move it",
    ),
    (
        lambda x: x.by_warps and x.head_bytes % TURN_SLICE_BYTES > 0,
        lambda x: (
            f"warps push rows of a multiple of {TURN_SLICE_BYTES} bytes, and those of a head of {x.name} have {x.head_bytes}"
        ),
    ),
    (
        lambda x: x.by_warps and (not x.head or not x.push or x.made or x.chunks * x.head != x.cols),
        lambda x: (
            f"warps of tiles of attention push keys and values, head by head, from what is there when the call begins: "
            f"{x.name} is no such thing, or not cut so"
        ),
    ),
    (
        lambda x: (
            x.cut is Cut.COLUMNS and (x.made or x.mover.issuer not in (Issuer.STREAMS, Issuer.WARPS) or not x.push)
        ),
        lambda x: (
            f"columns of {x.name} are pushed by copy engines or by warps, from what is there when the call begins"
        ),
    ),
    (
        lambda x: x.cut is Cut.COLUMNS and x.cols % x.chunks > 0,
        lambda x: f"{x.cols} columns of {x.name} are not {x.chunks} chunks of as many",
    ),
    (
        lambda x: x.in_place and (not x.push or x.mover.programs(scattered=x.scattered) > 0),
        lambda x: f"{x.name} is put together in place by pushes of tiles or of copy engines",
    ),
    (
        lambda x: x.pooled and not x.fused,
        lambda x: f"the host tells copy engines addresses, and peers tell only tiles where {x.name} lies",
    ),
    (
        lambda x: x.in_place and x.fused and x.chunks > 1,
        lambda x: f"tiles that store {x.name} in place signal nothing, so that there are no chunks",
    ),
    (
        lambda x: x.fused and x.push and not x.by_tiles and not x.bounded,
        lambda x: f"{x.source} is not made by tiles that could store to peers",
    ),
    (
        lambda x: x.mover.beside_tiles(scattered=x.scattered) and x.read_by_library and (x.bounded or not x.by_tiles),
        lambda x: f"the first reader of {x.name} is no tile loop beside which SMs could communicate",
    ),
    (
        lambda x: x.fused and not x.push and x.read_whole and not x.returned,
        lambda x: f"{x.name} is read whole, so its tiles cannot be loaded from peers one by one",
    ),
)


@dataclass(frozen=True, slots=True)
class Tiled:
    """A tile loop, as far as rules are about it. `counted`: its tiles are, since they make what an exchange sends. `adds`: parts
    that the tiles of another loop make. `folded`: in the epilogue of the tiles that make them. `finds`: rows of tokens by a
    routing, and it waits for nothing else."""

    name: str
    loop: TritonLoop
    counted: bool
    adds: bool
    folded: bool
    finds: bool


TILE_RULES: tuple[tuple[Callable[[Tiled], bool], Callable[[Tiled], str]], ...] = (
    (
        lambda x: x.folded and not x.adds,
        lambda x: f"{x.name} adds no parts that a tile loop scatters, so there is no epilogue to add them in",
    ),
    (
        lambda x: x.loop.tail is Tail.HALVES and x.counted,
        lambda x: f"tiles of {x.name} cannot be halved: they are counted, or add what others have made",
    ),
    (
        lambda x: bool(x.loop.late) and not (x.counted and x.loop.prefetch),
        lambda x: f"tiles of {x.name} cannot be counted late: they are not counted, or not prefetched",
    ),
    (
        lambda x: x.loop.tile.warpgroups > 1 and (x.loop.tail is not Tail.WHOLE or bool(x.loop.late)),
        lambda x: (
            f"tiles of {x.name} cannot be computed by warpgroups in turns: they are not computed in halves, nor by several "
            "programs, and are counted at once"
        ),
    ),
    (
        lambda x: x.loop.own_first and not x.finds,
        lambda x: (
            f"tiles of {x.name} find no rows of tokens that an exchange brings, or wait for something else, too: "
            "none has own tokens only that could come first"
        ),
    ),
)


def why_no_loop(structure: Structure, group: Group, choice: ComputeChoice) -> str:
    """The reason of the first rule that the loop breaks, or nothing."""
    if not isinstance(choice.loop, TritonLoop):
        return ""
    sent = (one for one in structure.relations if group.makes(one.source) and one.kind is not Kind.SHIFT)
    counted = any(not structure.in_place(one) for one in sent)
    added = structure.graph.relation(group.anchor.reads[0].value)
    adds = added is not None and added.kind is Kind.SCATTER and structure.by_tiles(added.source)
    x = Tiled(group.name, choice.loop, counted, adds, choice.sum_in_epilogue, structure.finds_own_rows(group))
    return next((reason(x) for broken, reason in TILE_RULES if broken(x)), "")


def why_not_beside(
    structure: Structure, relation: Relation, mover: ChunkMover, loops: Mapping[str, ComputeChoice]
) -> str:
    """Why programs that communicate cannot run beside the tiles that make what they send, or else those that read it."""
    if not mover.beside_tiles(scattered=relation.kind is Kind.SCATTER) or relation.kind is Kind.SHIFT:
        return ""
    made = structure.by_tiles(relation.source)
    hosts = (structure.maker(relation.source),) if made else structure.readers(relation.name)[:1]
    for reader in hosts:
        folded = loops[structure.groups[reader].name].sum_in_epilogue
        host = structure.folds_into(reader) if folded else reader
        loop = loops[structure.groups[host].name].loop
        if mover.issuer is Issuer.WARPS:
            shared = isinstance(loop, TritonLoop) and loop.tile.warpgroups > 1
            return "" if shared else NO_WARP_BESIDE
        if isinstance(loop, TritonLoop) and loop.tile.warpgroups > 1:
            return NOTHING_ELSE
        if isinstance(loop, TritonLoop) and (per_sm := loop.tile.per_sm) > 1:
            return f"programs that communicate take whole SMs, and {per_sm} programs of the tiles share one"
    return ""


def why_not_in_order(
    structure: Structure, relation: Relation, mover: ChunkMover, loops: Mapping[str, ComputeChoice]
) -> str:
    """Why rows cannot lie in the order of the tiles that read them."""
    placed = structure.placed(relation, mover.tile_rows) if mover.tile_rows else None
    if placed is None:
        return ""
    kind, rows = type(mover).__name__, placed.height
    readers = structure.readers(relation.name)
    for index, group in enumerate(structure.groups):
        loop = loops[group.name].loop
        if not isinstance(loop, TritonLoop):
            continue
        if index in readers and loop.tile.m != rows:
            return (
                f"{kind}({rows}) puts rows of {relation.name} where tiles of {rows} rows read them, and those of {group.name} "
                f"have {loop.tile.m}; legal: {kind}({loop.tile.m}), or tiles of {rows} rows"
            )
        if loop.own_first and loop.tile.m == rows and placed.routed in (axis.routed for axis in group.anchor.axes):
            return (
                f"{kind}({rows}) puts rows of {relation.name} in the order of all tokens, and tiles of own tokens come first in "
                f"{group.name}; legal: {group.name}.own=in order, or another mover"
            )
    return ""


def why_illegal(structure: Structure, relation: Relation, choice: ExchangeChoice) -> str:
    """The reason of the first rule that the exchange breaks, or nothing."""
    x = carried(structure, relation, choice)
    for broken, reason in RULES:
        if broken(x):
            return reason(x)
    return ""


def carried(structure: Structure, relation: Relation, choice: ExchangeChoice) -> Carried:
    """The facts that rules are about."""
    push = choice.transfer is Transfer.PUSH
    made = structure.by_tiles(relation.source) or structure.split_source(relation, choice)
    cut = choice.cut or Cut.ROWS
    known = _sent(structure, relation.name)
    chunk_major = choice.nest is Nest.CHUNK_MAJOR
    return Carried(
        mover=choice.mover, push=push, chunks=choice.chunks, cut=cut, made=made, chunk_major=chunk_major, **known
    )


@remembered
def _sent(structure: Structure, name: str) -> dict[str, Any]:
    """Those of a relation, however it is carried out."""
    relation = structure.graph.relation(name)
    assert relation is not None
    by_library = [structure.is_library(index) for index in structure.readers(relation.name)]
    return {
        "name": name,
        "source": relation.source,
        "rows": relation.part[0],
        "cols": relation.part[1] if len(relation.part) > 1 else 1,
        "along_rows": relation.kind in (Kind.GATHER, Kind.SCATTER) and relation.dim == 0 and len(relation.part) == 2,
        "scattered": relation.kind is Kind.SCATTER,
        "bounded": relation.kind is Kind.SHIFT,
        "returned": relation.kind is Kind.RETURN,
        "by_experts": structure.by_experts(relation.source),
        "listed": structure.sent(relation) is not None,
        "routed": structure.by_routing(relation) and len(relation.part) == 2,
        "head": structure.head_of(relation),
        "head_bytes": structure.head_of(relation) * DTYPE_BYTES[structure.graph.values[name].dtype],
        "by_tiles": structure.by_tiles(relation.source),
        "in_place": structure.in_place(relation),
        "pooled": structure.pooled(relation),
        "read_by_library": bool(by_library) and all(by_library),
        "read_whole": any(by_library) or structure.needs_own_copy(relation),
        "topology": structure.topology,
    }


def item_counts(rows: int) -> list[int]:
    """Into how many items `rows` rows can be cut: the rows of an item are a power of two, as those of a tile are."""
    sizes = [1 << power for power in range(rows.bit_length() + 1)]
    return [-(-rows // size) for size in sizes if -(-rows // -(-rows // size)) == size]


def peer_atomics(topology: Topology, *, inside: bool = False) -> bool:
    """Whether every link carries atomics on a peer's memory; `inside`: every one that carries loads and stores."""
    levels = (level for level in topology.levels if not inside or level.fabric is not Fabric.NETWORK)
    return all(level.peer_atomics for level in levels)
