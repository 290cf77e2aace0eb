"""`@tilelink.overlap`: the user's object. Traces once; plans, emits and compiles on demand."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tilelink.errors import IllegalTune, NoLegalSchedule, NotCompiled, NotOnThisMachine, PinsNotAMapping
from tilelink.ir.expand import expand
from tilelink.ir.graph import TileGraph
from tilelink.ir.location import here
from tilelink.ir.spec import BoundSpec, Spec, bind
from tilelink.ir.trace import trace
from tilelink.plan import Plan
from tilelink.planner.fields import pin_text
from tilelink.planner.pins import legal_beside
from tilelink.planner.plan import plan
from tilelink.planner.plan_cache import planned
from tilelink.runtime.hosts import target_on
from tilelink.runtime.machine import PLANNED_FOR, named, of_group
from tilelink.runtime.operator import build_operator, check_fabric, check_links, fabric_ranks, group_hosts
from tilelink.tuning import tuned_on
from topologies.topology import Topology

if TYPE_CHECKING:
    import torch


@lru_cache(maxsize=256)
def _planned(spec: BoundSpec, topology: Topology, pins: tuple[tuple[str, str], ...]) -> Plan:
    return Plan.of(planned(spec, topology, dict(pins)))


def plan_bound(
    bound: BoundSpec, topology: Topology, pins: Mapping[str, str], log: Callable[[str], object] | None = None
) -> Plan:
    """The schedule of a spec with its sizes. Raises what `plan` raises; NoLegalSchedule says what is legal beside the pins."""
    try:
        if log is not None:
            return Plan.of(plan(bound, topology, pins, log))
        return _planned(bound, topology, tuple(pins.items()))
    except NoLegalSchedule as error:
        if not pins:
            raise NotOnThisMachine(**error.facts) from None
        said = ", ".join(f"{name}={value}" for name, value in pins.items())
        facts = {**error.facts, "pins": said, "legal": legal_beside(bound, topology, pins)}
        raise NoLegalSchedule(**facts) from None


class Overlap:
    """An operator declared as a tile-dependency graph; see `overlap`."""

    def __init__(self, function: Callable[..., object], scope: dict[str, object]) -> None:
        self.spec: Spec = trace(function, scope)
        self.name = self.spec.name
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def plan(
        self,
        topology: str | Path | Topology = PLANNED_FOR,
        num_ranks: int | None = None,
        dtype: str | torch.dtype = "bf16",
        pin: Mapping[str, object] | None = None,
        log: Callable[[str], object] | None = None,
        **sizes: int,
    ) -> Plan:
        """The schedule for these global sizes; the same object on every rank.

        `topology`: a descriptor's name, a path of a TOML file, or a Topology. `dtype` is a name such as "bf16", or a dtype of
        torch. `pin` fixes fields, for all values (`{"mover": CommSms(16)}`) or for one (`{"x_full.chunks": 4}`); `log` gets a
        line a step. Sizes are integers of Python or numpy. Raises the errors of tilelink.errors and topologies.errors.
        """
        return self.plan_for(named(topology, num_ranks), sizes, dtype, pin, log)

    def plan_for(
        self,
        topology: Topology,
        sizes: Mapping[str, int],
        dtype: str | torch.dtype = "bf16",
        pin: Mapping[str, object] | None = None,
        log: Callable[[str], object] | None = None,
    ) -> Plan:
        """`plan` with the sizes in a mapping: for sizes whose names are those of other parameters.

        The last plans are remembered, and the choices of all in the user's cache folder (`tilelink.planner.plan_cache`), except
        where `log` is to get the lines of their search.
        """
        if pin is not None and not isinstance(pin, Mapping):
            raise PinsNotAMapping(self.spec.location, value=pin)
        bound = bind(self.spec, sizes, topology.num_ranks, dtype)
        pins = {str(name): pin_text(value) for name, value in (pin or {}).items()}
        return plan_bound(bound, topology, pins, log)

    def graph(self, num_ranks: int, dtype: str | torch.dtype = "bf16", **sizes: int) -> TileGraph:
        """The tile-dependency graph with each collective in its first form: direct, all_reduce in one shot.

        `graph.to_dot()` is text for Graphviz. Raises the errors of `bind`.
        """
        bound = bind(self.spec, sizes, num_ranks, dtype)
        return expand(bound, {})

    def emit(self, target: str = "triton", **arguments: object) -> str:
        """Source text of `plan(**arguments)`."""
        return self.plan(**arguments).emit(target)  # type: ignore[arg-type]

    def compile(
        self,
        group: object = None,
        topology: str | Path | Topology | None = None,
        dtype: str | torch.dtype = "bf16",
        pin: Mapping[str, object] | None = None,
        target: str | None = None,
        tune: int = 0,
        **sizes: int,
    ) -> Callable[..., object]:
        """The operator, running: `op(*local_inputs)` returns the local outputs.

        `group` is a torch process group (default: the world; every rank calls `compile` alike, after
        `init_process_group` and `torch.cuda.set_device`), or a fabric such as those of `tilelink.emulator.World`.
        `topology` is by default that of these GPUs, of as many nodes as the group has hosts, and on an emulated fabric
        `laptop-switch`. `target` is by default "triton-nvshmem" where a schedule crosses hosts, and else "triton".
        Buffers are allocated here, once, and freed with the operator. Inputs are contiguous tensors of the shapes in
        `op.INPUTS`; calls may follow each other at once, on any stream, and may be captured in a CUDA graph.
        `tune=N` measures the N best alternatives and the library's schedule here, too, and takes the fastest; what it finds is
        kept for the next time (`tilelink.tuning`).
        Raises what `plan` raises, FabricUnavailable, FabricTooSmall, UnknownGpu where no descriptor has these GPUs, UnevenHosts,
        OtherHosts, StoresAcrossHosts, PeersDiffer, IllegalTune, TuneNeedsGpus and NothingTuned.
        """
        if not isinstance(tune, int) or isinstance(tune, bool) or tune < 0:
            raise IllegalTune(value=tune)
        ranks = fabric_ranks(group)
        hosts = group_hosts(group)
        machine = of_group(group, ranks, hosts) if topology is None else named(topology, ranks)
        schedule = self.plan_for(machine, sizes, dtype, pin)
        check_fabric(group, schedule)
        language = target_on(hosts, schedule, machine, target)
        check_links(group, schedule, language)
        source = schedule.emit(language)
        if tune:
            source = Plan.of(tuned_on(group, machine, schedule, tune, pin or {}, language).schedule).emit(language)
        return build_operator(source, schedule.name, group)

    def __call__(self, *tensors: object, **keywords: object) -> NoReturn:
        """A declaration computes nothing. Raises NotCompiled."""
        sizes = ", ".join(f"{name}=…" for name in self.spec.symbols())
        arguments = ", ".join(value.name for value in self.spec.inputs)
        raise NotCompiled(here(), function=self.name, sizes=sizes, arguments=arguments)

    def _repr_html_(self) -> str:
        """In a notebook: what is declared."""
        text = "\n".join(self.spec.source)
        return f"<p><code>{escape(repr(self)[1:-1])}</code></p><pre>{escape(text)}</pre>"

    def __repr__(self) -> str:
        return f"<tilelink.overlap {self.name}, sizes {', '.join(self.spec.symbols())}>"


def overlap(function: Callable[..., object]) -> Overlap:
    """Declare an operator: tensors with placements in, tensors out; no schedule in it.

    The function is called once, now, with symbolic tensors. Raises the errors of tilelink.errors.
    """
    caller = sys._getframe(1)
    return Overlap(function, {**caller.f_globals, **caller.f_locals})
