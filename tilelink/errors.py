"""Every mistake a user can make in a spec, a size, a pin or a dtype: one class each, with the fix in the message."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from topologies.errors import UserError


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """` Did you mean 'x'?` for the closest of `known`, or nothing."""
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


class TileLinkError(UserError):
    """Base of all errors below. `location` is the user's file:line where there is one, else empty."""

    template = ""

    def __init__(self, location: object = "", **facts: object) -> None:
        super().__init__(**facts)
        self.location = str(location)

    def __str__(self) -> str:
        text = super().__str__()
        return f"{self.location}: {text}" if self.location else text


class UnknownPlacement(TileLinkError):
    template = (
        "placement={placement} of {tensor!r} is not a placement.\nLegal placements: Replicate(), Shard(dim), Partial()."
    )


class ShardOutOfRange(TileLinkError):
    template = (
        "Shard({dim}) of {tensor!r} names a dimension that a {rank}-dimensional tensor does not have.\nLegal: {legal}."
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


class TransposedOperand(TileLinkError):
    template = (
        "{what} got {tensor}.T, and only the right operand of matmul may be transposed: its tiles are loaded as they lie "
        "and turned on their way to the tensor cores. Anything else would need a copy of the tensor.\n"
        "Legal: matmul(a, {tensor}.T), a @ {tensor}.T; or declare {tensor} in the layout that {what} reads."
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
        "{function} of shapes [{left_shape}] and [{right_shape}]: they are neither equal nor a row that broadcasts.\n"
        "Legal: equal shapes, or (M, N) with (N,) or (1, N)."
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


class NotDivisible(TileLinkError):
    template = (
        "{tensor} is {placement}, but its dimension {dim} = {size} cannot be cut into {num_ranks} equal parts.\n"
        "Nearest legal {dim}: {legal}."
    )


class UnknownDtype(TileLinkError):
    template = (
        "dtype {dtype!r} has no accumulate rule here.{hint}\nLegal dtypes: bf16, fp16, fp32 (all accumulate in fp32)."
    )


class MixedDtypes(TileLinkError):
    template = (
        "{op} of {left} ({left_dtype}) and {right} ({right_dtype}): operands must have one dtype.\nLegal: equal dtypes."
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


class NoLegalSchedule(TileLinkError):
    template = (
        "no schedule of {function!r} on {topology} with {num_ranks} ranks satisfies {pins}: {reason}.\n"
        "Drop one of the pins."
    )


class BadUserOp(TileLinkError):
    template = "tile op {name!r}: {reason}.\n{legal}"


class UnknownTarget(TileLinkError):
    template = "there is no target {target!r}.{hint}\nKnown targets: {known}."


class NoReference(TileLinkError):
    template = (
        "tile op {name!r} was declared without a reference, so there is nothing to compare its results with.\n"
        "Pass reference=, a torch function of the tensors it reads, to tilelink.op."
    )


class FabricUnavailable(TileLinkError):
    template = "cannot run {num_ranks} ranks on --device cuda: {reason}.\n{legal}"


class RunFailed(TileLinkError):
    template = "the {num_ranks} ranks of {operator!r} did not finish: {reason}.\nThe last lines they wrote:\n{lines}"


class ScheduleMismatch(TileLinkError):
    template = (
        "rank {rank} holds schedule {own}, another rank holds {other}: ranks that follow different schedules hang.\n"
        "Plan with the same topology, sizes, dtype, pins and version on every rank."
    )


class ScheduleRefuted(TileLinkError):
    """No schedule that was built passes its proof. Facts: `function`, `pins`, `count` (how many were tried), `shown`, and
    `findings` (tilelink.proof.findings.Finding) of the best one."""

    template = (
        "tilelink has made a mistake: its proof refutes every schedule of {function!r} with {pins}, so none "
        "is given out. Your spec and pins may be right. Of the best one:\n{shown}\n"
        "Please report these lines; meanwhile other pins may lead to a schedule, such as algorithm=library."
    )


class NotAnOperatorFile(TileLinkError):
    """Facts: `path`, `reason`."""

    template = (
        "{path} cannot be verified as an operator: {reason}.\n"
        "Legal: a Python file with one class that has INPUTS = {{name: (shape, dtype)}}, __init__(self, fabric) and "
        "__call__(self, *inputs) returning tensors; such a file comes from `tilelink emit`, or see docs/verification.md."
    )


class UnknownReplay(TileLinkError):
    """Facts: `text`, `scenarios`."""

    template = (
        "--replay {text!r} names no run.\n"
        "Legal: SCENARIO,POLICY[,seed=N][,calls=N][,any-residency], as a counterexample prints it; "
        "scenarios: {scenarios}."
    )
