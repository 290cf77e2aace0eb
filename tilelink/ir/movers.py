"""Who moves bytes. A mover of chunks is one class: its text, what it can cross, what it takes, and how fast it is.

Everything else asks for its `issuer` only: its steps (`tilelink.elaborate.movers`), where it runs, what its readers wait for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import ClassVar, Self

from tilelink.ir.enums import Choice
from topologies.topology import Gpu, Topology

FUSED_SHARE = 0.9  # of what copy loops on as many SMs reach: stores of tiles to peers; fitted to 2 x H200
_BESIDE_SHARE = 0.7  # of what SMs copy alone, they copy beside a matmul; fitted to 2 and 4 x H200
_WARPS_SHARE = 0.7  # of what all SMs copy alone, warps of theirs push beside tiles; not measured by itself
_ENGINE_PULLS = 0.956  # pulls of a copy engine run at 372 / 389 of its pushes (4 x H200)
_SHARE_START_US = 4.0  # programs that copy a chunk together: barrier, count, notify; fitted to 4 x H200
COPY_START_US = 6.5  # copy, signal, and the gaps between them on the stream; fitted to 4 x H200


class Transfer(Choice):
    """Who issues the access."""

    PUSH = "push"  # the owner writes into the peer's buffer
    PULL = "pull"  # the reader loads from the peer's buffer


class Issuer(Choice):
    """What kind of role issues the accesses of a mover."""

    STREAMS = "streams"  # streams of the host beside that of the operator
    PROGRAMS = "programs"  # programs in the launch of tiles, beside these or before them
    TILES = "tiles"  # the tiles that make the bytes, or read them
    WARPS = "warps"  # a warp in each program of the tiles that read the bytes, beside those that compute


@dataclass(frozen=True, slots=True)
class Mover:
    """The base of all movers."""

    @property
    def text(self) -> str:
        """As a pin."""
        return f"{type(self).__name__}({', '.join(map(str, astuple(self)))})"


@dataclass(frozen=True, slots=True)
class OwnKernel(Mover):
    """Packets move by one kernel that does nothing else."""


@dataclass(frozen=True, slots=True)
class Library(Mover):
    """One call of NCCL or RCCL moves everything; nothing overlaps with it."""


@dataclass(frozen=True, slots=True)
class ChunkMover(Mover, ABC):
    """The base of movers of chunks."""

    issuer: ClassVar[Issuer]
    listed: ClassVar[bool] = False  # whether it moves only rows that a routing says their receiver needs
    only_pinned: ClassVar[bool] = False  # whether it is planned only if a pin asks for it
    crosses_nodes: ClassVar[bool] = False  # whether it reaches ranks of other nodes, which loads and stores do not
    along_rails: ClassVar[bool] = False  # whether it goes to ranks of the same place in other groups, which hand it on
    puts: ClassVar[Issuer | None] = None  # who puts what goes there, if anybody does

    @property
    def sms(self) -> int:
        """SMs that tiles lack."""
        return 0

    @property
    def library_sms(self) -> int:
        """SMs that calls of a library hold while tiles wait for them."""
        return 0

    def programs(self, *, scattered: bool) -> int:
        """How many move what is scattered, or gathered, beside tiles."""
        return self.sms

    def beside_tiles(self, *, scattered: bool) -> bool:
        """Whether it moves within a launch of tiles, while these are computed."""
        return self.programs(scattered=scattered) > 0

    @property
    def tile_rows(self) -> int:
        """Rows of the tiles in whose order the receiver gets rows; 0: it gets them in the order of their owner."""
        return 0

    @property
    def small(self) -> Self:
        """The same for a machine of few SMs, and for the smallest tiles."""
        return self

    @abstractmethod
    def what(self, exchange: str) -> str:
        """What it does, in the terms of the cost model."""

    def why_not_without_atomics(self, transfer: Transfer, *, by_tiles: bool) -> str:
        """Why it does not cross links that carry no atomics, or nothing. `by_tiles`: tiles count the chunks that it sends."""
        return "programs of kernels tell peers by atomics, and only copy engines tell them by copies"

    @abstractmethod
    def gb_per_s(self, topology: Topology, transfer: Transfer, num_bytes: float) -> float:
        """With one peer, whatever the link carries."""

    def start_us(self, topology: Topology) -> tuple[float, float]:
        """Of a chunk: what its bytes take at least, and what comes on top."""
        return 1.0, _SHARE_START_US

    @classmethod
    def tried(cls, gpu: Gpu) -> Iterator[Self]:
        """Those that the search tries."""
        yield cls()

    @classmethod
    def more(cls, gpu: Gpu) -> str:
        """What else may be pinned than what is tried, in words."""
        return ""


@dataclass(frozen=True, slots=True)
class CopyEngine(ChunkMover):
    """Bytes move on DMA engines: no SM is taken."""

    issuer: ClassVar[Issuer] = Issuer.STREAMS

    def what(self, exchange: str) -> str:
        return f"copies of {exchange} by copy engines"

    def why_not_without_atomics(self, transfer: Transfer, *, by_tiles: bool) -> str:
        pulled = transfer is Transfer.PULL and by_tiles
        return "the last tile of a chunk tells peers by an atomic that they may pull it" if pulled else ""

    def gb_per_s(self, topology: Topology, transfer: Transfer, num_bytes: float) -> float:
        return topology.copy_engine.at(num_bytes) * (1.0 if transfer is Transfer.PUSH else _ENGINE_PULLS)

    def start_us(self, topology: Topology) -> tuple[float, float]:
        return topology.copy_engine_start_us, COPY_START_US


@dataclass(frozen=True, slots=True)
class OnSms(ChunkMover):
    """By programs of the same launch, on `num_sms` SMs taken from compute."""

    num_sms: int

    _TRIED: ClassVar[tuple[int, ...]]  # numbers of SMs, the smallest one first

    @property
    def sms(self) -> int:
        return self.num_sms

    @property
    def small(self) -> Self:
        return type(self)(self._TRIED[0])

    @classmethod
    def tried(cls, gpu: Gpu) -> Iterator[Self]:
        return (cls(number) for number in cls._TRIED if number <= gpu.num_sms // 2)

    @classmethod
    def more(cls, gpu: Gpu) -> str:
        return f"{cls.__name__}(n) with n from 1 to {gpu.num_sms - 1}"


@dataclass(frozen=True, slots=True)
class CommSms(OnSms):
    """Bytes move on `num_sms` SMs taken from compute, as programs of the same launch."""

    issuer: ClassVar[Issuer] = Issuer.PROGRAMS
    _TRIED: ClassVar[tuple[int, ...]] = (2, 4, 8, 16, 24, 32)

    def what(self, exchange: str) -> str:
        return f"copies of {exchange} by {self.num_sms} SMs"

    def gb_per_s(self, topology: Topology, transfer: Transfer, num_bytes: float) -> float:
        return _BESIDE_SHARE * _ramp(topology, transfer, self.num_sms)


@dataclass(frozen=True, slots=True)
class CopyWarps(ChunkMover):
    """A warp of each program whose tiles read the bytes pushes a share of them, a few rows at a time: no SM is taken."""

    issuer: ClassVar[Issuer] = Issuer.WARPS

    def beside_tiles(self, *, scattered: bool) -> bool:
        return True

    def what(self, exchange: str) -> str:
        return f"copies of {exchange} by a warp of each program"

    def gb_per_s(self, topology: Topology, transfer: Transfer, num_bytes: float) -> float:
        return _WARPS_SHARE * _ramp(topology, transfer, topology.gpu.num_sms)

    def start_us(self, topology: Topology) -> tuple[float, float]:
        return 0.0, 0.0  # each program goes on by itself


@dataclass(frozen=True, slots=True)
class NeededRows(ChunkMover):
    """All programs of the tiles that read rows by a routing move them first: those that the receiver needs, as a table says."""

    issuer: ClassVar[Issuer] = Issuer.PROGRAMS
    listed: ClassVar[bool] = True

    def what(self, exchange: str) -> str:
        return f"needed rows of {exchange}"

    def gb_per_s(self, topology: Topology, transfer: Transfer, num_bytes: float) -> float:
        return _ramp(topology, transfer, topology.gpu.num_sms)


@dataclass(frozen=True, slots=True)
class PlacedRows(ChunkMover):
    """Rows go once for each of their experts, in the order of the tiles of `height` rows that read them."""

    height: int

    issuer: ClassVar[Issuer] = Issuer.PROGRAMS
    listed: ClassVar[bool] = True
    only_pinned: ClassVar[bool] = True  # slower than whole parts where it was measured (2 x H200, lab/experiments.md)
    _TRIED: ClassVar[tuple[int, ...]] = (64, 128)
    _SMALLEST: ClassVar[int] = 16

    @property
    def tile_rows(self) -> int:
        return self.height

    @property
    def small(self) -> Self:
        return type(self)(self._SMALLEST)

    def what(self, exchange: str) -> str:
        return f"rows of {exchange}, each to its place"

    def gb_per_s(self, topology: Topology, transfer: Transfer, num_bytes: float) -> float:
        return _ramp(topology, transfer, topology.gpu.num_sms)

    @classmethod
    def tried(cls, gpu: Gpu) -> Iterator[Self]:
        return (cls(height) for height in cls._TRIED)

    @classmethod
    def more(cls, gpu: Gpu) -> str:
        return f"{cls.__name__}(n) with the rows n of the tiles that read"


@dataclass(frozen=True, slots=True)
class Fused(ChunkMover):
    """The compute tile itself stores to (push) or loads from (pull) the peer's buffer."""

    issuer: ClassVar[Issuer] = Issuer.TILES

    def what(self, exchange: str) -> str:
        return f"signals of chunks of {exchange}"

    def gb_per_s(self, topology: Topology, transfer: Transfer, num_bytes: float) -> float:
        return FUSED_SHARE * _ramp(topology, transfer, topology.gpu.num_sms)


@dataclass(frozen=True, slots=True)
class AlongRails(OnSms):
    """What movers along rails have in common: groups of ranks are nodes, or halves of one."""

    # of what is gathered a chunk crosses the network once for each node, as in FLUX and Triton-distributed; of what is scattered
    # the sum of a node does, as in NCCL's RailA2A
    issuer: ClassVar[Issuer] = Issuer.STREAMS
    along_rails: ClassVar[bool] = True

    def programs(self, *, scattered: bool) -> int:
        by_programs = self.puts is Issuer.PROGRAMS
        return self.num_sms if by_programs or scattered else 0  # streams send what is gathered as it is

    def why_not_without_atomics(self, transfer: Transfer, *, by_tiles: bool) -> str:
        return ""  # between nodes words are set, and rules ask for atomics inside of them

    def gb_per_s(self, topology: Topology, transfer: Transfer, num_bytes: float) -> float:
        return topology.copy_engine.at(num_bytes)

    def start_us(self, topology: Topology) -> tuple[float, float]:
        return topology.copy_engine_start_us, COPY_START_US


@dataclass(frozen=True, slots=True)
class Rails(AlongRails):
    """Across nodes: `num_sms` programs put chunks to the rank of the same place on each node, which they add up first if they are
    scattered; copy engines do the rest."""

    crosses_nodes: ClassVar[bool] = True
    puts: ClassVar[Issuer | None] = Issuer.PROGRAMS
    _TRIED: ClassVar[tuple[int, ...]] = (1, 4, 8, 16)

    def what(self, exchange: str) -> str:
        return f"puts of {exchange} to other nodes, and copies inside of nodes"


@dataclass(frozen=True, slots=True)
class NeededRails(AlongRails):
    """Across nodes: `num_sms` programs put rows to nodes that need them; programs of tiles hand them on."""

    issuer: ClassVar[Issuer] = Issuer.PROGRAMS
    listed: ClassVar[bool] = True
    crosses_nodes: ClassVar[bool] = True
    puts: ClassVar[Issuer | None] = Issuer.PROGRAMS
    _TRIED: ClassVar[tuple[int, ...]] = (4, 8, 16)

    def what(self, exchange: str) -> str:
        return f"needed rows of {exchange}, to nodes and inside of them"

    def gb_per_s(self, topology: Topology, transfer: Transfer, num_bytes: float) -> float:
        return _ramp(topology, transfer, topology.gpu.num_sms)

    def start_us(self, topology: Topology) -> tuple[float, float]:
        return 1.0, _SHARE_START_US


@dataclass(frozen=True, slots=True)
class StreamRails(AlongRails):
    """The same by puts on a stream; `num_sms` programs add up what is scattered."""

    crosses_nodes: ClassVar[bool] = True
    puts: ClassVar[Issuer | None] = Issuer.STREAMS
    _TRIED: ClassVar[tuple[int, ...]] = (1, 4, 8, 16)

    def what(self, exchange: str) -> str:
        return f"puts of {exchange} to other nodes by a stream, and copies inside of nodes"


@dataclass(frozen=True, slots=True)
class LibraryRails(AlongRails):
    """The same by NCCL, with `num_sms` SMs left to it."""

    # send and receive on a stream, one rail after the other; as many programs as SMs add up what is scattered

    crosses_nodes: ClassVar[bool] = True
    _TRIED: ClassVar[tuple[int, ...]] = (2, 4, 8, 16)

    @property
    def library_sms(self) -> int:
        return 1 << (self.num_sms - 1).bit_length()  # NCCL rounds the channels of messages up to a power of two

    def what(self, exchange: str) -> str:
        return f"sends of {exchange} to other nodes, and copies inside of nodes"


@dataclass(frozen=True, slots=True)
class SocketRails(AlongRails):
    """The same by copy engines, between sockets."""

    # the rank of the same place in the other half hands chunks on; of what is scattered as many programs as SMs add up a half.
    # Each byte crosses the link of sockets once, as in the two-level rings of FLUX and Triton-distributed
    _TRIED: ClassVar[tuple[int, ...]] = (1, 4, 8)

    def why_not_without_atomics(self, transfer: Transfer, *, by_tiles: bool) -> str:
        return ""  # copies set the words of peers

    def what(self, exchange: str) -> str:
        return f"copies of {exchange} to the other half, and copies inside of halves"


MOVERS: tuple[type[ChunkMover], ...] = (
    CopyEngine,
    CommSms,
    CopyWarps,
    NeededRows,
    PlacedRows,
    Fused,
    Rails,
    NeededRails,
    StreamRails,
    LibraryRails,
    SocketRails,
)  # in the order in which the search tries them


def _ramp(topology: Topology, transfer: Transfer, sms: int) -> float:
    return (topology.push_sms if transfer is Transfer.PUSH else topology.pull_sms).at(sms)
