"""Host code that fails: the error itself with the line, without a class of bug; what the emulator lacks is not checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.adversary.bugs import edited, line_of
from tests.adversary.files import DOUBLE, LAUNCH, verified
from tilelink.adversary.verdict import VerdictKind

if TYPE_CHECKING:
    from pathlib import Path

CALL = "    def __call__(self, x):\n"
WORD = "handle.get_signal_pad(peer)"
FAILS = {  # what the first launch is replaced by: what the message says
    "a view past the end": ("handle.get_buffer(peer, (N + 1,), torch.float32)", "IllegalView"),
    "a missing argument": ("double[(1,)](x)", "missing a required argument: 'out'"),
    "an unknown option": ("double[(1,)](x, out, N=N, num_wraps=4)", "num_wraps"),
    "a grid of four sizes": ("double[(1, 1, 1, 1)](x, out, N=N)", "is not a grid"),
    "a copy of another size": ("symm.copy(self.data, x[:4])", "the numbers of elements differ"),
    "a signal of another type": ("symm.stream_write_value32(self.data, 0, 1)", "IllegalSignalTensor"),
    "a tensor of nobody": ("symm.rendezvous(x)", "IllegalRendezvous"),
    "an error of Python": ("{}['n']", "KeyError: 'n'"),
    "an assertion": ("assert x.numel() == 3, 'three elements'", "three elements"),
    "one rank only": ("1 // (1 - handle.rank)", "ZeroDivisionError"),
}
LACKS = {
    "a method": ("handle.get_remote_tensors(0)", "SymmetricHandle.get_remote_tensors"),
    "a parameter": ("handle.barrier(group=None)", "parameter 'group' of SymmetricHandle.barrier"),
    "a wait for a peer's word": (f"symm.current.wait_equal({WORD}.view(torch.int32)[:1], 1)", "memory of rank 1"),
}


def failing(line: str) -> str:
    return edited(DOUBLE, (LAUNCH, f"            {line}  # here\n"))


@pytest.mark.parametrize("name", FAILS)
def test_the_error_itself_is_said_without_a_class(name: str, tmp_path: Path) -> None:
    line, says = FAILS[name]
    source = failing(line)
    found = verified(tmp_path, source).counterexample
    assert found is not None
    assert (found.number, found.bug) == (0, "the file does not run")
    assert found.rank == int(name == "one rank only")
    assert found.line == line_of(source, "# here")
    assert f"host code of rank {found.rank} failed at operator.py:{found.line}" in found.message
    assert says in found.message


@pytest.mark.parametrize("name", LACKS)
def test_what_the_emulator_lacks_is_not_checked(name: str, tmp_path: Path) -> None:
    line, says = LACKS[name]
    source = failing(line)
    found = verified(tmp_path, source)
    assert found.kind is VerdictKind.NOT_CHECKED
    assert found.obstacle is not None
    assert says in found.obstacle.what
    assert (found.obstacle.line, bool(found.obstacle.hint)) == (line_of(source, "# here"), True)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("        return out\n", "        return None\n", "output 0 is a NoneType"),
        (CALL, "    def __call__(self, x, w):\n", "missing 1 required positional argument"),
        ("def __init__(self, fabric):", "def __init__(self):", "takes 1 positional argument"),
    ],
)
def test_an_operator_of_another_form(before: str, after: str, says: str, tmp_path: Path) -> None:
    found = verified(tmp_path, edited(DOUBLE, (before, after))).counterexample
    assert found is not None
    assert found.number == 0 and says in found.message
    assert found.file == "operator.py" and found.line


def test_a_stream_writes_the_word_of_a_peer(tmp_path: Path) -> None:
    write = f"            symm.stream_write_value32({WORD}, 100 + handle.rank, 1)\n"
    found = verified(tmp_path, edited(DOUBLE, (LAUNCH, write + LAUNCH)))
    assert found.kind is VerdictKind.NOT_REFUTED, found.lines()


def test_ranks_that_decide_differently_still_are_class_7(tmp_path: Path) -> None:
    uneven = edited(DOUBLE, ("self.symm.empty(N,", "self.symm.empty(N + fabric.rank,"))
    found = verified(tmp_path, uneven).counterexample
    assert found is not None
    assert found.number == 7
