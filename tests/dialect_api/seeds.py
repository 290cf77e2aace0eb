"""Mistakes to plant: a sample, one edit, and which rule must answer in which line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tilelink.dialect_api import Rule

SAMPLES = Path(__file__).parent / "samples"
NAMES = tuple(sorted(path.name.removesuffix(".py.txt") for path in SAMPLES.glob("*.py.txt")))


def sample(name: str) -> str:
    """The text of a clean file."""
    return (SAMPLES / f"{name}.py.txt").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Seed:
    """In `sample`, `old` (which stands there once) becomes `new`; `rule` answers in the line that holds `at`."""

    sample: str
    rule: Rule
    old: str
    new: str
    at: str

    @property
    def name(self) -> str:
        return f"{self.sample}-{self.rule.id}-{self.at[:30]}"

    def text(self) -> str:
        base = sample(self.sample)
        assert base.count(self.old) == 1, f"{self.old!r} stands {base.count(self.old)} times in {self.sample}"
        return base.replace(self.old, self.new)

    def line(self) -> int:
        lines = [number for number, line in enumerate(self.text().splitlines(), 1) if self.at in line]
        assert len(lines) == 1, f"{self.at!r} stands in lines {lines} of the mutant"
        return lines[0]


AG, RING, AMD, QUEUE, MULTIMEM, TWO, COPY, MORI, FABRIC, COUNT = (
    "ag_gemm_push",
    "ring_put",
    "amd_push",
    "queue",
    "multimem_all_reduce",
    "two_shot",
    "copy_engine",
    "mori_put",
    "fabric",
    "counters",
)
_WAIT = 'dl.wait(signals + part, 1, "sys", "acquire", waitValue=target)'
_NOTIFY = 'dl.notify(signals + rank, peer, signal=call, sig_op="set", comm_scope="intra_node")'
_ST = 'st(dl.symm_at(signals, peer) + rank * GRID + program, call, scope="system", semantic="release")'
_FULL = 'dl.notify(signals + slot, peer, signal=empty + 1, sig_op="set", comm_scope="intra_node")'

NAMES_AND_ARGUMENTS = (
    Seed(
        AG,
        Rule.UNKNOWN_MODULE,
        "from triton_dist.language.extra.language_extra",
        "from triton_dist.language.extras.language_extra",
        "extras",
    ),
    Seed(
        QUEUE,
        Rule.UNKNOWN_MODULE,
        "triton_dist.language.extra.language_extra",
        "triton_dist.language.extra.languge_extra",
        "languge_extra",
    ),
    Seed(AG, Rule.UNKNOWN_NAME, _NOTIFY, _NOTIFY.replace("notify", "notfy"), "notfy"),
    Seed(RING, Rule.UNKNOWN_NAME, "putmem_signal_block", "putmem_signal_blk", "putmem_signal_blk"),
    Seed(
        FABRIC,
        Rule.UNKNOWN_NAME,
        "import __syncthreads, ld, st, tid",
        "import __syncthreads, ld, st, stid, tid",
        "stid",
    ),
    Seed(
        RING,
        Rule.UNKNOWN_NAME,
        "    nvshmem_create_tensor,\n",
        "    nvshmem_creat_tensor as nvshmem_create_tensor,\n",
        "nvshmem_creat_tensor",
    ),
    Seed(
        AG, Rule.TOO_MANY_ARGUMENTS, _WAIT, 'dl.wait(signals + part, 1, "sys", "acquire", target, True)', "target, True"
    ),
    Seed(AG, Rule.UNKNOWN_KEYWORD, _WAIT, _WAIT.replace("waitValue", "value"), "value=target"),
    Seed(AG, Rule.MISSING_ARGUMENT, "dl.symm_at(x_full, peer)", "dl.symm_at(x_full)", "dl.symm_at(x_full)"),
    Seed(AG, Rule.MISSING_ARGUMENT, _WAIT, 'dl.wait(signals + part, 1, "sys", waitValue=target)', "return dl.wait"),
    Seed(AG, Rule.DUPLICATE_ARGUMENT, _NOTIFY, _NOTIFY.replace("peer,", "peer, rank=peer,"), "rank=peer"),
    Seed(AG, Rule.IMPLICIT_COMM_SCOPE, _NOTIFY, _NOTIFY.replace(', comm_scope="intra_node"', ""), "dl.notify"),
    Seed(
        COPY,
        Rule.TOO_MANY_ARGUMENTS,
        "_wait_eq_cuda(self.ready[self.rank], 1)",
        "_wait_eq_cuda(self.ready[self.rank], 1, None, 64)",
        "None, 64",
    ),
)

CONSTANTS_AND_WIDTHS = (
    Seed(AG, Rule.WRONG_CONSTANT, _WAIT, _WAIT.replace('"sys"', '"system"'), '"system"'),
    Seed(AG, Rule.WRONG_CONSTANT, _WAIT, _WAIT.replace('"acquire"', '"release"'), '"release"'),
    Seed(AG, Rule.WRONG_CONSTANT, _NOTIFY, _NOTIFY.replace('"set"', '"max"'), '"max"'),
    Seed(AG, Rule.WRONG_CONSTANT, _NOTIFY, _NOTIFY.replace('"intra_node"', '"sys"'), 'comm_scope="sys"'),
    Seed(
        FABRIC,
        Rule.WRONG_CONSTANT,
        'ld(signals + tl.program_id(0), scope="sys", semantic="acquire")',
        'ld(signals + tl.program_id(0), scope="sys", semantic="release")',
        "while ld",
    ),
    Seed(RING, Rule.LITERAL_CONSTANT, "libshmem_device.NVSHMEM_SIGNAL_SET", "9", "            9,"),
    Seed(RING, Rule.LITERAL_CONSTANT, "libshmem_device.NVSHMEM_CMP_EQ", "0", "signal_wait_until"),
    Seed(AG, Rule.WRONG_WIDTH, "(num_ranks,), NVSHMEM_SIGNAL_DTYPE", "(num_ranks,), torch.int32", "dl.notify"),
    Seed(
        COPY,
        Rule.WRONG_WIDTH,
        "_wait_eq_cuda(self.ready[",
        "_wait_eq_cuda(self.ready.to(torch.float32)[",
        "_wait_eq_cuda(self",
    ),
    Seed(
        COUNT,
        Rule.WRONG_WIDTH,
        "torch.float32)\n    out = torch.empty_like(x)\n    counter = nvshmem_create_tensor((1,), NVSHMEM_SIGNAL_DTYPE)",
        "torch.float32)\n    out = torch.empty_like(x)\n    word = torch.int32\n    counter = nvshmem_create_tensor((1,), word)",
        "dl.notify",
    ),
    Seed(
        AG,
        Rule.WRONG_WIDTH,
        _NOTIFY,
        _NOTIFY.replace("signals + rank", "signals.to(tl.pointer_type(tl.int32)) + rank"),
        "dl.notify",
    ),
    Seed(RING, Rule.BYTES_ARE_ELEMENTS, "x.numel() * x.element_size(), ", "x.numel(), ", "            part_bytes,"),
    Seed(COPY, Rule.BYTES_ARE_ELEMENTS, "x.numel() * x.element_size()", "x.numel()", "_memcpy_async_cuda(rows"),
    Seed(
        QUEUE,
        Rule.WRONG_WIDTH,
        "dl.wait(signals + slot",
        "dl.wait(signals.to(tl.pointer_type(tl.int16)) + slot",
        "tl.int16",
    ),
)

TOKENS_AND_ORDER = (
    Seed(AG, Rule.TOKEN_UNUSED, "x_part = dl.consume_token(x_full, token)", "x_part = x_full", "return dl.wait"),
    Seed(QUEUE, Rule.TOKEN_UNUSED, "source = dl.consume_token(slots, token)", "source = slots", "waitValue=full"),
    Seed(AG, Rule.TOKEN_NOT_IN_LOAD, "tl.load(x_part +", "tl.load(x_full +", "tl.load(x_full +"),
    Seed(
        AG,
        Rule.TOKEN_NOT_IN_LOAD,
        "x_part = dl.consume_token(x_full, token)",
        "w = dl.consume_token(w, token)\n        x_part = x_full",
        "tl.load(x_part",
    ),
    Seed(QUEUE, Rule.TOKEN_NOT_IN_LOAD, "value = tl.load(source", "value = tl.load(slots", "tl.load(slots"),
    Seed(
        COPY,
        Rule.TOKEN_NOT_IN_LOAD,
        "x_tiles = dl.consume_token(x_tiles, token)",
        "taken = dl.consume_token(x_tiles, token)",
        "taken =",
    ),
    Seed(
        AG, Rule.TOKEN_ORDER, "dl.consume_token(x_full, token)", "dl.consume_token(token, x_full)", "dl.consume_token"
    ),
    Seed(AG, Rule.NO_BARRIER_BEFORE_RAISE, "        __syncthreads()\n", "", "tl.atomic_add(counts"),
    Seed(
        QUEUE,
        Rule.NO_BARRIER_BEFORE_RAISE,
        "target + slot * BLOCK + tl.arange(0, BLOCK), value)\n    __syncthreads()\n",
        "target + slot * BLOCK + tl.arange(0, BLOCK), value)\n",
        "signal=empty + 1",
    ),
    Seed(
        AMD,
        Rule.NO_BARRIER_BEFORE_RAISE,
        "        __syncthreads()\n",
        "        if step > 1:\n            __syncthreads()\n",
        "st(dl.symm_at",
    ),
    Seed(
        FABRIC,
        Rule.NO_BARRIER_BEFORE_RAISE,
        "    __syncthreads()\n    if tid(0) == 0:\n        st(",
        "    if tid(0) == 0:\n        st(",
        "st(dl.symm_at",
    ),
    Seed(AMD, Rule.WEAK_SIGNAL, _ST, _ST.replace('"system"', '"agent"'), "st(dl.symm_at"),
    Seed(AMD, Rule.WEAK_SIGNAL, _ST, _ST.replace('"release"', '"monotonic"'), "st(dl.symm_at"),
    Seed(QUEUE, Rule.WEAK_SIGNAL, _FULL, _FULL.replace('"intra_node"', '"gpu"'), "signal=empty + 1"),
    Seed(
        FABRIC, Rule.WEAK_SIGNAL, 'scope="sys", semantic="release"', 'scope="gpu", semantic="release"', "st(dl.symm_at"
    ),
    Seed(AG, Rule.WEAK_SIGNAL, _WAIT, _WAIT.replace('"sys"', '"gpu"'), "return dl.wait"),
    Seed(AG, Rule.WEAK_SIGNAL, _WAIT, _WAIT.replace('"acquire"', '"relaxed"'), "return dl.wait"),
    Seed(FABRIC, Rule.WEAK_SIGNAL, 'scope="sys", semantic="acquire"', 'scope="gpu", semantic="acquire"', "while ld"),
)

_TOTAL = "waitValue=NUM_RANKS * BLOCKS)"
_ADD = 'dl.notify(counter, peer, signal=1, sig_op="add", comm_scope="intra_node")'

VALUES_AND_ADDRESSES = (
    Seed(COUNT, Rule.EQUALITY_CAN_PASS, _ADD, _ADD.replace("signal=1", "signal=3"), "dl.wait"),
    Seed(COUNT, Rule.EQUALITY_CAN_PASS, "        counter.zero_()\n", "", "dl.wait"),
    Seed(
        COUNT,
        Rule.EQUALITY_CAN_PASS,
        "    for _ in range(ROUNDS):\n        counter.zero_()\n",
        "    counter.zero_()\n    for _ in range(ROUNDS):\n",
        "dl.wait",
    ),
    Seed(
        COUNT,
        Rule.EQUALITY_CAN_PASS,
        "    token = dl.wait(counter,",
        '    early = dl.wait(counter, 1, "sys", "acquire", waitValue=NUM_RANKS)\n'
        "    tl.load(dl.consume_token(inbox, early))\n    token = dl.wait(counter,",
        "early = dl.wait",
    ),
    Seed(
        COUNT,
        Rule.EQUALITY_CAN_PASS,
        _ADD,
        "for again in range(100):\n            " + _ADD.replace("peer", "rank"),
        "dl.wait",
    ),
    Seed(COPY, Rule.TOO_MANY_SIGNALS, 'dl.wait(ready + part, 1, "sys"', 'dl.wait(ready + part, 64, "sys"', "dl.wait"),
    Seed(
        QUEUE,
        Rule.TOO_MANY_SIGNALS,
        'dl.wait(signals + slot, 1, "sys"',
        'dl.wait(signals + slot, SLOTS * 2, "sys"',
        ", SLOTS * 2, ",
    ),
    Seed(
        AG,
        Rule.SYMM_AT_TENSOR,
        "tl.store(target + start + offsets,",
        "tl.store(dl.symm_at(target + start + offsets, 0),",
        "tl.store(dl.symm_at",
    ),
    Seed(AG, Rule.SYMM_AT_TENSOR, _NOTIFY, _NOTIFY.replace("signals + rank", "signals + tl.arange(0, 8)"), "dl.notify"),
    Seed(
        AG,
        Rule.SYMM_AT_ARITHMETIC,
        "dl.symm_at(x_full, peer) + rank * rows * K",
        "dl.symm_at(x_full + rank * rows * K, peer)",
        "dl.symm_at",
    ),
    Seed(
        MULTIMEM,
        Rule.MC_PTR_ORDER,
        "remote_mc_ptr(libshmem_device.NVSHMEMX_TEAM_NODE, x)",
        "remote_mc_ptr(x, libshmem_device.NVSHMEMX_TEAM_NODE)",
        "remote_mc_ptr",
    ),
)

PLACES_AND_LAUNCHES = (
    Seed(COUNT, Rule.NOT_RESIDENT, ", **launch_cooperative_grid_options()", "", "all_to_all[(BLOCKS,)]"),
    Seed(TWO, Rule.NOT_RESIDENT, ", **OPTIONS)", ")", "two_shot[(264,)]"),
    Seed(AMD, Rule.NOT_RESIDENT, "grid = (min(64, NUM_SMS),)", "grid = (512,)", "exchange[grid]"),
    Seed(FABRIC, Rule.NOT_RESIDENT, "main.launch(halo, (8,)", "main.launch(halo, (16,)", "main.launch"),
    Seed(COPY, Rule.NOT_RESIDENT, 'min(NUM_SMS, meta["TILE"] * 4)', 'meta["TILE"] * 4', "gemm[lambda"),
    Seed(
        AG,
        Rule.NEEDS_DIST_JIT,
        '@triton_dist.jit(do_not_specialize=["call"])\ndef push',
        '@triton.jit(do_not_specialize=["call"])\ndef push',
        "def push",
    ),
    Seed(RING, Rule.NEEDS_DIST_JIT, "import triton_dist\n", "import triton as triton_dist\n", "def ring"),
    Seed(
        COPY,
        Rule.RANK_CONSTEXPR,
        '@triton_dist.jit(do_not_specialize=["rank"])\ndef gemm(x_full, w, out, ready, rank,',
        "@triton_dist.jit\ndef gemm(x_full, w, out, ready, rank: tl.constexpr,",
        "def gemm",
    ),
    Seed(
        AG,
        Rule.HOST_IN_KERNEL,
        "    rank = dl.rank()\n    num_ranks = dl.num_ranks()\n    for step",
        "    rank = dl.rank()\n    nvshmem_barrier_all_on_stream()\n    num_ranks = dl.num_ranks()\n    for step",
        "    nvshmem_barrier_all_on_stream()",
    ),
    Seed(
        MULTIMEM,
        Rule.DEVICE_ON_HOST,
        "    context = BarrierAllContext(True)\n",
        "    context = BarrierAllContext(True)\n    print(dl.rank())\n",
        "print(dl.rank())",
    ),
    Seed(
        AMD,
        Rule.NOTIFY_ON_AMD,
        _ST,
        'dl.notify(signals + program, peer, signal=call, comm_scope="intra_node")',
        "dl.notify",
    ),
    Seed(
        MORI,
        Rule.NOT_ON_VENDOR,
        "libshmem_device.MORI_SIGNAL_SET",
        "libshmem_device.NVSHMEM_SIGNAL_SET",
        "NVSHMEM_SIGNAL_SET",
    ),
    Seed(MORI, Rule.NOT_ON_VENDOR, "putmem_signal_nbi_block", "putmem_signal_nbi_wg", "putmem_signal_nbi_wg"),
    Seed(
        AG,
        Rule.FLATTENED_BARRIER,
        "for step in range(num_ranks)",
        "for step in tl.range(num_ranks, flatten=True)",
        "        __syncthreads()",
    ),
    Seed(
        RING,
        Rule.WRONG_CONSTANT,
        "libshmem_device.NVSHMEM_SIGNAL_SET",
        "libshmem_device.NVSHMEM_CMP_EQ",
        "            libshmem_device.NVSHMEM_CMP_EQ,",
    ),
)
SEEDS = (*NAMES_AND_ARGUMENTS, *CONSTANTS_AND_WIDTHS, *TOKENS_AND_ORDER, *VALUES_AND_ADDRESSES, *PLACES_AND_LAUNCHES)
