"""Emitted source -> a running operator on a process group or on any fabric."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import torch
import torch.distributed as dist

from tilelink.elaborate.schedule import elaborated
from tilelink.errors import FabricTooSmall, FabricUnavailable, IllegalIds, InputRequiresGrad
from tilelink.ir.schedule import Schedule
from tilelink.runtime.hosts import hosts_of
from tilelink.runtime.load import fabric_class, in_dialect, load_source, operator_class
from tilelink.runtime.machine import is_fabric
from tilelink.runtime.peers import check_peers
from tilelink.schedule.memory import Memory


def fabric_ranks(group: object) -> int:
    """Number of ranks of a fabric or process group; None is the default group. Raises FabricUnavailable."""
    ranks = getattr(group, "num_ranks", None)
    if isinstance(ranks, int):
        return ranks
    if not (dist.is_available() and dist.is_initialized()):
        raise FabricUnavailable(
            num_ranks=0,
            reason="torch.distributed is not initialised",
            legal="Call torch.distributed.init_process_group under torchrun, or pass a fabric of tilelink.emulator.World.",
        )
    if not torch.cuda.is_available():
        raise FabricUnavailable(
            num_ranks=dist.get_world_size(),
            reason="torch sees no GPU here",
            legal="Pass a fabric of tilelink.emulator.World.",
        )
    return dist.get_world_size(group if isinstance(group, dist.ProcessGroup) else None)


def group_hosts(group: object) -> int:
    """Hosts of a process group; emulated ranks have one. Raises UnevenHosts."""
    return 1 if is_fabric(group) else hosts_of(group if isinstance(group, dist.ProcessGroup) else None)


def check_links(group: object, schedule: Schedule, language: str) -> None:
    """Where stock Triton goes by the memory of peers, these have it whole: what the library alone carries needs none of it.
    Raises PeersDiffer."""
    if language != "triton" or is_fabric(group):
        return
    steps = elaborated(schedule)
    if steps.signals or any(one.memory is Memory.SYMMETRIC for one in steps.buffers):
        check_peers(group if isinstance(group, dist.ProcessGroup) else None)


def check_fabric(group: object, schedule: Schedule) -> None:
    """An emulated fabric has the SMs that `schedule` counts on. Raises FabricTooSmall."""
    num_sms, needed = getattr(group, "num_sms", None), schedule.machine.num_sms
    if isinstance(num_sms, int) and num_sms < needed:
        raise FabricTooSmall(operator=schedule.name, topology=schedule.machine.topology, needed=needed, found=num_sms)


def build_operator(source: str, name: str, group: object) -> Callable[..., object]:
    """Load `source` and build its operator on `group`: a fabric as it is, a process group through the fabric of the file.

    Calls of the operator raise ValueError for an input that the schedule does not take, and InputRequiresGrad. Where it has a
    routing, its `check()` raises IllegalIds for ids of calls so far that are no expert's.
    """
    module = load_source(source, name)
    _name_refusals(module)
    if is_fabric(group):
        fabric = group
    elif in_dialect(source):
        fabric = fabric_class(module)(group if group is not None else module.initialize_distributed())
    else:
        fabric = fabric_class(module)(group)
    operator: Callable[..., object] = operator_class(module)(fabric)
    return operator


def _name_refusals(module: ModuleType) -> None:
    """What the file says in words of its own, because it imports nothing of ours, is an error of ours here."""
    if (count := vars(module).get("check_ids")) is not None:

        def check_ids(*counted: object) -> None:
            try:
                count(*counted)
            except ValueError as error:
                raise IllegalIds(reason=str(error)) from error

        vars(module)["check_ids"] = check_ids
    check = vars(module).get("check_input")
    if check is None:
        return

    def check_input(name: str, *wanted: object) -> None:
        try:
            check(name, *wanted)
        except RuntimeError as error:
            raise InputRequiresGrad(name=name) from error

    vars(module)["check_input"] = check_input
