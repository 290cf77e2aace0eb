"""Every mistake that shows when a schedule or a file runs: one class each, with the fix in the message."""

from __future__ import annotations

from topologies.errors import TileLinkError


class NoReference(TileLinkError):
    template = (
        "tile op {name!r} was declared without a reference, so there is nothing to compare its results with.\n"
        "Pass reference=, a torch function of the tensors it reads, to tilelink.op."
    )


class ReferenceFailed(TileLinkError):
    template = (
        "the reference of tile op {name!r} {reason}.\nLegal: a torch function that takes the whole tensors that the op reads, "
        "in float64, and returns the whole tensor that it writes. Of the names around it, it knows `torch` only."
    )


class FabricUnavailable(TileLinkError):
    template = "cannot run {num_ranks} ranks on --device cuda: {reason}.\n{legal}"


class NothingTuned(TileLinkError):
    """Facts: `operator`, `why` (a line for each schedule)."""

    template = "no schedule of {operator!r} ran right while it was tuned.\n{why}\nLegal: compile without tune=, or report this."


class TuneNeedsGpus(TileLinkError):
    """Facts: `operator`."""

    template = (
        "tune= measures schedules of {operator!r}, and emulated ranks have no times.\n"
        "Legal: compile(group) with a torch process group of GPUs, or without tune=."
    )


class IllegalTune(TileLinkError):
    """Facts: `value`."""

    template = (
        "tune={value!r} is no number of alternatives to measure.\n"
        "Legal: an integer of 0 or more; 0 measures nothing and takes the schedule with the least predicted time."
    )


class InputRequiresGrad(TileLinkError, RuntimeError):
    """Facts: `name` of the input."""

    template = (
        "{name} requires grad, and operators have no backward yet: the result would not say so, and its gradient be lost.\n"
        "Legal: pass {name}.detach(), or call the operator in torch.no_grad() or torch.inference_mode()."
    )


class FabricTooSmall(TileLinkError):
    """Facts: `operator`, `topology`, `needed`, `found`."""

    template = (
        "the schedule of {operator!r} for {topology} counts on {needed} SMs a rank, and the fabric has {found}.\n"
        "Legal: World(num_sms={needed}) or more, or a topology whose GPUs have at most {found} SMs."
    )


class UnevenHosts(TileLinkError):
    """Facts: `ranks` (which rank is on which host)."""

    template = (
        "ranks of this group lie on hosts so: {ranks}. A topology has as many ranks on each node, one node behind the other.\n"
        "Legal: torchrun --nnodes N with one --nproc-per-node for all, or a group of such ranks."
    )


class OtherHosts(TileLinkError):
    """Facts: `operator`, `topology`, `nodes` of it, `hosts` of the group."""

    template = (
        "{operator!r} is planned for {topology}, of {nodes} nodes, and the ranks run on {hosts} hosts: some "
        "would store into memory that they cannot reach.\n"
        "Legal: compile(group) without topology=, or topologies.load(NAME, ranks, nodes={hosts})."
    )


class StoresAcrossHosts(TileLinkError):
    """Facts: `operator`, `target`."""

    template = (
        "target={target!r} reaches peers by loads and stores, and the schedule of {operator!r} goes from host to host.\n"
        "Legal: target='triton-nvshmem', which compile takes by itself, or pin={{'mover': 'LibraryRails(n)'}}."
    )


class PeersDiffer(TileLinkError):
    """Facts: `found`, `more`."""

    template = (
        "bytes between the GPUs of this group do not arrive as they were sent: {found}{more}. What is compiled here would be "
        "wrong.\n"
        "Where GPUs are behind an IOMMU, or a bridge sends what peers exchange through the host, that is so: switch off ACS "
        "redirection, or boot with iommu=pt. Legal meanwhile: NCCL with NCCL_P2P_DISABLE=1, without tilelink."
    )


class NotCompiled(TileLinkError):
    """Facts: `function`, `sizes`, `arguments`."""

    template = (
        "{function!r} is a declaration: called with tensors it computes nothing.\n"
        "Load it once, `op = {function}.compile(group, {sizes})`, then call `op({arguments})` with the local parts. What two "
        "operators share stands in a plain function that both call."
    )


class WorkersDied(TileLinkError):
    """Facts: `workers`."""

    template = (
        "one of {workers} worker processes was ended from outside; most often the system has no memory left.\n"
        "Legal: fewer of them, --workers 1, or smaller sizes."
    )


class RunFailed(TileLinkError):
    exit_code = 1
    template = "the {num_ranks} ranks of {operator!r} did not finish: {reason}.\nThe last lines they wrote:\n{lines}"


class ProfileNeedsGpus(TileLinkError):
    """Facts: `device`, `target`."""

    template = (
        "--profile reads the clocks of GPUs in kernels of stock Triton, and this runs on {device} for {target}.\n"
        "Legal: --device cuda --target triton. Predicted times of each program: tilelink show, or plan --perfetto."
    )


class ScheduleMismatch(TileLinkError):
    template = (
        "rank {rank} holds schedule {own}, another rank holds {other}: ranks that follow different schedules hang.\n"
        "Plan with the same topology, sizes, dtype, pins and version on every rank."
    )


class ScheduleRefuted(TileLinkError):
    """No schedule that was built passes its proof. Facts: `function`, `pins`, `count` (how many were tried), `shown`, and
    `findings` (tilelink.proof.findings.Finding) of the best one."""

    exit_code = 4  # a mistake of ours, whatever was typed
    template = (
        "tilelink has made a mistake: its proof refutes every schedule of {function!r} with {pins}, so none "
        "is given out. Your spec and pins may be right. Of the best one:\n{shown}\n"
        "Please report these lines; meanwhile other pins may lead to a schedule, such as mover=Library()."
    )


class StoredScheduleRefuted(TileLinkError):
    """Facts: `path`, `shown`, and `findings` (tilelink.proof.findings.Finding)."""

    template = (
        "{path}: the proof refutes this schedule, so no source is given out:\n{shown}\n"
        "Legal: a file that `tilelink plan --json` wrote and that nobody has changed."
    )


class NoStoredSchedule(TileLinkError):
    """Facts: `path`, `reason`."""

    template = (
        "{path} cannot be read: {reason}.\nLegal: a file that `tilelink plan --json` or `schedule.to_json()` wrote."
    )


class NotAnOperatorFile(TileLinkError):
    """Facts: `path`, `reason`."""

    template = (
        "{path} cannot be verified as an operator: {reason}.\n"
        "Legal: a Python file with one class that has INPUTS = {{name: (shape, dtype)}}, __init__(self, fabric) and "
        "__call__(self, *inputs) returning tensors; such a file comes from `tilelink emit`, or see docs/verification.md."
    )


class FileReferenceFailed(TileLinkError):
    """The `reference` of a file with an operator. Facts: `reason`, `inputs` (the names in INPUTS). `location` is its line."""

    template = (
        "`reference` of this file cannot be compared with: {reason}.\n"
        "Legal: reference({inputs}), which gets the inputs of one rank and returns its outputs; or reference(ranks) with a name "
        "that no input has, which gets a list of dicts, one a rank, and returns a list of the outputs of each rank. Outputs are "
        "a tensor or a tuple of them, as many as the operator returns and of the same shapes."
    )


class UnknownReplay(TileLinkError):
    """Facts: `text`, `scenarios`."""

    template = (
        "--replay {text!r} names no run.\n"
        "Legal: SCENARIO,POLICY[,seed=N][,calls=N][,any-residency], as a counterexample prints it; "
        "scenarios: {scenarios}."
    )
