"""Paths through kernels: what is found across branches, loops and helpers, and what must not be."""

from __future__ import annotations

import textwrap

import pytest

from tilelink.dialect_api import Finding, Rule, Vendor, check_source

HEAD = """
import torch
import triton
import triton.language as tl
import triton_dist
import triton_dist.language as dl
from triton_dist.language.extra import libshmem_device
from triton_dist.language.extra.cuda.language_extra import *
from triton_dist.language.extra.language_extra import __syncthreads, atomic_add, ld, st, tid
from triton_dist.utils import nvshmem_create_tensor

OFFSETS = 128
"""
RAISE = 'dl.notify(signals, peer, signal=1, sig_op="set", comm_scope="intra_node")'
WAIT = 'dl.wait(signals, 1, "sys", "acquire")'


def findings(body: str, helpers: str = "", host: str = "", vendor: Vendor | None = None) -> list[Finding]:
    """Of a kernel of that body; parameters x, y, out, signals, peer, n and the constexpr BLOCK."""
    kernel = "@triton_dist.jit\ndef kernel(x, y, out, signals, peer, n, BLOCK: tl.constexpr):\n"
    text = HEAD + textwrap.dedent(helpers) + kernel + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
    return list(check_source(f"{text}\n{textwrap.dedent(host)}", vendor=vendor).findings)


def rules(body: str, helpers: str = "", host: str = "", vendor: Vendor | None = None) -> list[Rule]:
    return [found.rule for found in findings(body, helpers, host, vendor)]


BARRIER_HELPER = f"""
@triton.jit
def publish(signals, peer):
    __syncthreads()
    {RAISE}
"""
STORE_HELPER = """
@triton.jit
def put(out, x, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    if BLOCK > 64:
        tl.store(out + offsets, tl.load(x + offsets))
        return
    __syncthreads()
"""


@pytest.mark.parametrize(
    ("body", "helpers"),
    [
        (f"tl.store(out, 1)\n__syncthreads()\n{RAISE}", ""),
        ("tl.store(out, 1)\ntl.atomic_add(y, 1)", ""),
        (f"tl.store(out, 1)\ntl.debug_barrier()\n{RAISE}", ""),
        ("tl.store(out, 1)\npublish(signals, peer)", BARRIER_HELPER),
        (
            'tl.store(out, 1)\ntl.inline_asm_elementwise("bar.sync 0; mov.u32 $0, 0;", "=r", [], tl.int32, False, 1)\n'
            + RAISE,
            "",
        ),
        (f"for i in range(n):\n    tl.store(out + i, 1)\n__syncthreads()\n{RAISE}", ""),
        (f"for i in range(n):\n    tl.store(out + i, 1)\n    __syncthreads()\n    {RAISE}", ""),
        (f"if n > 3:\n    tl.store(out, 1)\n    __syncthreads()\nelse:\n    pass\n{RAISE}", ""),
        (f"if n > 3:\n    tl.store(out, 1)\n    return\n{RAISE}", ""),
        (f"if BLOCK:\n    {RAISE}\ntl.store(out, 1)", ""),
        (
            f"while n > 0:\n    tl.store(out, 1)\n    if n == 7:\n        break\n    n -= 1\n__syncthreads()\n{RAISE}",
            "",
        ),
        (
            'if tid(0) == 0:\n    st(out, 1, scope="sys")\n    st(dl.symm_at(signals, peer), 1, scope="sys", semantic="release")',
            "",
        ),
        (f"put(out, x, BLOCK)\n__syncthreads()\n{RAISE}", STORE_HELPER),
        (f"tl.store(out, 1)\nlibshmem_device.barrier_all_block()\n{RAISE}", ""),
        ('tl.store(out, 1)\narrive_inc(signals.to(tl.pointer_type(tl.int32)), tid(0), 1, "sys")', ""),
    ],
)
def test_a_barrier_on_every_path(body: str, helpers: str) -> None:
    assert rules(body, helpers) == []


@pytest.mark.parametrize(
    ("body", "helpers"),
    [
        (f"tl.store(out, 1)\n{RAISE}", ""),
        (f"__syncthreads()\ntl.store(out, 1)\n{RAISE}", ""),
        (f"__syncthreads()\nfor i in range(n):\n    {RAISE}\n    tl.store(out + i, 1)", ""),
        (f"tl.store(out, 1)\nif n > 3:\n    __syncthreads()\n{RAISE}", ""),
        (f"tl.store(out, 1)\nfor i in range(n):\n    __syncthreads()\n{RAISE}", ""),
        (f"while n > 0:\n    tl.store(out, 1)\n    if n == 7:\n        break\n    __syncthreads()\n{RAISE}", ""),
        (
            f"for i in range(n):\n    tl.store(out, 1)\n    if i == 7:\n        continue\n    __syncthreads()\n{RAISE}",
            "",
        ),
        (f"put(out, x, BLOCK)\n{RAISE}", STORE_HELPER),
        ('tl.store(out, 1)\nred_release(signals.to(tl.pointer_type(tl.int32)), 1, "sys")', ""),
        ('tl.store(out, 1)\nst(signals, 1, scope="sys", semantic="release")', ""),
        ('tl.store(out, 1)\ntl.atomic_add(y, 1, sem="acq_rel", scope="gpu")', ""),
        ('tl.store(out, 1)\ntl.atomic_xchg(signals, 1, sem="release", scope="sys")', ""),
        ("tl.store(out, 1)\nlibshmem_device.signal_op(signals, 1, libshmem_device.NVSHMEM_SIGNAL_SET, peer)", ""),
        (
            f"d = tl.make_tensor_descriptor(out, shape=[n], strides=[1], block_shape=[BLOCK])\nd.store([0], x)\n{RAISE}",
            "",
        ),
        (f"with dl.simt_exec_region() as (i, size):\n    st_v4_u32(out + i, 1, 2, 3, 4)\n{RAISE}", ""),
    ],
)
def test_a_path_without_barrier(body: str, helpers: str) -> None:
    assert rules(body, helpers) == [Rule.NO_BARRIER]


TOKEN_HELPER = f"""
@triton.jit
def wait_and_take(pointer, signals):
    token = {WAIT}
    return dl.consume_token(pointer, token), token
"""


def test_one_missing_barrier_is_one_finding() -> None:
    found = findings(f"tl.store(out, 1)\n{RAISE}\n{RAISE}\ntl.store(out, 2)\n{RAISE}")
    assert [one.line - found[0].line for one in found] == [0, 3]


@pytest.mark.parametrize(
    ("body", "helpers"),
    [
        (f"token = {WAIT}\nx = dl.consume_token(x, token)\ntl.store(out, tl.load(x))", ""),
        ("x, token = wait_and_take(x, signals)\ntl.store(out, tl.load(x))", TOKEN_HELPER),
        ("here = wait_and_take(x, signals)[0]\ntl.store(out, tl.load(here))", TOKEN_HELPER),
        (f"if n > 0:\n    token = {WAIT}\n    x = dl.consume_token(x, token)\ntl.store(out, tl.load(x))", ""),
        (
            f"for i in range(n):\n    token = {WAIT}\n    part = dl.consume_token(x, token)\n    tl.load(part)\ntl.load(x)",
            "",
        ),
        (f"token = {WAIT}\npart = dl.consume_token(x, token)\n__syncthreads()\ntl.load(part)\ntl.load(x + 4)", ""),
        (f"for i in range(n):\n    x = dl.consume_token(x, {WAIT})\ntl.load(x)", ""),
        (f"token = {WAIT}\ntarget = dl.consume_token(dl.symm_at(x, peer), token)\ntl.store(target, 1)", ""),
        (f"token = {WAIT}\nx = dl.consume_token(x, token)\nlibshmem_device.getmem_block(out, x, n, peer)", ""),
    ],
)
def test_tokens_that_are_taken(body: str, helpers: str) -> None:
    assert rules(body, helpers) == []


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (f"{WAIT}\ntl.store(out, tl.load(x))", Rule.TOKEN_UNUSED),
        (f"_ = {WAIT}\n__syncthreads()\ntl.store(out, tl.load(x))", Rule.TOKEN_UNUSED),
        (f"token = {WAIT}\ndl.consume_token(x, token)\ntl.store(out, tl.load(x))", Rule.TOKEN_NOT_IN_LOAD),
        (f"token = {WAIT}\ntaken = dl.consume_token(x, token)\ntl.store(out, tl.load(y))", Rule.TOKEN_NOT_IN_LOAD),
        (
            f"old = x + 4\ntoken = {WAIT}\nx = dl.consume_token(x, token)\ntl.load(x)\ntl.load(old)",
            Rule.TOKEN_NOT_IN_LOAD,
        ),
    ],
)
def test_tokens_that_are_lost(body: str, rule: Rule) -> None:
    assert rules(body) == [rule]


def test_a_wait_of_one_thread_is_followed_by_a_barrier() -> None:
    wait = "libshmem_device.signal_wait_until(signals, libshmem_device.NVSHMEM_CMP_GE, 1)"
    load = "tl.store(out, tl.load(dl.symm_at(x, peer)))"
    assert rules(f"if tid(0) == 0:\n    {wait}\n__syncthreads()\n{load}") == []
    assert rules(f"if tid(0) == 0:\n    {wait}\n{load}") == [Rule.TOKEN_NOT_IN_LOAD]
    assert rules(f"{wait}\n{load}") == []  # every thread has waited
    assert rules(f"if tid(0) == 0:\n    {wait}\n    {load}\n__syncthreads()") == []


def test_the_token_of_a_helper_is_judged_by_its_caller() -> None:
    helper = f"\n@triton.jit\ndef wait_word(signals):\n    return {WAIT}\n\n\n"
    assert rules("token = wait_word(signals)\ntl.load(dl.consume_token(x, token))", helper) == []
    assert rules("wait_word(signals)\ntl.load(x)", helper) == [Rule.TOKEN_UNUSED]


def test_more_than_32_words_are_legal_on_amd() -> None:
    body = 'token = dl.wait(signals, 64, "sys", "acquire")\ntl.load(dl.consume_token(x, token))'
    assert rules(body) == [Rule.TOO_MANY_SIGNALS]
    text = HEAD.replace("cuda", "hip") + f"@triton_dist.jit\ndef kernel(x, signals):\n{textwrap.indent(body, '    ')}\n"
    assert check_source(text).vendor is Vendor.ROCSHMEM
    assert check_source(text).findings == ()


ADD = 'dl.notify(signals, {rank}, signal={amount}, sig_op="add", comm_scope="intra_node")'


def equality(amount: int, target: str, rank: str = "peer", more: str = "") -> list[Rule]:
    wait = f'token = dl.wait(signals, 1, "sys", "acquire", waitValue={target})\ntl.load(dl.consume_token(x, token))\n'
    return rules(f"{ADD.format(amount=amount, rank=rank)}\n{wait}{more}")


def test_equality_with_steps() -> None:
    assert equality(1, "7") == []
    assert equality(2, "8") == []
    assert equality(2, "7") == [Rule.EQUALITY_CAN_PASS]
    assert equality(4, "n") == []  # not a constant
    assert (
        equality(2, "7", more='st(signals, 0, scope="sys", semantic="release")') == []
    )  # set as well: nothing is said


def test_equality_in_loops() -> None:
    many = f"for i in range(9):\n    {ADD.format(amount=1, rank='peer')}\n"
    wait = 'token = dl.wait(signals, 1, "sys", "acquire", waitValue=8)\ntl.load(dl.consume_token(x, token))'
    assert rules(many + wait) == [Rule.EQUALITY_CAN_PASS]
    assert rules(many.replace("range(9)", "range(8)") + wait) == []
    assert rules(many.replace("dl.notify(signals,", "dl.notify(signals + i,") + wait) == []
    assert rules(many.replace("    dl", "    if n:\n        dl") + wait) == []
    assert rules(many.replace("    dl", "    if n > i:\n        break\n    dl") + wait) == []


def test_equality_with_several_raises_of_one_program() -> None:
    one = ADD.format(amount=1, rank="peer")
    wait = 'token = dl.wait(signals, 1, "sys", "acquire", waitValue=1)\ntl.load(dl.consume_token(x, token))\n'
    branches = f"if n == 0:\n    {one}\n    {one}\nelse:\n" + textwrap.indent(wait, "    ")
    assert rules(branches) == [Rule.EQUALITY_CAN_PASS]
    assert rules(branches.replace(f"    {one}\n    {one}", f"    {one}")) == []
    assert rules(f"if n == 0:\n    {one}\nelse:\n    {one}\n{wait}") == []
    assert rules(f"{one}\n{one.replace('peer', 'peer + 1')}\n{wait}") == []
    assert rules(f"{one}\n{wait}{one}") == []


def test_a_polling_loop_is_an_equality_wait_too() -> None:
    loop = 'while ld(signals, scope="sys", semantic="acquire") != {}:\n    pass'
    add = ADD.format(amount=2, rank="peer")
    assert rules(f"{add}\n{loop.format(3)}") == [Rule.EQUALITY_CAN_PASS]
    assert rules(f"{add}\n{loop.format(4)}") == []
    assert rules(f"{add}\n{loop.replace('!=', '<').format(3)}") == []


def launched(launch: str, body: str = f"tl.load(dl.consume_token(x, {WAIT}))", more: str = "") -> list[Rule]:
    host = f"\nNUM_SMS = 132\n\n\ndef main(x, y, out, signals, peer, n, options):\n    {more or 'pass'}\n    {launch}\n"
    return rules(body, host=host)


ARGUMENTS = "x, y, out, signals, peer, n, 128"


@pytest.mark.parametrize(
    ("launch", "more"),
    [
        (f"kernel[(132,)]({ARGUMENTS})", ""),
        (f"kernel[(66, 2)]({ARGUMENTS})", ""),
        (f"kernel[(1,)]({ARGUMENTS})", ""),
        (f"kernel[(NUM_SMS,)]({ARGUMENTS})", ""),
        (f"kernel[(NUM_SMS - 8, 1)]({ARGUMENTS})", ""),
        (f"kernel[(min(n, NUM_SMS),)]({ARGUMENTS})", ""),
        (f"kernel[lambda meta: (min(NUM_SMS, triton.cdiv(n, 8)),)]({ARGUMENTS})", ""),
        (f"kernel[(sms,)]({ARGUMENTS})", "sms = torch.cuda.get_device_properties(0).multi_processor_count"),
        (f"kernel[(n,)]({ARGUMENTS}, launch_cooperative_grid=True)", ""),
        (f"kernel[(n,)]({ARGUMENTS}, **{{'launch_cooperative_grid': True}})", ""),
        (f"kernel[(n,)]({ARGUMENTS}, **options)", ""),
        (f"kernel[(n,)]({ARGUMENTS}, **more)", "more = {}\n    more.update(options)"),
        (f"kernel[(n,)]({ARGUMENTS}, **more)", "more = {}\n    more['launch_cooperative_grid'] = True"),
    ],
)
def test_resident_launches(launch: str, more: str) -> None:
    assert launched(launch, more=more) == []


@pytest.mark.parametrize(
    "launch",
    [
        f"kernel[(133,)]({ARGUMENTS})",
        f"kernel[(n,)]({ARGUMENTS})",
        f"kernel[(NUM_SMS * 2,)]({ARGUMENTS})",
        f"kernel[(NUM_SMS, 2)]({ARGUMENTS})",
        f"kernel[(max(n, NUM_SMS),)]({ARGUMENTS})",
        f"kernel[(n,)]({ARGUMENTS}, launch_cooperative_grid=False)",
        f"kernel[(n,)]({ARGUMENTS}, **dict(num_warps=8))",
        f"kernel[(n,)]({ARGUMENTS}, **{{'num_warps': 8}})",
    ],
)
def test_launches_that_may_not_be_resident(launch: str) -> None:
    assert launched(launch) == [Rule.NOT_RESIDENT]


def test_what_spins() -> None:
    launch = f"kernel[(n,)]({ARGUMENTS})"
    assert launched(launch, "tl.store(out, tl.load(x))") == []
    poll = 'while atomic_add(signals, 0, "sys", "acquire") < n:\n    pass'
    assert launched(launch, poll) == [Rule.NOT_RESIDENT]
    queue = "tile = tl.atomic_add(x, 1)\nwhile tile < n:\n    tl.store(out + tile, 1)\n    tile = tl.atomic_add(x, 1)"
    assert launched(launch, queue) == []  # takes tiles, waits for nobody
    again = "seen = tl.load(x)\nwhile seen < n:\n    seen = tl.load(x)"
    assert launched(launch, again) == [Rule.NOT_RESIDENT]


def test_widths_are_followed_from_the_host() -> None:
    host = """
    class Context:
        def __init__(self, num_ranks):
            self.signals = nvshmem_create_tensor((num_ranks,), {})


    def helper(words, n):
        kernel[(1,)](words, words, words, words, 0, n, BLOCK=128)


    def main(context):
        helper(context.signals, 4)
    """
    body = f"{RAISE}\n"
    found = findings(body, host=host.format("torch.int32"))
    assert [one.rule for one in found] == [Rule.WRONG_WIDTH]
    assert "int32 words (line " in found[0].message and found[0].legal == ("int64", "uint64")
    assert rules(body, host=host.format("torch.int64")) == []
    assert rules(body, host=host.format("dtype_of_the_day")) == []


def test_a_fabric_and_its_symmetric_buffers() -> None:
    host = """
    class Symmetric:
        def __init__(self, shape, dtype, rank):
            self.peers = make_them(shape, dtype)
            self.local = self.peers[rank]


    class Operator:
        def __init__(self, fabric):
            self.signals = fabric.symmetric((5,), {})

        def __call__(self, x):
            main = self.fabric.main()
            main.launch(kernel, (1,), x, x, x, self.signals.local, 0, 4, BLOCK=128, num_warps=8)
    """
    assert rules(RAISE, host=host.format("torch.int64")) == []
    assert rules(RAISE, host=host.format("torch.int32")) == [Rule.WRONG_WIDTH]


def test_arithmetic_before_symm_at_is_judged_in_its_function() -> None:
    helper = "\n@triton.jit\ndef there(word, peer):\n    return dl.symm_at(word, peer)\n\n\n"
    assert rules("tl.load(there(signals + 4, peer))", helper) == []
    assert rules("tl.load(dl.symm_at(signals + 4, peer))") == [Rule.SYMM_AT_ARITHMETIC]
    assert rules("word = signals + n\ntl.load(dl.symm_at(word, peer))") == [Rule.SYMM_AT_ARITHMETIC]


def test_a_cast_to_an_unknown_type_hides_the_width() -> None:
    host = """
    def main(n):
        kernel[(1,)](n, n, n, nvshmem_create_tensor((n,), torch.int8), 0, n, BLOCK=128)
    """
    assert rules(RAISE, host=host) == [Rule.WRONG_WIDTH]
    assert rules("signals = tl.cast(signals, y.dtype)\n" + RAISE, host=host) == []
    assert rules("signals = signals.to(tl.pointer_type(tl.int64))\n" + RAISE, host=host) == []


def test_classes_with_attributes_of_one_name_are_told_apart() -> None:
    host = """
    class Notified:
        def __init__(self):
            self.signals = nvshmem_create_tensor((8,), {})

        def __call__(self, x):
            kernel[(1,)](x, x, x, self.signals, 0, 4, BLOCK=128)


    class Copied:
        def __init__(self):
            self.signals = torch.zeros(8, dtype=torch.int32)

        def __call__(self, x):
            return self.signals
    """
    assert rules(RAISE, host=host.format("torch.int64")) == []
    assert rules(RAISE, host=host.format("torch.int32")) == [Rule.WRONG_WIDTH]


def test_a_width_in_an_annotation() -> None:
    text = HEAD + f'@triton_dist.jit\ndef kernel(signals: "*i32", peer):\n    {RAISE}\n'
    assert [found.rule for found in check_source(text).findings] == [Rule.WRONG_WIDTH]
    assert check_source(text.replace("*i32", "*i64")).findings == ()


def test_scopes_between_gpus() -> None:
    store = "tl.store(dl.symm_at(out, peer), 1)\n__syncthreads()\n"
    near = RAISE.replace("intra_node", "gpu")
    assert rules(f"tl.store(out, 1)\n__syncthreads()\n{near}") == []
    assert rules(store + near) == [Rule.WEAK_SIGNAL]
    assert rules(f"{store}{RAISE}\n{near}") == []  # the first signal has published the store
    count = 'if atomic_add(y, 1, "gpu", "acq_rel") == n - 1:\n    '
    assert rules(store + count + RAISE) == []  # the last program publishes what all have stored
    assert rules(store + count + near) == [Rule.WEAK_SIGNAL] * 2
    assert rules(f'{store}membar("sys")\nst(signals, 1, scope="sys")') == []
    assert rules('tl.store(out, 1)\n__syncthreads()\nst(signals, 1, scope="gpu", semantic="release")') == []
    relaxed = 'token = dl.wait(signals, 1, "sys", "relaxed")\n{}tl.load(dl.consume_token(x, token))'
    assert rules(relaxed.format("")) == [Rule.WEAK_SIGNAL]
    assert rules(relaxed.format('fence("acquire", "sys")\n')) == []


def test_unlisted_names_are_warnings() -> None:
    report = check_source("from triton_dist.utils import dist_print\nimport triton_dist.layers.moe\n")
    assert [found.rule for found in report.findings] == [Rule.UNLISTED_NAME] * 2
    assert not report.refuted
    assert report.lines()[-1].startswith("valid: ") and report.lines()[-1].endswith("0 mistakes, 2 warnings")


def test_other_peoples_names_are_left_alone() -> None:
    text = "import torch\nfrom triton.language import anything\nx = torch.nothing\n\n\ndef wait(a): ...\n\n\nwait(1, 2, 3)\n"
    assert check_source(text).findings == ()
