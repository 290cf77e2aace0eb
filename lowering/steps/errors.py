"""What the printer of steps refuses, one class each."""

from __future__ import annotations

from tilelink.errors import TileLinkError


class NameTaken(TileLinkError):
    template = (
        "{kind} {name!r} of schedule {schedule!r} has the name of {other}; a kernel has one namespace.\n"
        "Legal: a name that nothing else of the schedule has."
    )


class ReservedName(TileLinkError):
    template = (
        "{kind} {name!r} of schedule {schedule!r} has a name that printed code uses for something else, or that Python "
        "reserves.\nLegal: another name, such as {suggestion!r}."
    )


class UnknownOpOfSteps(TileLinkError):
    template = (
        "op {op!r} in role {role!r} is neither known to the printer nor defined in `functions` of schedule {schedule!r}.{hint}\n"
        "Legal: {known}, or a @triton.jit function in `functions`."
    )


class EngineCannot(TileLinkError):
    template = "{engine} of role {role!r} cannot {what}: {step}.\nLegal: {legal}."


class NotPrinted(TileLinkError):
    template = "{what} in role {role!r} has no printed form yet: {step}.\nLegal: {legal}."


class TileOfManyDimensions(TileLinkError):
    template = (
        "the region {region} of role {role!r} is a tile of more than two dimensions, which kernels do not hold.\n"
        "Legal: extents of 1 along all dimensions but the last two."
    )


class UnboundedExtent(TileLinkError):
    template = (
        "the extent {extent} of role {role!r} has no upper bound, so that its tile has no size.\n"
        "Legal: an extent that names with known ranges bound, such as min(16, rows - i * 16)."
    )


class NotContiguousCopy(TileLinkError):
    template = (
        "{engine} of role {role!r} copies runs of memory and matrices, and {region} is neither.\n"
        "Legal: regions that are whole along every dimension behind the first one with an extent above 1, or that have two such "
        "dimensions, the last ones."
    )


class ValueChangesInLoop(TileLinkError):
    template = (
        "{engine} of role {role!r} raises {signal!r} to {to}, which changes with {names}: in a captured call, streams copy "
        "values that the device has prepared before.\nLegal: a value that depends on `call`, `rank` and sizes only."
    )


class LastNotAtEnd(TileLinkError):
    template = (
        "role {role!r} has a phase behind one for the program that ends last, when all others have ended.\n"
        "Legal: phases of {who!r} behind all others of the role."
    )


class NoMulticastInTarget(TileLinkError):
    """Facts: schedule, target, arch."""

    template = (
        "schedule {schedule!r} stores at all ranks at once, which target {target} has no printed form for on {arch}.\n"
        "Legal: --target triton for NVIDIA GPUs, over several nodes --target triton-nvshmem, or a plan without multicast=yes."
    )


class NothingToPut(TileLinkError):
    """Facts: schedule, target."""

    template = (
        "schedule {schedule!r} puts nothing over a network, which is what target {target} is for.\n"
        "Legal: several nodes, --nodes N, where mover=Rails(n) or StreamRails(n) carries a collective; or --target triton."
    )


class OverlappingMove(TileLinkError):
    template = (
        "role {role!r} moves {source} to {target}, which may overlap: threads of a program would overwrite what others still "
        "read.\nLegal: regions of two buffers, the same place of one, or places whose starts differ by at least an extent."
    )


class UnknownName(TileLinkError):
    template = (
        "the index {index} of role {role!r} has the name {name!r}, which nothing around it binds.{hint}\n"
        "Legal here: {known}."
    )


class NotOneByOne(TileLinkError):
    template = (
        "schedule {schedule!r} has tiles in ping-pong, which {arch} or the target does not know, and one tile after the other it "
        "is refuted: {refutation}\nLegal: an order of tiles in which those that others wait for come first, a target with Gluon."
    )


class SizeKnownOnCall(TileLinkError):
    template = (
        "the size {name} of schedule {schedule!r} is known on the call only; strides and masks of printed kernels are "
        "numbers so far.\nLegal: Dim({name!r}, {size}), and one schedule a size."
    )
