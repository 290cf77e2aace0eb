"""docs/overlap.svg: one call of AllGather + GEMM, drawn from its schedule with the times of the planner's cost model.

Above, the chunks of x by copy engines; a rank receives at the same place of its order what it sends. Below, the programs of
the tile loop, coloured by the rank whose rows they multiply; then the same operator without overlap, for comparison.
`pytest --update-golden tests/docs/test_pages.py` writes the picture anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

import topologies
from tilelink import Schedule, Shard, Tensor, all_gather, dims, matmul, overlap
from tilelink.ir.spec import DTYPE_BYTES
from tilelink.planner.cost import TileTimes, timeline
from tilelink.planner.links import library_us
from topologies.topology import Topology

M, N, K = dims("M N K")
MACHINE, RANKS, SIZES = "h200-nvswitch", 4, {"M": 8192, "K": 4096, "N": 14336}

LEFT, WIDTH, ROW, LOOP, GAP = 150, 720, 34, 150, 24  # px
COLOURS = ("#4c78a8", "#f2a65a", "#69a76b", "#b279a2")  # own rows, then those of the other ranks as they arrive
GREY, WAITING = "#8a8f98", "#d9dce1"


@overlap
def ag_gemm(x: Tensor(M, K, placement=Shard(0)), w: Tensor(K, N, placement=Shard(1))):  # type: ignore[valid-type,no-untyped-def]
    return matmul(all_gather(x, dim=0), w)


@dataclass(frozen=True)
class Box:
    """From `first_us` to `last_us`, `top` to `bottom` px."""

    first_us: float
    last_us: float
    top: float
    bottom: float
    colour: str
    label: str = ""

    def svg(self, px_per_us: float) -> str:
        x, width = LEFT + self.first_us * px_per_us, (self.last_us - self.first_us) * px_per_us
        rect = (
            f'<rect x="{x:.1f}" y="{self.top:.1f}" width="{width:.1f}" height="{self.bottom - self.top:.1f}" '
            f'fill="{self.colour}" stroke="white" stroke-width="0.8"/>'
        )
        middle = f'x="{x + width / 2:.1f}" y="{(self.top + self.bottom) / 2 + 4:.1f}"'
        return rect + (f'<text {middle} class="in">{escape(self.label)}</text>' if self.label else "")


def picture() -> str:
    """Text of the SVG."""
    topology = topologies.load(MACHINE, RANKS)
    schedule = ag_gemm.plan_for(topology, SIZES)
    plain = ag_gemm.plan_for(topology, SIZES, pin={"algorithm": "library", "compute": "library"})
    course = timeline(schedule, topology)
    (exchange,), (loop,) = schedule.exchanges, course.tiles.values()
    top = 52
    boxes = [
        Box(first, last, top, top + ROW, COLOURS[1 + step // exchange.chunks], str(step % exchange.chunks))
        for step, (first, last) in enumerate(course.moves[exchange.name])
    ]
    top += ROW + GAP
    boxes += _loop_boxes(loop, top)
    tops, bottom = [52, top], top + LOOP + 2 * GAP
    boxes += _plain_boxes(plain, topology, bottom)
    tops.append(bottom)
    px_per_us = WIDTH / (math.ceil(plain.predicted_us / 50) * 50)
    end = f'<line x1="{(x := LEFT + course.total_us * px_per_us):.1f}" x2="{x:.1f}" y1="44" y2="{bottom + ROW}" class="end"/>'
    names = [
        ["copy engines: chunks", "0 and 1 of each rank,", "each with its signal"],
        [f"tile loop on {loop.programs} SMs:", "a row is an SM,", "a box its next tile"],
        ["without overlap"],
    ]
    texts = [_lines(8, y + 12, lines) for y, lines in zip(tops, names, strict=True)]
    texts += [
        _axis(px_per_us, bottom + ROW + 6, plain.predicted_us),
        _legend(bottom + ROW + 52, any(box.colour == WAITING for box in boxes)),
    ]
    title = f"{schedule.name} on {RANKS} x {topology.gpu.name}, {' '.join(f'{n}={s}' for n, s in SIZES.items())}, bf16"
    ends = f"{course.total_us:.0f} us overlapped, {plain.predicted_us:.0f} us one after the other: the planner's cost model"
    texts += [_lines(8, 16, [title], "head"), _lines(8, 34, [ends])]
    return _page(bottom + ROW + 66, [*(box.svg(px_per_us) for box in boxes), end, *texts])


def _loop_boxes(loop: TileTimes, top: float) -> list[Box]:
    """Tiles of neighbouring programs that begin and end together are one box; grey is a wait."""
    height, found = LOOP / loop.programs, []
    for first in range(0, len(loop.ends_us), loop.programs):
        last = min(first + loop.programs, len(loop.ends_us))
        kinds = [(float(loop.ends_us[i]), int(loop.segments[i])) for i in range(first, last)]
        begin = 0
        for program in range(1, len(kinds) + 1):
            if program < len(kinds) and kinds[program] == kinds[begin]:
                continue
            end, segment = kinds[begin]
            free = float(loop.ends_us[first - loop.programs + begin]) if first else loop.begin_us
            rows = top + begin * height, top + program * height
            if end - loop.tile_us > free + 0.5:
                found.append(Box(free, end - loop.tile_us, *rows, WAITING))
            found.append(Box(end - loop.tile_us, end, *rows, COLOURS[segment]))
            begin = program
    return found


def _plain_boxes(plain: Schedule, topology: Topology, top: float) -> list[Box]:
    gathered = plain.buffer("x_full")
    moved = library_us(topology, "all_gather", math.prod(gathered.shape) * DTYPE_BYTES[gathered.dtype])
    return [
        Box(0, moved, top, top + ROW, GREY, "all_gather by NCCL"),
        Box(moved, plain.predicted_us, top, top + ROW, COLOURS[0], "matmul by cuBLAS"),
    ]


def _axis(px_per_us: float, top: float, last_us: float) -> str:
    marks = range(0, math.ceil(last_us / 50) * 50 + 1, 100)
    ticks = [f'<text x="{LEFT + us * px_per_us:.1f}" y="{top + 12:.1f}" class="tick">{us} us</text>' for us in marks]
    return "".join(ticks)


def _legend(top: float, waits: bool) -> str:
    names = ["own rows", *(f"rows of rank + {place}" for place in range(1, RANKS))]
    names += ["wait for a signal"] if waits else []
    found = []
    for number, (colour, name) in enumerate(zip((*COLOURS, WAITING), names, strict=False)):
        x = LEFT + number * 145
        found.append(f'<rect x="{x}" y="{top - 10}" width="12" height="12" fill="{colour}"/>')
        found.append(_lines(x + 18, top, [name]))
    return "".join(found)


def _lines(x: float, y: float, lines: list[str], kind: str = "text") -> str:
    return "".join(
        f'<text x="{x}" y="{y + 15 * number:.1f}" class="{kind}">{escape(text)}</text>'
        for number, text in enumerate(lines)
    )


def _page(height: float, parts: list[str]) -> str:
    style = (
        "text{font-family:Helvetica,Arial,sans-serif;font-size:12px;fill:#30343b}.head{font-size:14px;font-weight:bold}"
        ".in{fill:white;text-anchor:middle}.tick{text-anchor:middle;fill:#6b7079}"
        ".end{stroke:#30343b;stroke-width:1;stroke-dasharray:4 3}"
    )
    width = LEFT + WIDTH + 24
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:.0f}" width="{width}">',
            f"<style>{style}</style>",
            f'<rect width="{width}" height="{height:.0f}" fill="white"/>',
            *parts,
            "</svg>\n",
        ]
    )
