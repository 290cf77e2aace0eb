"""What is followed from the host into kernels: grids that must be resident, and the width of signal words."""

from __future__ import annotations

import pytest

from tests.dialect_api.checked import HEAD, RAISE, WAIT, findings, rules, without_types
from tilelink.dialect_api import Rule


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
        (f"kernel[(min(200, 66) * max(1, 2),)]({ARGUMENTS})", ""),
        (f"kernel[(max(66, NUM_SMS),)]({ARGUMENTS})", ""),
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
        f"kernel[(max(133, NUM_SMS),)]({ARGUMENTS})",
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
    assert [found.rule for found in without_types(text).findings] == [Rule.WRONG_WIDTH]
    assert without_types(text.replace("*i32", "*i64")).findings == ()
