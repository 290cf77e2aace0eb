"""Paths through kernels: what is found across branches, loops and helpers, and what must not be."""

from __future__ import annotations

import textwrap

import pytest

from tests.dialect_api.checked import HEAD, RAISE, WAIT, findings, rules, without_types
from tilelink.dialect_api import Rule, Vendor

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
    assert rules(body, helpers) == [Rule.NO_BARRIER_BEFORE_RAISE]


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
    assert without_types(text).vendor is Vendor.ROCSHMEM
    assert without_types(text).findings == ()


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


def test_arithmetic_before_symm_at_is_judged_in_its_function() -> None:
    helper = "\n@triton.jit\ndef there(word, peer):\n    return dl.symm_at(word, peer)\n\n\n"
    assert rules("tl.load(there(signals + 4, peer))", helper) == []
    assert rules("tl.load(dl.symm_at(signals + 4, peer))") == [Rule.SYMM_AT_ARITHMETIC]
    assert rules("word = signals + n\ntl.load(dl.symm_at(word, peer))") == [Rule.SYMM_AT_ARITHMETIC]


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


def test_other_peoples_names_are_left_alone() -> None:
    text = "import torch\nfrom triton.language import anything\nx = torch.nothing\n\n\ndef wait(a): ...\n\n\nwait(1, 2, 3)\n"
    assert without_types(text).findings == ()
