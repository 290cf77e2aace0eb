"""`libshmem_device`: puts, gets, signals and barriers of NVSHMEM, rocSHMEM and MoRI, and their constants."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilelink.dialect_api.model import (
    EVERY,
    Constant,
    Effect,
    Exact,
    Function,
    Parameter,
    Place,
    Reach,
    Signature,
    Symbol,
    Unsaid,
    Vendor,
)
from tilelink.dialect_api.notation import TYPES, signature

SHMEM = "triton_dist.language.extra.libshmem_device"
_SOURCE = "2"
_NVIDIA = (Vendor.NVIDIA,)
_THREAD = "dest:address source:address bytes:bytes pe:rank"
_PUT_SIGNAL = "dest:address source:address bytes:bytes sig_addr:signal_word signal:value sig_op:signal_op pe:rank"
_QP = Parameter("qp_id", TYPES["value"], "0")
_SUFFIX = {Reach.THREAD: "", Reach.WARP: "_warp", Reach.BLOCK: "_block", Reach.WAVE: "_wave", Reach.WORKGROUP: "_wg"}


@dataclass(frozen=True, slots=True)
class _Family:
    """Functions that differ in who takes part. `reaches`: for each vendor that has them, which threads may call."""

    name: str
    parameters: str
    effect: Effect
    meaning: str
    reaches: tuple[tuple[Vendor, tuple[Reach, ...]], ...]
    returns: str = ""
    unsaid: str = ""

    def functions(self) -> tuple[Function, ...]:
        """One function for each reach, with the vendors that have it."""
        return tuple(
            Function(
                f"{self.name}{suffix}",
                (SHMEM,),
                signature(self.parameters),
                vendors,
                Place.DEVICE,
                self.effect,
                self.meaning,
                _SOURCE,
                self.returns,
                reach,
                unsaid=self.unsaid,
            )
            for reach, suffix in _SUFFIX.items()
            if (vendors := tuple(vendor for vendor, reaches in self.reaches if reach in reaches))
        )


_CUDA_REACH = (Vendor.NVIDIA, (Reach.THREAD, Reach.WARP, Reach.BLOCK))
_ROC_REACH = (Vendor.ROCSHMEM, (Reach.THREAD, Reach.WAVE, Reach.WORKGROUP))
_MORI_REACH = (Vendor.MORI, (Reach.THREAD, Reach.WARP, Reach.BLOCK))
_ALL_REACHES = (_CUDA_REACH, _ROC_REACH, _MORI_REACH)
_ON_MORI = "whether MoRI has it"


def _moves() -> tuple[_Family, ...]:
    return (
        _Family("putmem", _THREAD, Effect.PUT, "bytes to a peer; the source may be reused after", _ALL_REACHES),
        _Family("putmem_nbi", _THREAD, Effect.PUT, "bytes to a peer, done after quiet", _ALL_REACHES),
        _Family("getmem", _THREAD, Effect.PUT, "bytes from a peer", _ALL_REACHES, unsaid=_ON_MORI),
        _Family(
            "getmem_nbi", _THREAD, Effect.PUT, "bytes from a peer, done after quiet", _ALL_REACHES, unsaid=_ON_MORI
        ),
        _Family("putmem_signal", _PUT_SIGNAL, Effect.PUT_RAISE, "bytes to a peer, then its signal", _ALL_REACHES),
        _Family(
            "putmem_signal_nbi",
            _PUT_SIGNAL,
            Effect.PUT_RAISE,
            "bytes to a peer, then its signal; the source may be reused after quiet",
            _ALL_REACHES,
        ),
        _Family(
            "putmem_nbi_signal",
            _PUT_SIGNAL,
            Effect.PUT_RAISE,
            "bytes to a peer, then its signal; the source may be reused after quiet",
            (_MORI_REACH,),
        ),
    )


def _collectives() -> tuple[_Family, ...]:
    cuda = (_CUDA_REACH,)
    warp_and_block = ((Vendor.NVIDIA, (Reach.WARP, Reach.BLOCK)),)
    broadcast = "team:team dest:address source:address nelems:count pe_root:rank"
    fcollect = "team:team dest:address source:address nelems:count"
    return (
        _Family("barrier_all", "", Effect.BARRIER, "all ranks meet, earlier puts are complete", _ALL_REACHES),
        _Family("barrier", "team:team", Effect.BARRIER, "the ranks of a team meet, earlier puts are complete", cuda),
        _Family("sync_all", "", Effect.BARRIER, "all ranks meet", cuda),
        _Family("team_sync", "team:team", Effect.BARRIER, "the ranks of a team meet", warp_and_block),
        _Family("broadcast", broadcast, Effect.PUT, "elements of one rank to all of a team", cuda),
        _Family("broadcastmem", broadcast, Effect.PUT, "elements of one rank to all of a team", cuda),
        _Family("fcollect", fcollect, Effect.PUT, "elements of each rank, in order, to all of a team", cuda),
        _Family("fcollectmem", fcollect, Effect.PUT, "elements of each rank, in order, to all of a team", cuda),
        _Family("putmem_rma", _THREAD, Effect.PUT, "bytes to a peer; needs self-built bitcode", cuda),
        _Family("putmem_rma_nbi", _THREAD, Effect.PUT, "bytes to a peer; needs self-built bitcode", cuda),
        _Family("putmem_signal_rma", _PUT_SIGNAL, Effect.PUT_RAISE, "put with signal; needs self-built bitcode", cuda),
        _Family(
            "putmem_signal_rma_nbi", _PUT_SIGNAL, Effect.PUT_RAISE, "put with signal; needs self-built bitcode", cuda
        ),
    )


def _with_queue_pair(function: Function) -> Function:
    """MoRI's puts and gets have one more parameter, the queue pair. Of its barriers the facts say nothing."""
    if Vendor.MORI not in function.vendors:
        return function
    shape: Signature = function.signature
    if isinstance(shape, Exact) and shape.parameters and function.effect in (Effect.PUT, Effect.PUT_RAISE):
        shape = Exact((*shape.parameters, _QP))
    return replace(function, on_vendor=((Vendor.MORI, shape),))


_SIGNAL = "sig_addr:signal_word signal:value sig_op:signal_op pe:rank"
_UNTIL = "sig_addr:signal_word cmp_:compare cmp_val:value"
_WITH_QUIET = (Vendor.NVIDIA, Vendor.MORI)
_SINGLES = (
    ("my_pe", "", EVERY, Effect.NONE, "index of this GPU in the group", "int32"),
    ("n_pes", "", EVERY, Effect.NONE, "number of GPUs in the group", "int32"),
    ("team_my_pe", "team:team", _NVIDIA, Effect.NONE, "index of this GPU in a team", "int32"),
    ("team_n_pes", "team:team", _NVIDIA, Effect.NONE, "number of GPUs in a team", "int32"),
    ("int_p", "dest:pointer value:value pe:rank", EVERY, Effect.PUT, "one int32 to a peer", ""),
    (
        "remote_ptr",
        "local_ptr:pointer pe:rank",
        EVERY,
        Effect.NONE,
        "the address of a symmetric word on a peer",
        "pointer",
    ),
    (
        "remote_mc_ptr",
        "team:team ptr:pointer",
        _NVIDIA,
        Effect.NONE,
        "multicast address; invalid without NVLS",
        "pointer",
    ),
    ("quiet", "", _WITH_QUIET, Effect.FENCE, "earlier puts of this thread are complete", ""),
    ("fence", "", EVERY, Effect.FENCE, "earlier puts arrive before later ones", ""),
    ("signal_op", _SIGNAL, _WITH_QUIET, Effect.RAISE, "sets a signal of a rank or adds to it, once a thread", ""),
    ("signal_wait_until", _UNTIL, EVERY, Effect.WAIT, "spins until the own signal compares true", ""),
)


def _singles() -> tuple[Function, ...]:
    exact = tuple(
        Function(
            name, (SHMEM,), signature(text), vendors, Place.DEVICE, effect, meaning, _SOURCE, returns, Reach.THREAD
        )
        for name, text, vendors, effect, meaning, returns in _SINGLES
    )
    listed = (
        ("quiet_pe", Effect.FENCE, "earlier puts to one rank are complete"),
        ("ulong_put_signal", Effect.PUT_RAISE, "64-bit elements to a peer, then its signal"),
        ("team_translate_pe", Effect.NONE, "a rank of one team as a rank of another"),
    )
    return (
        *(_mori_override(function) for function in exact),
        *(
            Function(name, (SHMEM,), Unsaid(), EVERY, Place.DEVICE, effect, meaning, _SOURCE, unsaid="all but the name")
            for name, effect, meaning in listed
        ),
    )


def _mori_override(function: Function) -> Function:
    if function.name == "int_p":
        return _with_queue_pair(function)
    if function.name in ("remote_ptr", "signal_op"):
        # MoRI's remote_ptr names the own rank too; of its signal_op the facts give no parameters
        return replace(function, on_vendor=((Vendor.MORI, Unsaid()),), unsaid="the parameters on MoRI")
    return function


FUNCTIONS = (
    tuple(_with_queue_pair(function) for family in (*_moves(), *_collectives()) for function in family.functions())
    + _singles()
)

_NVSHMEM_COMPARE = ("EQ", "NE", "GT", "LE", "LT", "GE")
_ROCSHMEM_COMPARE = ("EQ", "NE", "GT", "GE", "LT", "LE")
_TEAMS = ("NVSHMEM_TEAM_WORLD", "NVSHMEM_TEAM_SHARED", "NVSHMEMX_TEAM_NODE", "NVSHMEMX_TEAM_SAME_MYPE_NODE")

CONSTANTS = (
    *(
        Constant(f"NVSHMEM_CMP_{name}", Symbol.COMPARE, value, Vendor.NVIDIA)
        for value, name in enumerate(_NVSHMEM_COMPARE)
    ),
    *(
        Constant(f"ROCSHMEM_CMP_{name}", Symbol.COMPARE, value, Vendor.ROCSHMEM)
        for value, name in enumerate(_ROCSHMEM_COMPARE)
    ),
    Constant("NVSHMEM_SIGNAL_SET", Symbol.SIGNAL_OP, 9, Vendor.NVIDIA),
    Constant("NVSHMEM_SIGNAL_ADD", Symbol.SIGNAL_OP, 10, Vendor.NVIDIA),
    Constant("ROCSHMEM_SIGNAL_SET", Symbol.SIGNAL_OP, 0, Vendor.ROCSHMEM),
    Constant("ROCSHMEM_SIGNAL_ADD", Symbol.SIGNAL_OP, 1, Vendor.ROCSHMEM),
    Constant("MORI_SIGNAL_SET", Symbol.SIGNAL_OP, 9, Vendor.MORI),
    Constant("MORI_SIGNAL_ADD", Symbol.SIGNAL_OP, 10, Vendor.MORI),
    *(Constant(name, Symbol.TEAM, value, Vendor.NVIDIA) for value, name in enumerate(_TEAMS)),
)
