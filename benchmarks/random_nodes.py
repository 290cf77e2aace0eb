"""Random (spec, mesh, schedule) runs over several nodes on emulated ranks, each element against torch on whole tensors.

    python benchmarks/random_nodes.py --runs 1000 --seed 7 --processes 2 --json nodes.json

Half of the specs are grown operation by operation, a quarter have experts, a quarter are the operators of the examples. A
schedule is drawn from all that are legal for the spec, sizes, dtype and mesh, until something crosses the nodes otherwise than
by a library's collective; after three draws another spec is. Half of the draws ask for lines or multicast where these are legal,
which the search leaves out otherwise. It is proved, emitted for a random target and called three times, with skewed ranks, late
and reordered puts. Results have bounds of each element from the meaning of the spec in float64; of grown specs and those with
experts, the meaning is compared with a definition in torch that shares no code with tilelink. A run that is not proved, or
differs anywhere, is listed with its seed, and the exit status is 1.
"""

from __future__ import annotations

import json
import math
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

import lowering
import topologies
from benchmarks.seeds import judge, options
from tests.pipeline import expert_specs, rail_specs
from tests.pipeline.expert_draws import known
from tests.pipeline.random_specs import random_program
from tilelink.elaborate.rails import puts_words
from tilelink.errors import IdlePin, IllegalPin
from tilelink.ir.calls import PacketCollective
from tilelink.ir.spec import BoundSpec, bind
from tilelink.planner.choices import Pins
from tilelink.planner.pins import checked_pins
from tilelink.planner.sample import sample_schedule
from tilelink.proof.verify import verify
from tilelink.runtime.meaning import evaluate, whole_inputs
from tilelink.runtime.reference import make_inputs
from tilelink.runtime.run import run_emulated
from topologies.topology import Topology

MESHES = [(2, 2), (2, 4), (3, 2), (4, 2), (2, 1), (3, 1), (2, 3), (5, 1)]  # nodes, ranks of each
HALVES = [(2, 2, 2), (3, 2, 2), (2, 3, 2), (2, 2, 3)]  # nodes, halves of each, ranks of a half
TARGETS = ("triton", "triton-nvshmem", "triton-distributed")
PINNED: tuple[dict[str, str], ...] = ({}, {}, {"protocol": "ll128"}, {"multicast": "yes"})
Whole = Mapping[str, torch.Tensor]
Defined = Callable[[Whole], Mapping[str, torch.Tensor]]


def machine(rng: random.Random, mesh: tuple[int, ...]) -> Topology:
    """SMs are few: sometimes not as many as there are programs that would spin. Links of halves may carry atomics."""
    found = topologies.load(rng.choice(("laptop-switch", "laptop-mesh")), mesh[0] * mesh[1], mesh[0])
    if len(mesh) > 2:
        sizes, atomics = mesh[::-1], rng.random() < 0.5
        found = topologies.load("l20-pcie", 16, 2)
        levels = [replace(one, size=size, peer_atomics=atomics) for one, size in zip(found.levels, sizes, strict=True)]
        levels[-1] = replace(levels[-1], peer_atomics=False)
        found = replace(found, num_ranks=math.prod(mesh), levels=tuple(levels))
    return replace(found, gpu=replace(found.gpu, num_sms=rng.choice((found.gpu.num_sms, 16, 40))))


def drawn(rng: random.Random, ranks: int) -> tuple[str, BoundSpec, Defined | None]:
    """(kind, spec, what it means)."""
    kind = rng.choice(("grown", "grown", "experts", "examples"))
    if kind == "grown":
        spec, program = random_program(rng, ranks, everything=True, sizes=(1, 2, 3, 5, 8, 16))
        return kind, spec, program.in_torch
    dtype = rng.choice(("bf16", "fp16", "fp32"))
    if kind == "experts":
        name = rng.choice(sorted(expert_specs.SPECS))
        sizes = {
            "T": ranks * rng.choice([1, 2, 5, 8, 17]),
            "H": ranks * rng.choice([8, 16, 24]),
            "F": ranks * rng.choice([8, 16]),
            "E": rng.choice([1, 2, 3, 5]) * rng.choice([1, ranks]),
            "K": rng.choice([1, 2, 3, 4]),
        }
        spec = bind(expert_specs.SPECS[name].spec, known(name, sizes), ranks, dtype)
        experts = dict(spec.sizes)["E"]
        return kind, spec, lambda whole: {spec.outputs[0]: expert_specs.by_definition(name, [*whole.values()], experts)}
    name = rng.choice(sorted(rail_specs.SPECS))
    overlap = rail_specs.SPECS[name]
    names = sorted({str(dim) for value in overlap.spec.inputs for dim in value.shape})
    sizes = {one: ranks * rng.choice((1, 3, 8, 16, 24, 33)) for one in names}
    return f"examples: {name}", bind(overlap.spec, sizes, ranks, dtype), None


def pinned(rng: random.Random, spec: BoundSpec, topology: Topology) -> Pins:
    """Nothing, or what the search tries only if it is pinned, where that is legal."""
    try:
        return checked_pins(spec, topology, rng.choice(PINNED))
    except (IllegalPin, IdlePin):
        return {}


def judged(seed: int) -> dict[str, Any]:
    """The run of a seed."""
    torch.set_num_threads(1)
    began = time.monotonic()
    found: dict[str, Any] = {"seed": seed, "wrong": ""}
    try:
        rng = random.Random(f"nodes {seed}")
        mesh: tuple[int, ...] = rng.choice(HALVES if rng.random() < 0.2 else MESHES)
        topology = machine(rng, mesh)
        for number in range(20):
            if number % 3 == 0:
                kind, spec, defined = drawn(rng, math.prod(mesh))
            schedule = sample_schedule(spec, topology, rng, pinned(rng, spec, topology))
            movers = sorted({one.mover.text for one in schedule.exchanges if one.mover.crosses_nodes})
            if movers or puts_words(schedule):
                break
        some: tuple[str, ...] = TARGETS if topology.gpu.arch.startswith("sm_") else TARGETS[::2]
        at_once = any(isinstance(one, PacketCollective) and one.multicast for one in schedule.launches)
        some = some[1:] if at_once else some  # stock Triton has no address of the ranks of a node
        target = rng.choice(some) if puts_words(schedule) else TARGETS[0]
        found |= {"kind": kind, "mesh": mesh, "sizes": dict(spec.sizes), "target": target, "movers": movers}
        packets = [one for one in schedule.launches if isinstance(one, PacketCollective) and one.per_node]
        found["protocols"] = sorted(f"{one.protocol.value}{' multicast' * one.multicast}" for one in packets)
        found["crosses"] = bool(movers or puts_words(schedule))
        proof, number = verify(schedule), rng.randrange(1000)
        if not proof.proved:
            found["wrong"] = "\n".join(proof.lines())
        elif not (outcome := run_emulated(schedule, lowering.emit(schedule, target), calls=3, seed=number)).equal:
            found["wrong"] = "\n".join(outcome.lines())
        elif defined is not None:
            found["wrong"] = misunderstood(spec, defined, number)
        if found["wrong"]:
            found["choices"] = dict(schedule.choices)
    except Exception:
        found["wrong"] = traceback.format_exc()
    return found | {"seconds": round(time.monotonic() - began, 1)}


def misunderstood(spec: BoundSpec, defined: Defined, seed: int) -> str:
    """Where the meaning of a spec is not its definition, or nothing."""
    whole = whole_inputs(spec, make_inputs(spec, seed))
    meant, wanted = evaluate(spec, whole), defined(whole)
    for name in spec.outputs:
        if not torch.allclose(meant[name], wanted[name].reshape(meant[name].shape), rtol=1e-9, atol=1e-12):
            return f"{name} is not what it is by definition"
    return ""


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    arguments = parser.parse_args()
    done = judge(judged, arguments.runs, arguments)
    about = summary(done) | {"commit": arguments.commit, "seed": arguments.seed}
    print(about)
    if arguments.json is not None:
        wrong = [{"seed": one["seed"], "wrong": one["wrong"].splitlines()[:3]} for one in done if one["wrong"]]
        arguments.json.write_text(json.dumps(about | {"which": wrong}) + "\n")
    sys.exit(1 if about["wrong"] else 0)


def summary(done: list[dict[str, Any]]) -> dict[str, Any]:
    """How many runs there were of what."""
    counted = {
        "kinds": Counter(one.get("kind", "?") for one in done),
        "meshes": Counter(" x ".join(map(str, one.get("mesh", ()))) for one in done),
        "targets": Counter(one.get("target", "?") for one in done),
        "movers": Counter(mover.partition("(")[0] for one in done for mover in one.get("movers", ())),
    }
    counted["protocols"] = Counter(protocol for one in done for protocol in one.get("protocols", ()))
    runs = {"runs": len(done), "crossing": sum(one.get("crosses", False) for one in done)}
    return (
        runs | {"wrong": sum(bool(one["wrong"]) for one in done)} | {what: dict(one) for what, one in counted.items()}
    )


if __name__ == "__main__":
    main()
