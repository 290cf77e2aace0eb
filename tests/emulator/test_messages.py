"""Send and receive of a library on emulated ranks."""

from __future__ import annotations

import pytest
import torch

from tilelink.emulator import CollectiveMismatch, Deadlock, IllegalCopy, World


def part(rank: int, number: int, rows: int = 3) -> torch.Tensor:
    return torch.full((rows, 2), 10.0 * number + rank)


@pytest.mark.parametrize("seed", range(4))
def test_messages_come_in_their_order(seed: int) -> None:
    """Each rank sends to the next one, on two streams, several times and over two runs."""
    world, ranks = World(3, seed=seed), 3
    for run in range(2):
        found = {}
        for fabric in world.fabrics:
            rank = fabric.rank
            for name in ("a", "b"):
                for number in range(3):
                    out = found[rank, name, number] = torch.zeros(3, 2)
                    x = part(rank, number + 3 * run + (100 if name == "b" else 0))
                    to, source = (rank + 1) % ranks, (rank - 1) % ranks
                    fabric.stream(name).send_receive(out, x, to=to, source=source, sms=1)
        world.run()
        for (rank, name, number), out in found.items():
            assert torch.equal(out, part((rank - 1) % ranks, number + 3 * run + (100 if name == "b" else 0)))


def test_what_is_sent_may_be_overwritten_behind_it() -> None:
    world = World(2, seed=1)
    outs = [torch.zeros(3, 2) for _ in world.fabrics]
    for fabric, out in zip(world.fabrics, outs, strict=True):
        x, other = part(fabric.rank, 1), 1 - fabric.rank
        fabric.main().send_receive(out, x, to=other, source=other, sms=1)
        fabric.main().copy(x, torch.zeros(3, 2))
    world.run()
    assert torch.equal(outs[0], part(1, 1)) and torch.equal(outs[1], part(0, 1))


def test_a_rank_that_does_not_come_holds_up_both() -> None:
    """Of three ranks in a circle one sends nothing: neither its receiver goes on nor its sender."""
    world = World(3)
    for fabric in world.fabrics[:2]:
        to, source = (fabric.rank + 1) % 3, (fabric.rank - 1) % 3
        fabric.main().send_receive(torch.zeros(3, 2), part(fabric.rank, 0), to=to, source=source, sms=1)
    with pytest.raises(Deadlock, match="send_receive"):
        world.run()


def test_messages_of_other_shapes_are_refused() -> None:
    world = World(2)
    for fabric in world.fabrics:
        x, other = part(fabric.rank, 0, rows=2 + fabric.rank), 1 - fabric.rank
        fabric.main().send_receive(torch.zeros(2 + fabric.rank, 2), x, to=other, source=other, sms=1)
    with pytest.raises(CollectiveMismatch, match="a receive into"):
        world.run()


def test_it_holds_sms() -> None:
    world = World(2, num_sms=2)
    for fabric in world.fabrics:
        other = 1 - fabric.rank
        fabric.main().send_receive(torch.zeros(3, 2), part(fabric.rank, 0), to=other, source=other, sms=3)
    with pytest.raises(Deadlock, match="SM"):
        world.run()


# ---- puts on a stream --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_put_lands_before_its_word(seed: int) -> None:
    """Rows 1 to 3 of each rank go to the next one, which copies them when the word has come."""
    world, ranks = World(3, seed=seed), 3
    found = []
    for fabric in world.fabrics:
        x, y = (fabric.symmetric((5, 2), torch.float32, name) for name in ("x", "y"))
        words, value = fabric.symmetric((4,), torch.int64, "words"), fabric.symmetric((1,), torch.int64, "value")
        x.local.copy_(part(fabric.rank, 1, rows=5))
        value.local.fill_(7)
        found.append((fabric, x, y, words, value, torch.zeros(3, 2)))
    for fabric, x, y, words, value, out in found:
        stream, to = fabric.stream("puts"), (fabric.rank + 1) % ranks
        stream.put(y.local[1:4], x.local[1:4], words.local[2:][:1], value.local, to=to)
        fabric.main().wait_at_least(words.local[2:][:1], 7)
        fabric.main().copy(out, y.local[1:4])
    world.run()
    for fabric, _, y, words, _, out in found:
        assert torch.equal(out, part((fabric.rank - 1) % ranks, 1)) and words.local.tolist() == [0, 0, 7, 0]
        assert not y.local[[0, 4]].any()


@pytest.mark.parametrize("plain", ["dst", "src", "word", "value"])
def test_a_put_is_of_symmetric_memory(plain: str) -> None:
    """A network card reads and writes no other."""
    fabric = World(2).fabrics[0]
    given = {name: fabric.symmetric((1,), torch.int64, name).local for name in ("dst", "src", "word", "value")}
    given[plain] = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(IllegalCopy, match="a put is of memory which is in no symmetric buffer"):
        fabric.main().put(**given, to=1)
