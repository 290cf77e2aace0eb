"""The primitives of the programming model: which steps a schedule has in their place, where emitted files say it, what runs them.

Written by hand are meanings, and where to look. What is found there goes into docs/primitives.md: see `primitive_facts.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

LIBSHMEM = "triton_dist.language.extra.libshmem_device"
LANGUAGE = "triton_dist.language"
EXTRA = "triton_dist.language.extra.language_extra"
CUDA = "triton_dist.language.extra.cuda.language_extra"
EMULATOR = "tilelink.compat.dialects"
WIDTHS = "(_block|_warp|_wave|_wg)?"  # which threads take part in one call
OPENSHMEM = "tests/compat/test_openshmem.py::"
PLAIN = "tests/compat/triton_dist/test_gpu_script.py::test_a_check_holds_on_emulated_ranks[plain puts and words]"
DIALECT = "tests/compat/triton_dist/test_emulated.py::"


@dataclass(frozen=True, slots=True)
class Code:
    """Where an emitted file says it: the statements with the text `part` (all if empty) of a function or method.

    `schedule` is one of `primitive_facts.SCHEDULES`.
    """

    schedule: str
    function: str
    part: str = ""


@dataclass(frozen=True, slots=True)
class Primitive:
    """One primitive. `variants` is a pattern of the names that it has in `module`; `emulated` the function of the emulator
    where the shim's is not one with a docstring; `test` runs it on emulated ranks."""

    name: str
    module: str
    schedule: str  # meaning in the steps of a schedule; names of `tilelink.schedule` in backquotes
    triton: tuple[Code, ...]  # empty: no schedule says it
    distributed: tuple[Code, ...]
    test: str
    variants: str = ""
    emulated: str = ""
    not_on_gpus: str = ""  # why no check on GPUs runs it


PUSH_SMS, PULL_SMS, FUSED = "push by SMs", "pull by SMs", "fused pull"
PUSH_COPY, PULL_COPY, SCATTER = "push by copy engine", "pull by copy engine", "scatter by copy engine"
QUEUE, WORDS, MULTICAST = "queue", "ll", "multicast"
COPY = Code(PUSH_COPY, "Stream.copy", "cuMemcpyAsync")
COPY_DIST = Code(PUSH_COPY, "copy_on_stream")
_NO_MULTICAST = "no: compiled and emulated only, multicast is off on every machine of ours"
_UNUSED_ORDER = (
    "None: programs store at the peer and their `Notify` releases the stores; a stream of a `CopyEngine` keeps its order. "
    "Puts over a `Network` need it (`Order.QUIET`); the planner makes none, and calls collectives of a library there. "
)

PRIMITIVES: tuple[Primitive, ...] = (
    Primitive(
        "my_pe",
        LIBSHMEM,
        "`rank`: a schedule is one text for all ranks, a function of it. The host reads it once, kernels take it as an "
        "argument, and so neither target asks for it in a kernel.",
        (Code(PUSH_SMS, "GpuFabric.__init__", "self.rank ="),),
        (Code(PUSH_SMS, "GpuFabric.__init__", "self.rank ="),),
        OPENSHMEM + "test_a_put_with_signal_brings_its_data_first",
    ),
    Primitive(
        "n_pes",
        LIBSHMEM,
        "`MeshAxis.size`: a constant of the file.",
        (Code(PUSH_SMS, "GpuFabric.__init__", "self.num_ranks ="),),
        (Code(PUSH_SMS, "GpuFabric.__init__", "self.num_ranks ="),),
        OPENSHMEM + "test_signals_are_counted",
    ),
    Primitive(
        "int_p",
        LIBSHMEM,
        "A packet of a `Store` to a `Buffer` of `Protocol.LL` or `Protocol.LAMPORT`, which says itself that it has arrived: "
        "stored in one piece, it needs no order. Words of a `Signal` at a peer need release order.",
        (Code(WORDS, "store_words", "put_words("),),
        (Code(WORDS, "store_words", "put_words("),),
        OPENSHMEM + "test_a_flag_written_by_int_p_needs_a_fence",
    ),
    Primitive(
        "remote_ptr",
        LIBSHMEM,
        "`Region.at`: the rank in whose memory the region of a `Load`, `Store` or `Move` lies.",
        (Code(FUSED, "out_kernel", "on_peer("),),
        (Code(FUSED, "out_kernel", "dl.symm_at("),),
        OPENSHMEM + "test_remote_ptr_is_the_peers_address",
    ),
    Primitive(
        "barrier_all",
        LIBSHMEM,
        "None inside of a call: a `Notify` at each peer at the end of a call, and a `Wait` for all of them, order calls. Ranks "
        "meet on the host, when an operator has been loaded.",
        (Code(PUSH_SMS, "GpuFabric.barrier"),),
        (Code(PUSH_SMS, "GpuFabric.barrier"),),
        OPENSHMEM + "test_barrier_all_delivers_what_is_under_way",
    ),
    Primitive(
        "sync_all",
        LIBSHMEM,
        "None: a `Notify` tells each peer alone that this rank has ended. Where calls end together, a `Wait` for the peers' "
        "follows.",
        (),
        (),
        OPENSHMEM + "test_sync_all_does_not",
    ),
    Primitive(
        "quiet",
        LIBSHMEM,
        _UNUSED_ORDER + "It would stand before the `Notify` that ends a call.",
        (),
        (),
        OPENSHMEM + "test_fence_and_quiet_order_a_put_and_a_signal",
    ),
    Primitive(
        "fence",
        LIBSHMEM,
        _UNUSED_ORDER
        + "It would stand between a `Move` and its `Notify`. (`Order.FENCE` is another one: of descriptors.)",
        (),
        (),
        OPENSHMEM + "test_fence_and_quiet_order_a_put_and_a_signal",
    ),
    Primitive(
        "getmem",
        LIBSHMEM,
        "A `Move` from a peer by a `Role` on `Sms`: peers have addresses, so it is a copy.",
        (Code(PULL_SMS, "x_full_send", "copy_run("),),
        (Code(PULL_SMS, "x_full_send", "copy_run("),),
        OPENSHMEM + "test_gets_are_there_after_quiet_or_when_they_block",
    ),
    Primitive(
        "getmem_nbi",
        LIBSHMEM,
        "A `Move` from a peer by a `CopyEngine`; its stream stands in for `quiet`.",
        (Code(PULL_COPY, "enqueue", "copy_x_full.copy("), COPY),
        (Code(PULL_COPY, "enqueue", "copy_x_full.copy("), COPY_DIST),
        OPENSHMEM + "test_gets_are_there_after_quiet_or_when_they_block",
    ),
    Primitive(
        "putmem",
        LIBSHMEM,
        "A `Move` to a peer by a `Role` on `Sms`: peers have addresses, so it is a copy.",
        (Code(PUSH_SMS, "x_full_send", "copy_run("),),
        (Code(PUSH_SMS, "x_full_send", "copy_run("),),
        PLAIN,
    ),
    Primitive(
        "putmem_nbi",
        LIBSHMEM,
        "A `Move` to a peer by a `CopyEngine`; its stream stands in for `quiet`.",
        (Code(PUSH_COPY, "enqueue", "self.x_full.peers[peer]"), COPY),
        (Code(PUSH_COPY, "enqueue", "self.x_full.peers[peer]"), COPY_DIST),
        OPENSHMEM + "test_barrier_all_delivers_what_is_under_way",
    ),
    Primitive(
        "putmem_signal",
        LIBSHMEM,
        "A `Move` to a peer on `Sms` and the `Notify` behind it: the program that completes the chunk raises the word.",
        (Code(PUSH_SMS, "x_full_send", "notify("),),
        (Code(PUSH_SMS, "x_full_send", "notify("),),
        OPENSHMEM + "test_a_put_with_signal_brings_its_data_first",
    ),
    Primitive(
        "putmem_signal_nbi",
        LIBSHMEM,
        "A `Move` to a peer by a `CopyEngine` and the `Notify` behind it: the number of the call follows on the same stream, "
        "as a copy of one word.",
        (Code(PUSH_COPY, "enqueue", "copy_x_full.copy("),),
        (Code(PUSH_COPY, "enqueue", "copy_x_full.copy("),),
        OPENSHMEM + "test_a_put_with_signal_brings_its_data_first",
    ),
    Primitive(
        "signal_op",
        LIBSHMEM,
        "A `Notify` without data of its own: at the end of a call it adds to a word of each peer. The set form is `Notify.to`.",
        (Code(PUSH_SMS, "count_at_peers"),),
        (Code(PUSH_SMS, "count_at_peer"),),
        OPENSHMEM + "test_signals_are_counted",
    ),
    Primitive(
        "signal_wait_until",
        LIBSHMEM,
        "A `Wait` for a word that others may raise further meanwhile, such as the count of peers that have ended: it is compared "
        "by order, not equality.",
        (Code(PUSH_SMS, "wait_until"),),
        (Code(PUSH_SMS, "wait_at_least"),),
        OPENSHMEM + "test_comparisons_of_a_wait",
    ),
    Primitive(
        "broadcast",
        LIBSHMEM,
        "A gather is a broadcast from every rank at once: a `Move` or `Store` for each chunk and peer, as `putmem` is. No "
        "collective of a spec has a single root.",
        (),
        (),
        OPENSHMEM + "test_a_broadcast_takes_the_roots_source_as_it_was",
        variants="broadcast(mem)?" + WIDTHS,
        emulated="openshmem.broadcastmem",
    ),
    Primitive(
        "wait",
        LANGUAGE,
        "`Wait`: block until a word of this rank is at least a value: until a chunk has arrived, a peer has told where its "
        "output lies, a slot of a queue is free or full. Where no word passes the value unseen, equality is as good.",
        (Code(PUSH_SMS, "wait_until"),),
        (Code(PUSH_SMS, "wait_until"),),
        DIALECT + "test_a_wait_orders_what_took_its_token",
    ),
    Primitive(
        "consume_token",
        LANGUAGE,
        "`Wait.covers`: the buffers whose loads behind the wait need it. Stock Triton keeps the order without a token: the "
        "acquiring atomic ends in a CTA barrier.",
        (),
        (Code(PUSH_SMS, "out_tiles", "dl.consume_token("),),
        DIALECT + "test_a_wait_orders_what_took_its_token",
        emulated="triton_dist.consume_token",
    ),
    Primitive(
        "notify",
        LANGUAGE,
        "`Notify`: raise a word of a `Signal` at a rank to `Notify.to`: the number of the call, or in a queue that of the use of "
        "a slot, at the receiver of the item or back at its sender.",
        (Code(PUSH_SMS, "notify"), Code(QUEUE, "out_queue_send", "notify("), Code(QUEUE, "out_tiles", "notify(")),
        (Code(PUSH_SMS, "notify"), Code(QUEUE, "out_queue_send", "notify("), Code(QUEUE, "out_tiles", "notify(")),
        DIALECT + "test_push_and_notify",
    ),
    Primitive(
        "atomic_cas",
        EXTRA,
        "None: a word of a `Signal` is set by one writer or added to; no step makes ranks compete for a word.",
        (),
        (),
        DIALECT + "test_words_by_one_thread",
    ),
    Primitive(
        "atomic_add",
        EXTRA,
        "`Notify.last_of`: what has been done of a chunk is counted, by tiles or by programs; the last one raises the word.",
        (Code(PUSH_SMS, "count_arrival", "tl.atomic_add("),),
        (Code(PUSH_SMS, "count_arrival", "tl.atomic_add("),),
        DIALECT + "test_words_by_one_thread",
    ),
    Primitive(
        "ld_acquire",
        CUDA,
        "The poll of a `Wait`: stock Triton has no acquiring load and adds 0; Triton-distributed uses `ld`, which exists for "
        "every vendor.",
        (Code(PUSH_SMS, "wait_until", "tl.atomic_add("),),
        (Code(PUSH_SMS, "wait_at_least", "ld("),),
        PLAIN,
    ),
    Primitive(
        "red_release",
        CUDA,
        "A `Notify` on the own rank that adds: chunks of this rank whose count is awaited itself.",
        (Code(SCATTER, "count_up"),),
        (Code(SCATTER, "count_up"),),
        DIALECT + "test_words_by_one_thread",
    ),
    Primitive(
        "multimem_ld_reduce",
        CUDA,
        "None: a `Region` lies on one rank. It would be a `Load` from all ranks at once, in a one-shot sum.",
        (),
        (),
        "tests/compat/triton_dist/test_emulated_more.py::test_multicast",
        variants="multimem_ld_reduce(_p)?_v4",
        emulated="multimem.multimem_ld_reduce",
        not_on_gpus=_NO_MULTICAST,
    ),
    Primitive(
        "multimem_st",
        CUDA,
        "`For.multicast`: a `Store` of packets at all ranks.",
        (Code(MULTICAST, "multicast_packets", "multicast_words("),),
        (),
        "tests/compat/triton_dist/test_emulated_more.py::test_multicast",
        variants="multimem_st_.*",
        emulated="multimem.multimem_st",
        not_on_gpus=_NO_MULTICAST,
    ),
)
