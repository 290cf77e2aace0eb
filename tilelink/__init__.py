"""tilelink: declare the tile graph of compute and collectives, get a proven overlapped multi-GPU kernel."""

from tilelink.errors import TileLinkError
from tilelink.ir.nodes import Algorithm, CommSms, CopyEngine, Fused, TileShape, Transfer
from tilelink.ir.ops import add, all_gather, all_reduce, gelu, matmul, mul, op, reduce_scatter, relu, silu
from tilelink.ir.order import Nest
from tilelink.ir.placement import Partial, Replicate, Shard
from tilelink.ir.schedule import Schedule
from tilelink.ir.tensor import Tensor, dims
from tilelink.ir.user_op import axes
from tilelink.overlap import Overlap, overlap

__all__ = [
    "Algorithm",
    "CommSms",
    "CopyEngine",
    "Fused",
    "Nest",
    "Overlap",
    "Partial",
    "Replicate",
    "Schedule",
    "Shard",
    "Tensor",
    "TileLinkError",
    "TileShape",
    "Transfer",
    "add",
    "all_gather",
    "all_reduce",
    "axes",
    "dims",
    "gelu",
    "matmul",
    "mul",
    "op",
    "overlap",
    "reduce_scatter",
    "relu",
    "silu",
]
