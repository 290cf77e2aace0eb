"""Every rule of the checker: its id, one sentence, the section of the facts it follows from, how bad a breach is."""

from __future__ import annotations

from enum import Enum


class Severity(Enum):
    MISTAKE = "mistake"  # does not compile, hangs, or gives wrong results
    WARNING = "warning"  # slow, or not known to the API data


class Rule(Enum):
    """(id, sentence, section of the facts, severity)."""

    UNKNOWN_MODULE = ("unknown-module", "Imported modules of triton_dist exist.", "1-4")
    UNKNOWN_NAME = ("unknown-name", "Names imported from and looked up in triton_dist exist.", "1-4")
    UNLISTED_NAME = (
        "unlisted-name",
        "A name of a module that the data lists only in part is not checked.",
        "4",
        Severity.WARNING,
    )
    TOO_MANY_ARGUMENTS = ("too-many-arguments", "A call has no more arguments than the function has parameters.", "1-4")
    MISSING_ARGUMENT = ("missing-argument", "Every parameter without a default is given.", "1-4")
    DUPLICATE_ARGUMENT = ("duplicate-argument", "A parameter is given once, by position or by keyword.", "1-4")
    UNKNOWN_KEYWORD = ("unknown-keyword", "Keywords are names of parameters.", "1-4")
    WRONG_CONSTANT = (
        "wrong-constant",
        "Scopes, semantics, sig_op and comm_scope are constants from the list of their parameter.",
        "1, 3",
    )
    LITERAL_CONSTANT = (
        "literal-constant",
        "Comparisons, signal operations and teams are written by name: their numbers differ between vendors.",
        "2",
    )
    WRONG_WIDTH = (
        "wrong-width",
        "Signals have a width that the function takes: notify and SHMEM signals 64 bits, wait 32 or 64.",
        "1, 2, 5.4",
    )
    BYTES_ARE_ELEMENTS = ("bytes-are-elements", "Sizes of puts, gets and copies are bytes, not elements.", "2, 4")
    EQUALITY_CAN_PASS = (
        "equality-can-pass",
        "A wait compares by equality, so the word does not step over the value waited for.",
        "5.1",
    )
    TOO_MANY_SIGNALS = ("too-many-signals", "One dl.wait covers at most 32 words on NVIDIA.", "5.1")
    TOKEN_UNUSED = ("token-unused", "The token of dl.wait is consumed; else the wait may be moved or removed.", "1")
    TOKEN_NOT_IN_LOAD = (
        "token-not-in-load",
        "The object that loads what was waited for has taken the token, or a barrier stands between.",
        "5.2",
    )
    TOKEN_ORDER = ("token-order", "consume_token takes the value first, then the token.", "1")
    NO_BARRIER = (
        "no-barrier-before-raise",
        "On every path __syncthreads() stands between a store of the program and a notify or releasing store.",
        "5.3",
    )
    WEAK_SIGNAL = (
        "weak-signal",
        "A signal between GPUs is raised with release and waited for with acquire, both at system scope.",
        "5.3",
    )
    IMPLICIT_COMM_SCOPE = ("implicit-comm-scope", "notify names its comm_scope; the default is the slow path.", "5.6")
    NOTIFY_ON_AMD = (
        "notify-on-amd",
        "AMD has no notify: use a releasing st at system scope, or a put with signal.",
        "5.5",
    )
    NOT_ON_VENDOR = ("not-on-vendor", "Functions, constants and modules exist on the vendor of the file.", "2, 3")
    SYMM_AT_TENSOR = ("symm-at-tensor", "symm_at and notify take one pointer, not a tensor of pointers.", "1")
    SYMM_AT_ARITHMETIC = (
        "symm-at-arithmetic",
        "Arithmetic comes after symm_at: dl.symm_at(base, rank) + offset.",
        "1",
        Severity.WARNING,
    )
    MC_PTR_ORDER = ("mc-ptr-order", "remote_mc_ptr takes the team first, then the pointer.", "2")
    NOT_RESIDENT = (
        "not-resident",
        "A kernel that spins is launched as a cooperative grid, or with no more programs than SMs.",
        "5.8",
    )
    NEEDS_DIST_JIT = (
        "needs-dist-jit",
        "A kernel that asks for ranks, peers, notify or SHMEM is decorated with triton_dist.jit.",
        "1",
    )
    RANK_CONSTEXPR = ("rank-constexpr", "rank is no constexpr: each rank would compile a kernel of its own.", "5.10")
    HOST_IN_KERNEL = ("host-in-kernel", "Host functions are not called in kernels.", "4")
    DEVICE_ON_HOST = ("device-on-host", "Device functions are not called on the host.", "1-3")
    FLATTENED_BARRIER = (
        "flattened-barrier",
        "A persistent loop over tiles and k in one has no barrier in its body: it stalls the pipeline.",
        "5.7",
        Severity.WARNING,
    )

    def __init__(self, id: str, sentence: str, source: str, severity: Severity = Severity.MISTAKE) -> None:
        self.id = id
        self.sentence = sentence
        self.source = source
        self.severity = severity
