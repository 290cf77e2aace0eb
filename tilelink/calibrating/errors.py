"""Why a machine cannot be measured, or was not: one class each."""

from __future__ import annotations

from topologies.errors import TileLinkError


class CannotCalibrate(TileLinkError):
    """Something is missing. Facts: missing, why, legal."""

    template = "topo detect --calibrate cannot measure here: {missing}, and {why}.\n{legal}"


class PeakUnknown(TileLinkError):
    """Facts: gpu, like (the descriptor that is started from)."""

    template = (
        "the dense peak of {gpu} is unknown: it is not the GPU of {like}, and no driver reports a peak.\n"
        "Give --tflops with the datasheet's bf16 TFLOP/s without sparsity, or --like with a descriptor of this GPU."
    )


class GemmBeatsPeak(TileLinkError):
    """Facts: measured, peak (TFLOP/s)."""

    template = (
        "a bf16 matmul reached {measured:g} TFLOP/s, above the peak of {peak:g} that it is compared with.\n"
        "Give --tflops with the datasheet's bf16 TFLOP/s without sparsity."
    )


class WordsLost(TileLinkError):
    """A kernel gave up waiting for its peer. Facts: rank, peer, level, polls."""

    exit_code = 1
    template = (
        "rank {rank} and rank {peer} did not pass a word to and fro over {level}: none came within {polls:,} polls.\n"
        "Where links carry no atomics, say so with peer_atomics = false in a copy of the descriptor, and give it with --like. "
        "Else check the machine (`nvidia-smi topo -m`, an IOMMU)."
    )


class BytesDiffer(TileLinkError):
    """A copy kernel left other bytes than it should have. Facts: rank, how, words."""

    exit_code = 1
    template = (
        "rank {rank} has {words:,} wrong words after copies that {how}, so that their time says nothing.\n"
        "Check the machine (`nvidia-smi topo -m`, an IOMMU); the shipped descriptors are still there: `tilelink topo list`."
    )


class CalibrationStopped(TileLinkError):
    """Facts: rank, step, reason."""

    exit_code = 1
    template = (
        "rank {rank} stopped while {step}: {reason}. Nothing was written.\n"
        "Run it again with GPUs that nobody else uses, or take a descriptor of `tilelink topo list`."
    )


class DescriptorExists(TileLinkError):
    """Facts: path."""

    template = (
        "{path} is there, and a calibration overwrites no file.\nLegal: -o with another file, or remove this one first."
    )
