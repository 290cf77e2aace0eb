"""TOML text -> Topology. Reads, checks, and says where the first fault is.

A descriptor is the fields of `Topology`, spelled as TOML: `[gpu]` with `[gpu.dense_tflops]`, one `[[levels]]`
a level from inside out, the ramps as arrays of points, and `[provenance]`, which gives each number its origin
by dotted key ("gpu.num_sms", "levels.nvswitch.gb_per_s"). The key of a table ("gpu.dense_tflops",
"levels.nvswitch") stands for all numbers in it that have no key of their own.
"""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from dataclasses import dataclass, fields, replace
from functools import lru_cache

from topologies.errors import MalformedDescriptor, did_you_mean
from topologies.table import Table, spell
from topologies.topology import Fabric, Gpu, Level, Topology, Vendor, numbers

DTYPES = ("bf16", "fp16", "fp32", "tf32", "fp64", "fp8", "fp6", "fp4", "int8")
PROVENANCE = re.compile(r"datasheet|measured \S.*|estimate(: \S.*)?")
LEGAL_PROVENANCE = '"datasheet", "measured <when, where>", "estimate" or "estimate: <why>"'
ARCH = {Vendor.NVIDIA: re.compile(r"sm_\d+[a-z]?"), Vendor.AMD: re.compile(r"gfx[0-9a-f]+")}
LEGAL_ARCH = {Vendor.NVIDIA: '"sm_90"', Vendor.AMD: '"gfx942"'}
TOP_KEYS = (
    *("name", "device_names", "gpu", "levels"),
    *("copy_engine", "copy_engine_start_us", "push_sms", "pull_sms", "provenance"),
)


@dataclass(frozen=True, slots=True)
class Descriptor:
    """All that a file says."""

    topology: Topology  # with every rank the fabric has
    device_names: tuple[str, ...]  # what the driver calls this GPU; empty hides the file from detection


@lru_cache(maxsize=64)
def parse(text: str, file: str) -> Descriptor:
    """The descriptor that `text` spells; `file` is for the messages. Raises MalformedDescriptor."""
    try:
        top = Table(file, "", tomllib.loads(text))
    except (ValueError, RecursionError) as error:  # ValueError also for an integer of thousands of digits
        raise _not_toml(file, str(error)) from None
    top.check_keys(TOP_KEYS)
    levels = tuple(_level(table) for table in top.tables("levels"))
    _check_order(top, levels)
    topology = Topology(
        name=top.text("name"),
        num_ranks=math.prod(level.size for level in levels),
        gpu=_gpu(top.table("gpu")),
        levels=levels,
        copy_engine=top.ramp("copy_engine"),
        copy_engine_start_us=top.number("copy_engine_start_us"),
        push_sms=top.ramp("push_sms"),
        pull_sms=top.ramp("pull_sms"),
        provenance=(),
    )
    _check_sms(top, topology)
    topology = replace(topology, provenance=_provenance(top.table("provenance"), topology))
    return Descriptor(topology, top.texts("device_names"))


def _not_toml(file: str, message: str) -> MalformedDescriptor:
    place = re.search(r"\(at (.*)\)$", message)
    return MalformedDescriptor(
        file=file,
        where=place.group(1) if place else "as a whole",
        reason=f"this is not TOML: {message[: place.start()].strip() if place else message}",
        legal="A descriptor is a TOML 1.0 file.",
    )


def _gpu(table: Table) -> Gpu:
    table.check_keys([field.name for field in fields(Gpu)])
    vendor, arch = table.choice("vendor", Vendor), table.text("arch")
    if not ARCH[vendor].fullmatch(arch):
        raise table.fault(
            "arch", f'"{arch}" is no architecture of {vendor.value}', f"It looks like {LEGAL_ARCH[vendor]}."
        )
    efficiency = table.number("gemm_efficiency")
    if efficiency > 1:
        raise table.fault(
            "gemm_efficiency",
            f"{efficiency:g} would beat the dense peak",
            "It takes a number above 0, at most 1.",
        )
    return Gpu(
        name=table.text("name"),
        vendor=vendor,
        arch=arch,
        num_sms=table.whole("num_sms"),
        dense_tflops=_dense_tflops(table.table("dense_tflops")),
        memory_gb_per_s=table.number("memory_gb_per_s"),
        l2_bytes=table.whole("l2_bytes"),
        shared_bytes_per_sm=table.whole("shared_bytes_per_sm"),
        num_dies=table.whole("num_dies"),
        num_copy_engines=table.whole("num_copy_engines"),
        tensor_descriptors=table.flag("tensor_descriptors"),
        stream_wait_value=table.flag("stream_wait_value"),
        gemm_efficiency=efficiency,
        kernel_launch_us=table.number("kernel_launch_us"),
        comm_beside_compute=table.flag("comm_beside_compute"),
    )


def _dense_tflops(table: Table) -> tuple[tuple[str, float], ...]:
    table.check_keys(DTYPES)
    if not table.entries:
        raise MalformedDescriptor(
            file=table.file,
            where=f"key {table.key}",
            reason="no dtype has a peak",
            legal=f"It takes one or more of {', '.join(DTYPES)}.",
        )
    return tuple((dtype, table.number(dtype)) for dtype in table.entries)


def _level(table: Table) -> Level:
    table.check_keys([field.name for field in fields(Level)])
    name = table.text("name")
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        legal = "It takes letters, digits, '_' and '-': it is part of the keys of [provenance]."
        raise table.fault("name", f'"{name}" cannot name a level', legal)
    table = replace(table, key=f"levels.{name}")
    return Level(
        name=name,
        fabric=table.choice("fabric", Fabric),
        size=table.whole("size", at_least=2),
        gb_per_s=table.number("gb_per_s"),
        signal_us=table.number("signal_us"),
        multicast=table.flag("multicast"),
        peer_atomics=table.flag("peer_atomics"),
    )


def _check_order(top: Table, levels: tuple[Level, ...]) -> None:
    names = [level.name for level in levels]
    for inner, outer in itertools.pairwise(levels):
        if inner.fabric is Fabric.NETWORK and outer.fabric is not Fabric.NETWORK:
            reason = f"{outer.name} ({outer.fabric.value}) lies outside the network {inner.name}"
            raise top.fault("levels", reason, "Levels are listed from inside out, networks last.")
    for name in names:
        if names.count(name) > 1:
            raise top.fault("levels", f"two levels are called {name}", "Each level has a name of its own.")


def _check_sms(top: Table, topology: Topology) -> None:
    num_sms = topology.gpu.num_sms
    for name, ramp in (("push_sms", topology.push_sms), ("pull_sms", topology.pull_sms)):
        most, _ = ramp.points[-1]
        if most > num_sms:
            raise top.fault(name, f"{most:g} SMs copy where gpu.num_sms={num_sms}", f"Legal x: 1 to {num_sms}.")


def _provenance(table: Table, topology: Topology) -> tuple[tuple[str, str], ...]:
    """One origin for each number: that of its own key, else of the nearest table around it."""
    keys = [key for key, _ in numbers(topology)]
    around = list(dict.fromkeys(table for key in keys for table in _tables_around(key)))
    flat = _flatten(table, "")
    for key, origin in flat.items():
        if key not in keys and key not in around:
            legal = "Legal keys are those of the file's numbers and of the tables that hold them."
            hint = did_you_mean(key, [*keys, *around])
            raise table.fault(f'"{key}"', f"no number of the descriptor is called {key!r}", f"{legal}{hint}")
        if not isinstance(origin, str) or not PROVENANCE.fullmatch(origin):
            raise table.fault(f'"{key}"', f"{spell(origin)} is no provenance", f"It takes {LEGAL_PROVENANCE}.")
    found: list[tuple[str, str]] = []
    for key in keys:
        owner = next((owner for owner in [key, *_tables_around(key)] if owner in flat), None)
        if owner is None:
            legal = f'Add "{key}" to [provenance] with {LEGAL_PROVENANCE}.'
            raise MalformedDescriptor(
                file=table.file, where=f"key {key}", reason="the number has no provenance", legal=legal
            )
        found.append((key, str(flat[owner])))
    return tuple(found)


def _tables_around(key: str) -> list[str]:
    """gpu.dense_tflops.bf16 -> gpu.dense_tflops, gpu"""
    return [key.rsplit(".", cut)[0] for cut in range(1, key.count(".") + 1)]


def _flatten(table: Table, prefix: str) -> dict[str, object]:
    """Dotted keys, whether they were written in quotes or, as TOML allows, without: gpu.num_sms = "..."."""
    flat: dict[str, object] = {}
    for name, value in table.entries.items():
        if isinstance(value, dict):
            flat |= _flatten(replace(table, entries=value), f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat
