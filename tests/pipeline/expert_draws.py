"""Schedules with experts at random: of specs, sizes, ranks, machines, dtypes and targets."""

from __future__ import annotations

import random

import topologies
from tests.pipeline.expert_specs import SPECS
from tilelink.ir.nodes import CopyProgram
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import bind
from tilelink.planner import fields
from tilelink.planner.choices import Pins
from tilelink.planner.sample import sample_schedule

MACHINES = ("laptop-switch", "laptop-mesh")


def known(name: str, sizes: dict[str, int]) -> dict[str, int]:
    """Those that a spec has."""
    return {size: number for size, number in sizes.items() if size in SPECS[name].spec.symbols()}


TOKENS_COME = ("ag_moe", "ep_layer", "moe_layer", "of_functions")  # to tiles of experts, which may have own ones first


def drawn(rng: random.Random, *, own_first: bool = False) -> tuple[str, Schedule, str]:
    """(spec, schedule, target). Ranks need not divide the experts. `own_first`: tiles of own tokens come first, also where they
    are not likely."""
    ranks, name = rng.choice([2, 3, 4, 8]), rng.choice(TOKENS_COME if own_first else sorted(SPECS))
    sizes = {
        "T": ranks * rng.choice([1, 2, 5, 8, 17]),
        "H": ranks * rng.choice([8, 16, 24, 33]),
        "F": ranks * rng.choice([8, 16, 33]),
        "E": rng.choice([1, 2, 3, 5, 8, 16]) * rng.choice([1, ranks]),
        "K": rng.choice([1, 2, 3, 4, 9]),
    }
    spec = bind(SPECS[name].spec, known(name, sizes), ranks, rng.choice(["bf16", "fp16", "fp32"]))
    pins: Pins = {("", fields.OWN): True} if own_first else {}
    schedule = sample_schedule(spec, topologies.load(rng.choice(MACHINES), ranks), rng, pins)
    copies = any(isinstance(launch, CopyProgram) for launch in schedule.launches)
    # a copy stream takes an SM on Triton-distributed, and the sample leaves none
    return name, schedule, "triton" if copies else rng.choice(["triton", "triton-distributed"])
