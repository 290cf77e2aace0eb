"""Emitted files with one bug planted in their text, and runs of them."""

from __future__ import annotations

from functools import cache
from itertools import chain

import lowering
import topologies
from tests.planner.operators import ag_gemm, gemm_ar, gemm_rs
from tilelink.adversary.campaign import run_trials, trials
from tilelink.adversary.subject import of_module
from tilelink.adversary.verdict import Verdict
from tilelink.runtime.load import load_source

TILE = "16x16x16/4w1s"


@cache
def emitted(
    operator: str, mover: str, transfer: str, rows: int = 40, chunks: int = 2, topology: str = "laptop-switch"
) -> str:
    """Source for 2 ranks of `rows` rows each, which tiles of 16 do not divide by default."""
    overlap, sizes, tile = {
        "ag": (ag_gemm, {"M": 2 * rows, "K": 32, "N": 64}, "tile"),
        "rs": (gemm_rs, {"M": 2 * rows, "K": 64, "N": 32}, "y.tile"),
        "ar": (gemm_ar, {"M": 2 * rows, "K": 64, "N": 32}, "y.tile"),
    }[operator]
    pins = {
        "algorithm": "in-place" if operator == "ar" else "direct",
        "compute": "triton",
        "chunks": str(chunks),
        "mover": mover,
        "transfer": transfer,
        tile: TILE,
    }
    if operator != "ag":
        pins["sum"] = "epilogue"
    return lowering.emit(overlap.plan_for(topologies.load(topology, 2), sizes, "bf16", pins))


def edited(source: str, *edits: tuple[str, str]) -> str:
    """Every occurrence of the first text of each pair replaced; each must occur."""
    for before, after in edits:
        assert before in source, f"{before!r} does not occur in\n{source}"
        source = source.replace(before, after)
    return source


def verdict(source: str, name: str = "operator", num_sms: int | None = None) -> Verdict:
    """The standard trials with two seeds, in this process, until one fails."""
    subject = of_module(load_source(source, name), name, num_sms=num_sms)
    todo = list(chain(trials(subject.num_ranks, 2, any_stream=subject.any_stream, graphs=subject.graphs)))
    return run_trials(lambda: subject, todo, workers=1)


def line_of(source: str, text: str) -> int:
    """Number of the first line that holds `text`."""
    return next(number for number, line in enumerate(source.splitlines(), 1) if text in line)
