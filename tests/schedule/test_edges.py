"""The words of a region, computed from its indices, are those of the chunks that its elements lie in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tilelink.schedule.edges import divisor, divisors, image
from tilelink.schedule.index import Index, evaluate, least

TILE = Index("tile")


@given(
    size=st.integers(1, 40),
    rows=st.integers(1, 200),
    width=st.sampled_from([1, 4, 8, 16, 128]),
    shift=st.integers(0, 60),
    ragged=st.booleans(),
)
def test_chunks_of_all_tiles(size: int, rows: int, width: int, shift: int, ragged: bool) -> None:
    """Rows in tiles, from `shift` rows on; tiles end with the rows, or reach over their end."""
    let = (("m", TILE * width),)
    start = Index("m") + shift
    extent = least(width, rows - Index("m")) if ragged else width
    first, count = image(start, extent, size, divisors(let))
    for tile in range(-(-rows // width)):
        env = {"m": tile * width}
        end = min(rows, (tile + 1) * width) if ragged else (tile + 1) * width
        touched = {row // size for row in range(tile * width + shift, end + shift)}
        found = int(evaluate(first, env))
        assert set(range(found, found + int(evaluate(count, env)))) == touched
    if size % width == 0 and shift == 0:
        assert count == 1  # what lies in one chunk needs no loop


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 30), st.integers(0, 12))
def test_divisors_divide(a: int, b: int, tile: int, plus: int) -> None:
    let = (
        ("m", (TILE // a) * b),
        ("n", Index("m") * 4 + plus * b),
        ("k", Index("n") // b),
        ("rest", Index("n") % (2 * b)),
    )
    env = {"tile": tile}
    found = divisors(let)
    for name, index in let:
        env[name] = int(evaluate(index, env))
        assert env[name] == 0 if found[name] == 0 else env[name] % found[name] == 0


def test_what_is_known_of_divisors() -> None:
    m = Index("m")
    assert divisor(m * 128 + 64, {}) == 64
    assert divisor((m * 128) // 32, {}) == 4 and divisor((m * 128) // 96, {}) == 1
    assert divisor(m % 8, {"m": 4}) == 4
