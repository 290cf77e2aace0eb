"""What an emulation refuses or finds: one class each, the fact in the message and in `facts`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from topologies.errors import UserError

if TYPE_CHECKING:
    from tilelink.emulator.touch import Touch


class EmulationError(UserError):
    """Base of all errors of the emulator. `facts` holds what the template was filled with."""

    exit_code = 1  # the source hangs, crashes or leaves its buffers: refuted, not misused
    template = "{reason}"


class Unsupported(EmulationError):
    """Base of what says something of the emulator and nothing of the kernel: it does not know what the kernel uses.

    Facts: at least `rank`, `task` and `place`. The first line of the message says what is unknown, the rest what to write
    instead.
    """

    exit_code = 2


class UnknownHostCall(Unsupported):
    """Host code uses what an adapter of the emulator lacks. Facts: `rank`, `place`, `lacking`."""

    template = (
        "host code of rank {rank} at {place} uses {lacking}, which the emulator does not have.\n"
        "Write it with what docs/verification.md lists: symmetric buffers, launches, copies, stream writes and waits, barriers."
    )


class UnknownWait(Unsupported):
    """A stream is to wait for a word of a peer. Facts: `operation`, `stream`, `rank`, `word`, `peer`, `place`."""

    template = (
        "{operation} on stream {stream!r} of rank {rank} at {place} got {word}, which is memory of rank {peer}: whether a stream "
        "may wait there depends on the driver, and the emulator does not do it.\n"
        "Let streams wait for words of their own rank, which peers write."
    )


class Deadlock(EmulationError):
    """No task can go on. Facts: `tasks`, a tuple of `report.TaskState`, and `table`, the same as text."""

    template = (
        "the emulation hangs: each of the {count} live tasks waits for something that none of them will do.\n"
        "{table}\n"
        "Give the missing notify, order the waits so that no circle is left, "
        "or start no more spinning programs than leave an SM to the ones they wait for."
    )


class StepLimit(EmulationError):
    """Facts: `limit`, `tasks`, `table`."""

    exit_code = 2  # it says something of the emulator, and nothing of the source
    template = (
        "the emulation was given up after {limit} steps (switches and memory accesses): it is too large, or a loop changes "
        "something in each round and gets nowhere.\n{table}\n"
        "Give it smaller sizes, let loops that wait change nothing but what they wait for, or raise STEP_LIMIT in "
        "the class of the operator (World(step_limit=...))."
    )


class OutOfBounds(EmulationError):
    """Facts: `access`, `item_bytes`, `address`, `nearest`, `rank`, `task`, `place`."""

    template = (
        "{task} on rank {rank} at {place}: {access} of {item_bytes} bytes at {address:#x}, which lies in "
        "no buffer of the emulated ranks; {nearest}.\n"
        "Legal: addresses in symmetric buffers and in the tensors given to the running kernels; "
        "mask the lanes that lie outside."
    )


class UnknownInlineAsm(Unsupported):
    """Facts: `statement`, `line` (of the snippet, from 1), `known`, `rank`, `task`, `place`."""

    template = (
        "{task} on rank {rank} at {place}: line {line} of inline assembly, {statement!r}, has no meaning in the emulator.\n"
        "Known: {known}.\n"
        "Or write it in triton.language, whose atomics have orders and scopes: a wait is `while tl.atomic_cas(word, 1, 0, "
        'sem="acquire", scope="sys") != 1: pass`, and `bar.sync` is `tl.debug_barrier()`.'
    )


class ThreadsDiffer(Unsupported):
    """Facts: `operation`, `reason`, `rank`, `task`, `place`."""

    template = (
        "{task} on rank {rank} at {place}: {operation} {reason}; programs are emulated as one, not thread by thread.\n"
        "Known: `if tid < n:` without `else`, with inline assembly, loads through pointers that differ by thread, and stores of "
        "one scalar in its body; in other places let all threads do the same."
    )


class CollectiveMismatch(EmulationError):
    """Facts: `stream`, `number`, `rank`, `own`, `other_rank`, `other`."""

    template = (
        "collective {number} of stream {stream!r}: rank {rank} calls {own}, rank {other_rank} calls {other}\n"
        "Legal: all ranks enqueue the same collectives, of equal shapes and dtypes, in one order on a stream."
    )


class BadCollective(EmulationError):
    """Facts: `kind`, `rank`, `given`, `legal`."""

    template = "{kind} on rank {rank} got {given}.\nLegal: {legal}."


class UnknownOperation(Unsupported):
    """The interpreter lacks an operation of the language. Facts: `rank`, `task`, `place`, `reason`."""

    template = (
        "{task} on rank {rank} at {place}: the emulator does not know this operation: {reason}.\n"
        "Write it with operations of triton.language that have a meaning on CPUs: loads, stores, atomics, arithmetic, reductions."
    )


class KernelError(EmulationError):
    """A Python exception in a kernel, kept as `__cause__`. Facts: `rank`, `task`, `place`, `reason`."""

    template = "{task} on rank {rank} failed at {place}: {reason}"


class SymmetricMismatch(EmulationError):
    """Facts: `number`, `rank`, `own`, `other`."""

    template = (
        "symmetric allocation {number}: rank {rank} asks for {own}, an earlier rank for {other}.\n"
        "Legal: every rank allocates the same shapes and dtypes in the same order."
    )


class IllegalCopy(EmulationError):
    """Facts: `stream`, `rank`, `dst`, `src`, `reason`."""

    template = (
        "copy on stream {stream!r} of rank {rank} from {src} to {dst}: {reason}.\n"
        "Legal: contiguous views of one dtype with equally many elements."
    )


class IllegalWord(EmulationError):
    """Facts: `operation`, `stream`, `rank`, `word`, `reason`."""

    template = (
        "{operation} on stream {stream!r} of rank {rank} got {word}: {reason}.\n"
        "Legal: a view of one int32 or int64 element; a stream writes words of its own rank and of peers, and waits for its own."
    )


class IllegalMatmul(EmulationError):
    """Facts: `stream`, `rank`, `out`, `a`, `b`."""

    template = (
        "matmul on stream {stream!r} of rank {rank} of {a} and {b} into {out}: the shapes do not fit.\n"
        "Legal: a is [M, K], b is [K, N], out is [M, N]."
    )


class IllegalAttention(EmulationError):
    """Facts: `stream`, `rank`, `out`, `q`, `k`, `v`, `sequences`, `width`, `first`."""

    template = (
        "attention on stream {stream!r} of rank {rank} of {q} over {k} and {v} into {out}, {sequences} sequences, heads of "
        "{width}, first key {first}: the shapes do not fit.\n"
        "Legal: q and out are [sequences * S, Q * width], k and v are [sequences * T, G * width], Q is a multiple of G, "
        "first + S is T at most, and logarithms are [sequences * S, Q]."
    )


class IllegalWorld(EmulationError):
    """Facts: `name`, `value`, `least`."""

    template = "World({name}={value!r}) cannot be emulated.\nLegal {name}: integers of at least {least}."


class IllegalLaunch(EmulationError):
    """Facts: `kernel`, `stream`, `rank`, `reason`, `legal`."""

    template = "launch of {kernel} on stream {stream!r} of rank {rank}: {reason}.\nLegal: {legal}."


class ForeignStream(EmulationError):
    """Facts: `stream`, `rank`, `other`, `other_rank`."""

    template = (
        "stream {stream!r} of rank {rank} shall wait for stream {other!r} of rank {other_rank}: events do "
        "not cross ranks.\nLegal: streams of one rank of one world; between ranks use signals."
    )


class WorldBusy(EmulationError):
    """Facts: none."""

    template = (
        "World.run() was called while a world is running: Triton's language is patched for one run only.\n"
        "Legal: call run() from host code, one world after the other."
    )


class UnknownPolicy(EmulationError):
    """Facts: `text`."""

    template = (
        "no scheduling policy is called {text!r}.\n"
        "Legal, with numbers of at least 0 and [optional] ones: random:SEED, starve-rank:RANK[:SEED], "
        "producers-last[:SEED], consumers-first[:SEED], copies-late[:SEED], copies-early[:SEED], newest, oldest, "
        "pct:SEED:DEPTH[:STEPS] with DEPTH and STEPS of at least 1."
    )


class IllegalCapture(EmulationError):
    """Facts: `reason`, `legal`."""

    template = "{reason}.\nLegal: {legal}."


class LateSetup(EmulationError):
    """Facts: `rank`, `stream`, `pending` (how many operations), `operation` (the first of them, as text), `place`."""

    template = (
        "rank {rank} allocates symmetric memory while stream {stream!r} holds {pending} operations that have not run, "
        "the first of them {operation} at {place}: the ranks meet in an allocation, and a peer that has to run first may "
        "wait for one of these operations, or they for it.\n"
        "Legal: allocate in the constructor of an operator, before its first call."
    )


class NoMulticast(EmulationError):
    """Facts: `operation`, `found`, `reason`, `rank`, `task`, `place`."""

    template = (
        "{task} on rank {rank} at {place}: {operation} on {found}: {reason}.\n"
        "Legal: addresses that start at handle.multicast_ptr, which is 0 where the links have no multicast "
        "(World(multicast=False)); take another path there."
    )


class NoPeerAtomics(EmulationError):
    """Facts: `rank`, `peer`, `task`, `place`, `what`."""

    template = (
        "{task} on rank {rank} at {place}: atomic on {what}, but the link to rank {peer} does not carry atomics, "
        "and an arrival would be lost.\n"
        "Legal: plain stores and copies to a peer, one word for each rank that raises it; atomics on own memory."
    )


class Race(EmulationError):
    """Facts: `first` and `second`, the two accesses (`races.Touch`) in the order in which this run had them;
    `same_call_hint`, whether they seem to belong to the same call of the operator.
    """

    template = (
        "{first.what} is {first.verb} by {first.task} of rank {first.rank} and {second.verb} by {second.task} of rank "
        "{second.rank}, and nothing makes one happen before the other.\n"
        "  first   {first}\n"
        "  second  {second}\n"
        "Legal: the first releases a signal afterwards, behind a CTA barrier if several threads made the access, and the "
        "second acquires that signal before; at sys scope between ranks; or a launch, an event or a collective between."
    )

    @property
    def first(self) -> Touch:
        return cast("Touch", self.facts["first"])

    @property
    def second(self) -> Touch:
        return cast("Touch", self.facts["second"])

    @property
    def same_call_hint(self) -> bool:
        return bool(self.facts["same_call_hint"])


class NarrowScope(Race):
    """Atomic accesses of one word that are not indivisible to each other. Facts: those of `Race`; `narrow`, the one of the
    two whose scope does not include the other's program, the second where neither does.
    """

    template = (
        "{first.what} is accessed at {first.scope.value} scope by {first.task} of rank {first.rank} and at "
        "{second.scope.value} scope by {second.task} of rank {second.rank}, and nothing makes one happen before the other; "
        "{narrow.scope.value} scope does not include {narrow.beyond}, so to each other they are no atomics.\n"
        "  first   {first}\n"
        "  second  {second}\n"
        "Legal: sys scope between ranks and towards copy engines of peers; gpu scope, at least, between programs of one rank."
    )

    @property
    def narrow(self) -> Touch:
        return cast("Touch", self.facts["narrow"])
