"""Topology -> TOML text: what `descriptor.parse` reads back to the same numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from enum import Enum

from topologies.descriptor import Descriptor
from topologies.topology import Gpu, Level, Ramp

_PEAKS = "gpu.dense_tflops"


def written(descriptor: Descriptor, comments: Sequence[str] = ()) -> str:
    """The file of a descriptor, one line a number and one a provenance; `comments` come first, a line each."""
    topology = descriptor.topology
    lines = [f"# {comment}" for comment in comments]
    lines.append(f"name = {_spelled(topology.name)}")
    if descriptor.device_names:
        lines.append(f"device_names = [{', '.join(map(_spelled, descriptor.device_names))}]")
    lines += [
        "",
        "# [bytes of one copy, GB/s], back to back, the start of each copy included",
        f"copy_engine = {_points(topology.copy_engine)}",
        f"copy_engine_start_us = {_spelled(topology.copy_engine_start_us)}",
        "# [SMs that copy, GB/s of the rank over all its links]",
        f"push_sms = {_points(topology.push_sms)}",
        f"pull_sms = {_points(topology.pull_sms)}",
        "",
        "[gpu]",
        *_facts(topology.gpu),
        "",
        f"[{_PEAKS}]",
        *(f"{dtype} = {_spelled(peak)}" for dtype, peak in topology.gpu.dense_tflops),
    ]
    for level in topology.levels:
        lines += ["", "[[levels]]", *_facts(level)]
    lines += ["", "[provenance]", *(f"{_spelled(key)} = {_spelled(origin)}" for key, origin in _origins(descriptor))]
    return "\n".join(lines) + "\n"


def _facts(facts: Gpu | Level) -> list[str]:
    found: list[tuple[str, object]] = [(field.name, getattr(facts, field.name)) for field in fields(facts)]
    return [f"{name} = {_spelled(value)}" for name, value in found if not isinstance(value, tuple)]


def _origins(descriptor: Descriptor) -> list[tuple[str, str]]:
    """Peaks of all dtypes have one line if one origin holds for all of them."""
    every = descriptor.topology.provenance
    peaks = {origin for key, origin in every if key.startswith(f"{_PEAKS}.")}
    if len(peaks) > 1:
        return list(every)
    others = [(key, origin) for key, origin in every if not key.startswith(f"{_PEAKS}.")]
    return [*others, (_PEAKS, peaks.pop())]


def _points(ramp: Ramp) -> str:
    return "[" + ", ".join(f"[{_spelled(x)}, {_spelled(y)}]" for x, y in ramp.points) + "]"


def _spelled(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case Enum():
            return _spelled(value.value)
        case float() if value.is_integer() and value < 2**53:
            return str(int(value))
        case int() | float():
            return repr(value)
        case _:
            return json.dumps(str(value), ensure_ascii=False)  # a basic string of TOML has these escapes, too
