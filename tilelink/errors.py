"""Every mistake a user can make in a spec, a size, a pin or a dtype: one class each, with the fix in the message."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from tilelink.run_errors import FabricTooSmall as FabricTooSmall
from tilelink.run_errors import FabricUnavailable as FabricUnavailable
from tilelink.run_errors import FileReferenceFailed as FileReferenceFailed
from tilelink.run_errors import IllegalTune as IllegalTune
from tilelink.run_errors import InputRequiresGrad as InputRequiresGrad
from tilelink.run_errors import NoReference as NoReference
from tilelink.run_errors import NotAnOperatorFile as NotAnOperatorFile
from tilelink.run_errors import NotCompiled as NotCompiled
from tilelink.run_errors import NothingTuned as NothingTuned
from tilelink.run_errors import OtherHosts as OtherHosts
from tilelink.run_errors import PeersDiffer as PeersDiffer
from tilelink.run_errors import ProfileNeedsGpus as ProfileNeedsGpus
from tilelink.run_errors import ReferenceFailed as ReferenceFailed
from tilelink.run_errors import RunFailed as RunFailed
from tilelink.run_errors import ScheduleMismatch as ScheduleMismatch
from tilelink.run_errors import ScheduleRefuted as ScheduleRefuted
from tilelink.run_errors import StoresAcrossHosts as StoresAcrossHosts
from tilelink.run_errors import TuneNeedsGpus as TuneNeedsGpus
from tilelink.run_errors import UnevenHosts as UnevenHosts
from tilelink.run_errors import UnknownReplay as UnknownReplay
from tilelink.run_errors import WorkersDied as WorkersDied
from topologies.errors import TileLinkError as TileLinkError  # the base of all below, of the lowest layer


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """` Did you mean 'x'?` for the closest of `known`, or nothing."""
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _spelled(value: object) -> str:
    """A value that a message names: in a line, and without the elements of a tensor."""
    shape = getattr(value, "shape", None)
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if shape is not None and kind.startswith(("torch.", "numpy.")):
        return f"a {kind} of shape {list(shape)}"
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 100 and "\n" not in text else f"{text.splitlines()[0][:90]}…"


class UnknownPlacement(TileLinkError):
    template = (
        "placement={placement} of {tensor!r} is not a placement.\nLegal placements: Replicate(), Shard(dim), Partial()."
    )


class ShardOutOfRange(TileLinkError):
    template = (
        "Shard({dim}) of {tensor!r} names a dimension that a {rank}-dimensional tensor does not have.\nLegal: {legal}."
    )


class UnknownReduction(TileLinkError):
    template = (
        "placement={placement} of {tensor!r} says that {reduction!r} of what the ranks hold is the tensor, and here it is their "
        "sum.\nLegal: Partial(), or Partial('sum') of DTensor; the average is the sum divided by the number of ranks."
    )


class BadAnnotation(TileLinkError):
    template = (
        "parameter {parameter!r} of {function!r} is annotated with {annotation}, which declares no tensor{reason}.\n"
        "Write `{parameter}: Tensor(M, K, placement=Shard(0))` or `{parameter}: Annotated[Tensor, (M, K), Shard(0)]`."
    )


class BadShape(TileLinkError):
    template = (
        "{what} has {rank} dimensions with shape ({shape}); tensors here have {legal} dimensions, "
        "each a dims() symbol or a positive integer."
    )


class NotATensor(TileLinkError):
    template = (
        "{what} got {value}, which is not a tensor of this spec.\n"
        "Operands are parameters of the @tilelink.overlap function or results of tilelink operations."
    )

    def __init__(self, location: object = "", *, what: object, value: object) -> None:
        super().__init__(location, what=what, value=_spelled(value))


class NoValues(TileLinkError):
    """Facts: `use`, `tensor`, `legal`."""

    template = (
        "{use} asks for the elements of {tensor}, and it has none: the function is called once, with symbolic tensors, and "
        "what it does is recorded.\n{legal}"
    )


class SymbolicSize(TileLinkError):
    """Facts: `function`, `reason`."""

    template = (
        "{function!r} asks for the value of a size ({reason}), and sizes are symbols until `plan` is given their values.\n"
        "Legal: expressions of sizes in shapes, such as Tensor(M // 2, K). Decide outside of the function, by a Python value "
        "that it closes over."
    )


class TransposedOperand(TileLinkError):
    template = (
        "{what} got {tensor}.T, and only the right operand of matmul may be transposed: its tiles are loaded as they lie "
        "and turned on their way to the tensor cores. Anything else would need a copy of the tensor.\n"
        "Legal: matmul(a, {tensor}.T), a @ {tensor}.T; or declare {tensor} in the layout that {what} reads."
    )


class BadScalar(TileLinkError):
    template = "{function} with {scalar}: {reason}.\nLegal: finite real numbers, and expressions of sizes."


class BadSlice(TileLinkError):
    template = (
        "{tensor}{index} is no tensor here: {reason}.\n"
        "Legal: slices with a step of 1, such as {tensor}[:, :n], whose bounds are integers or expressions of sizes; "
        "{tensor}.chunk(n, dim) into equal pieces; {tensor}.split(size or list of sizes, dim)."
    )


class SliceOfShards(TileLinkError):
    template = (
        "a slice of {tensor} [{shape}] along dimension {dim}, along which it is Shard({dim}): shapes are global, so the slice "
        "lies on some of the ranks, and what they compute with it would have to move to the others.\n"
        "Legal: all_gather({tensor}, dim={dim}) first; a slice along a dimension that is not sharded; or, for a weight of "
        "several matrices side by side, a parameter for each matrix, all sharded alike (of torch.nn.Linear's layout they are "
        "row slices of the fused weight of a rank, which are contiguous)."
    )


class SliceOutOfRange(TileLinkError):
    template = (
        "the slice from {start} to {stop} of {tensor} along dimension {dim}, which has {extent} elements.\n"
        "Legal: integer bounds from 0 to {extent} (a slice here is not shortened to what is there)."
    )


class UnknownOp(TileLinkError, AttributeError):
    """Also an AttributeError, because it is what a missing name of the package raises."""

    template = (
        "tilelink has no operation {name!r}.{hint}\nKnown operations: {known}; others are declared with tilelink.op."
    )


class MatmulMismatch(TileLinkError):
    template = (
        "matmul of {left} [{left_shape}] and {right} [{right_shape}]: the contracted dimensions {left_k} and "
        "{right_k} differ.\nLegal: the last dimension of the left operand equals the first of the right one."
    )


class MatmulPlacement(TileLinkError):
    template = (
        "matmul of {left} ({left_placement}) and {right} ({right_placement}) cannot be computed rank by rank: {reason}.\n"
        "Legal pairs: {legal}."
    )


class ElementwiseMismatch(TileLinkError):
    template = (
        "{function} of shapes [{left_shape}] and [{right_shape}]: they are not equal, and do not broadcast.\n"
        "Legal: equal shapes, or (M, N) with a row, (N,) or (1, N), or with a column (M, 1)."
    )


class ElementwisePlacement(TileLinkError):
    template = "{function} of {placements}: {reason}.\n{legal}"


class NothingToGather(TileLinkError):
    template = (
        "all_gather(dim={dim}) of {tensor} with placement {placement}: only a tensor that is Shard({dim}) has parts to "
        "gather along {dim}.\nLegal here: {legal}."
    )


class NothingToReduce(TileLinkError):
    template = (
        "{collective} of {tensor} with placement {placement}: only a Partial tensor has summands on the ranks.\n"
        "A matmul whose contracted dimension is sharded on both sides is Partial; {legal}."
    )


class NothingToSend(TileLinkError):
    template = (
        "send_recv(by={by}) of {tensor} with placement {placement}: {reason}.\nLegal: a tensor that is Shard(dim), of which "
        "every rank holds a part of its own; {legal}."
    )


class BadShift(TileLinkError):
    template = "send_recv(by={by}): {reason}.\nLegal: `by` is the distance to the rank that receives, {legal}."


class BadDim(TileLinkError):
    template = "{collective}(dim={dim}) of {tensor} [{shape}]: it has no such dimension.\nLegal dims: {legal}."


class NotAFunction(TileLinkError):
    template = (
        "tilelink.overlap got {value}, which is not a Python function.\n"
        "Legal: a def whose parameters are tensors, such as `def f(x: Tensor(M, K, placement=Shard(0))): ...`."
    )


class NothingReturned(TileLinkError):
    template = "{function!r} returns {value}; return one tensor or a tuple of tensors that it computed."


class UnreducedOutput(TileLinkError):
    template = (
        "output {tensor} of {function!r} is Partial: each rank would return a different summand.\n"
        "Resolve it with reduce_scatter(…, dim) or all_reduce(…)."
    )


class MissingSize(TileLinkError):
    template = "{function!r} needs the sizes {needed}; {missing} is missing."


class UnknownSize(TileLinkError):
    template = "{function!r} has no size {name!r}.{hint}\nIts sizes: {needed}."


# kernels count rows and columns in 32 bits, up to the end of the tile behind the last one
LARGEST_SIZE = 2**31 - 2**16


class IllegalSize(TileLinkError):
    template = "{name}={value!r} is not a size: {reason}.\nLegal: integers from 1 to " + f"{LARGEST_SIZE}."


class TooLargeToPlan(TileLinkError):
    """Facts: `function`, `tensor`, `shape` (of a rank's part), `size` (GiB), `most` (elements)."""

    template = (
        "{function!r} is too large to plan: every rank would hold [{shape}] of {tensor}, {size} GiB.\n"
        "Legal: at most {most} elements of a tensor on a rank. Take smaller sizes or more ranks, or call the operator for "
        "some of the rows at a time."
    )


class NotDivisible(TileLinkError):
    template = (
        "{tensor} is {placement}, but its dimension {dim} = {size} cannot be cut into {num_ranks} equal parts.\n"
        "Nearest legal {dim}: {legal}."
    )


class UnknownDtype(TileLinkError):
    template = "dtype {dtype!r} has no accumulate rule here.{hint}\nLegal dtypes: {legal} (all accumulate in fp32)."


class MixedDtypes(TileLinkError):
    template = (
        "{op} of {left} ({left_dtype}) and {right} ({right_dtype}): operands must have one dtype.\nLegal: equal dtypes."
    )


class IntegerOperand(TileLinkError):
    """Facts: `op`, `operand`, `dtype`."""

    template = (
        "{op} of {operand}, which is {dtype}: what is computed is floating-point.\n"
        "Legal: integer tensors are the ids of tilelink.route."
    )


class BadRouting(TileLinkError):
    """Facts: `op`, `reason`, `legal`."""

    template = "{op}: {reason}.\n{legal}"


class RoutedPlacement(TileLinkError):
    """Facts: `op`, `given`, `legal`."""

    template = "{op} cannot be computed rank by rank where {given}.\nLegal: {legal}."


class BadAttention(TileLinkError):
    """Facts: `reason`, `legal`."""

    template = "attention: {reason}.\n{legal}"


class AttentionPlacement(TileLinkError):
    """Facts: `given`, `legal`."""

    template = "attention cannot be computed rank by rank where {given}.\nLegal: {legal}."


class IllegalIds(TileLinkError):
    """Facts: `reason`."""

    template = (
        "{reason}.\n"
        "Legal: 0 to the number of experts less 1, or -1 for none. Look at ids before a call where this must not happen."
    )


class UnknownPin(TileLinkError):
    template = "pin {name!r} names nothing in this schedule.{hint}\nLegal pins: {legal}."


class IllegalPin(TileLinkError):
    template = "pin {name}={value}: {reason}.{hint}\nLegal {name}: {legal}."


class IdlePin(IllegalPin):
    """A pin of a choice that this spec does not have. Facts: `name`, `value`, `applies` (what has such a choice), `legal`."""

    template = (
        "pin {name}={value} would decide nothing: {name} has no meaning in this spec on this machine. It is a choice of "
        "{applies}.\nLegal pins: {legal}."
    )


class PinsNotAMapping(TileLinkError):
    """Facts: `value`."""

    template = (
        "pin={value!r} is no mapping from choices to values.\n"
        'Legal: pin={{"mover": tilelink.CommSms(16), "x_full.chunks": 4}}; on the command line --pin NAME=VALUE for each.'
    )


class NoLegalSchedule(TileLinkError):
    """Facts: `function`, `topology`, `num_ranks`, `pins`, `reason`, `legal` (what goes with the other pins, or nothing)."""

    exit_code = 3
    template = (
        "no schedule of {function!r} on {topology} with {num_ranks} ranks satisfies {pins}: {reason}.\n"
        "Drop one of the pins.{legal}"
    )


class NotOnThisMachine(NoLegalSchedule):
    """The same without any pins."""

    template = (
        "no schedule of {function!r} is legal on {topology} with {num_ranks} ranks: {reason}.\n"
        "Plan it for another machine; `tilelink topo list` has those that are known.{legal}"
    )


class BadUserOp(TileLinkError):
    template = "tile op {name!r}: {reason}.\n{legal}"


class BadNames(TileLinkError):
    """Facts: `function`, `names`."""

    template = (
        "{function}({names!r}) makes no symbols.\n"
        'Legal: a text of names that Python allows, M, N, K = {function}("M N K").'
    )


class NotASchedule(TileLinkError):
    """Facts: `reason`."""

    template = (
        "the text is no schedule of this version: {reason}.\n"
        "Legal: what `schedule.to_json()` or `tilelink plan --json` wrote with the same version of tilelink."
    )


class UnknownTarget(TileLinkError):
    template = "there is no target {target!r}.{hint}\nKnown targets: {known}."


class TargetNotForGpu(TileLinkError):
    template = "target {target!r} is not for {arch}: NVSHMEM puts from NVIDIA GPUs alone.\nLegal targets: {legal}."
