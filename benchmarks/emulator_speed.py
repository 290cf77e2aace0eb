"""How fast kernels run on the CPU: the emulator against the interpreter of stock Triton 3.6.0, and emitted operators.

    python benchmarks/emulator_speed.py [--repeats 5] [--emulator PATH]

An operation is one call of the interpreter's builder: an arithmetic operation, cast, load, store, atomic or barrier,
whatever its size; they are counted in a run that is not timed. Times are CPU seconds of the fastest of the repeats,
with one thread for BLAS. The stock interpreter runs one launch after the other, so it is compared on kernels of one
rank; the emitted operators run two calls on 4 ranks, without an observer. PATH is the root of another checkout to
time instead of this one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 400
SIDE = 256
OPERATORS = {
    "ag_gemm, copy engine": ("02_ag_gemm.py:ag_gemm", "CopyEngine()"),
    "ag_gemm, 2 SMs": ("02_ag_gemm.py:ag_gemm", "CommSms(2)"),
    "gemm_rs, copy engine": ("03_gemm_rs.py:gemm_rs", "CopyEngine()"),
    "gemm_rs, 2 SMs": ("03_gemm_rs.py:gemm_rs", "CommSms(2)"),
}


@triton.jit
def scalar_loop(words, rounds):  # type: ignore[no-untyped-def]
    """Index arithmetic, a load, a store and an atomic in each round."""
    total = 0
    for index in range(rounds):
        place = (index * 7 + 3) % 64
        total += tl.load(words + place) * 2 - index // 3
        tl.store(words + place, total)
        tl.atomic_add(words + 64, 1, sem="relaxed", scope="gpu")


@triton.jit  # type: ignore[untyped-decorator]
def tile_loop(a, b, out, side, TILE: tl.constexpr, DEPTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """One tile of a matmul through pointers, with masks."""
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, side, DEPTH):
        depth = start + tl.arange(0, DEPTH)
        left = tl.load(a + rows[:, None] * side + depth[None, :], mask=(depth < side)[None, :], other=0.0)
        right = tl.load(b + depth[:, None] * side + columns[None, :], mask=(depth < side)[:, None], other=0.0)
        total = tl.dot(left, right, total, input_precision="ieee")
    tl.store(out + rows[:, None] * side + columns[None, :], total, mask=(columns < side)[None, :])


def kernels() -> dict[str, tuple[Any, tuple[int, ...], list[object], dict[str, int]]]:
    """Kernel, grid, arguments and constants by name."""
    words = torch.zeros(65, dtype=torch.int32)
    a, b, out = (torch.randn(SIDE, SIDE) for _ in range(3))
    tiles = SIDE // 64
    return {
        "scalar loop": (scalar_loop, (1,), [words, ROUNDS], {}),
        "tile loop with dot": (tile_loop, (tiles, tiles), [a, b, out, SIDE], {"TILE": 64, "DEPTH": 32}),
    }


def fastest(repeats: int, run: Callable[[], object]) -> float:
    """CPU seconds; the first run warms caches and is not counted."""
    run()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def time_stock(repeats: int) -> dict[str, float]:
    """The kernels on the interpreter of Triton; needs TRITON_INTERPRET=1."""

    def launch(name: str) -> None:
        kernel, grid, arguments, constants = kernels()[name]
        kernel[grid](*arguments, **constants)

    return {name: fastest(repeats, lambda name=name: launch(name)) for name in kernels()}  # type: ignore[misc]


def time_ours(repeats: int) -> dict[str, dict[str, float]]:
    """Seconds and operations of the kernels and the operators on the emulator."""
    from tilelink.emulator import World

    def launch(name: str) -> None:
        kernel, grid, arguments, constants = kernels()[name]
        world = World(1)
        world.fabrics[0].main().launch(kernel, grid, *arguments, **constants)
        world.run()

    runs: dict[str, Callable[[], None]] = {name: lambda name=name: launch(name) for name in kernels()}  # type: ignore[misc]
    for name, (spec, mover) in OPERATORS.items():
        runs[name] = operator(spec, mover)
    return {name: {"seconds": fastest(repeats, run), "operations": count(run)} for name, run in runs.items()}


def operator(spec: str, mover: str) -> Callable[[], None]:
    """Two calls of an emitted operator on 4 emulated ranks, inputs made beforehand."""
    import lowering
    import topologies
    from tilelink.emulator import World
    from tilelink.runtime.load import load_source, operator_class
    from tilelink.runtime.reference import make_inputs
    from tilelink.spec_file import load_overlap

    pins = {"algorithm": "direct", "compute": "triton", "mover": mover}
    sizes = {"M": 256, "K": 256, "N": 256}
    overlap = load_overlap(str(ROOT / "examples" / spec))
    schedule = overlap.plan_for(topologies.load("laptop-switch", 4), sizes, "bf16", pins)
    build = operator_class(load_source(lowering.emit(schedule), schedule.name))
    calls = [make_inputs(schedule.spec, call) for call in range(2)]

    def run() -> None:
        world = World(4, num_sms=schedule.machine.num_sms, seed=1)
        operators = [build(fabric) for fabric in world.fabrics]
        for inputs in calls:
            for one, parts in zip(operators, inputs, strict=True):
                one(*parts.values())
        world.run()

    return run


def count(run: Callable[[], None]) -> int:
    """Calls of the builder in one run, with Triton's own operators, which go through it for everything."""
    from tilelink.emulator import interpreter
    from tilelink.emulator.access import MemoryBuilder

    calls = 0

    class Counting(MemoryBuilder):
        def __getattribute__(self, name: str) -> Any:
            nonlocal calls
            calls += name.startswith("create_")
            return super().__getattribute__(name)

    replaced = {"MemoryBuilder": Counting, "operators": lambda stock: iter(())}
    saved = {name: getattr(interpreter, name) for name in replaced if hasattr(interpreter, name)}
    try:
        for name in saved:
            setattr(interpreter, name, replaced[name])
        run()
    finally:
        for name, value in saved.items():
            setattr(interpreter, name, value)
    return calls


def measured(which: str, repeats: int, root: Path) -> Any:
    """The same file in a process of its own, since TRITON_INTERPRET is read once."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    mode = {"TRITON_INTERPRET": "1"} if which == "stock" else {}
    command = [sys.executable, __file__, "--measure", which, "--repeats", str(repeats)]
    done = subprocess.run(
        command,
        env={**os.environ, **threads, **mode, "PYTHONPATH": str(root)},
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--emulator", type=Path, default=ROOT, help="root of the checkout to time")
    parser.add_argument("--measure", choices=["stock", "ours"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(time_stock(options.repeats) if options.measure == "stock" else time_ours(options.repeats)))
        return
    stock, ours = (measured(which, options.repeats, options.emulator.resolve()) for which in ("stock", "ours"))
    print(f"{'kernel':<24}{'operations':>12}{'emulator ms':>14}{'per second':>14}{'stock ms':>12}{'per second':>14}")
    for name, found in ours.items():
        operations, seconds = int(found["operations"]), found["seconds"]
        line = f"{name:<24}{operations:>12}{1000 * seconds:>14.1f}{operations / seconds:>14.0f}"
        if name in stock:
            line += f"{1000 * stock[name]:>12.1f}{operations / stock[name]:>14.0f}"
        print(line)


if __name__ == "__main__":
    main()
