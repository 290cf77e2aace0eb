"""Why a schedule was chosen: its terms, the families that lost, and what would flip the choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilelink.ir.schedule import Schedule
from tilelink.planner.build import build
from tilelink.planner.choices import Pins
from tilelink.planner.families import Rejected, families, family_of, key_of, rejected
from tilelink.planner.flips import Bind, Walked, flips
from tilelink.planner.levels import Busy, busy_levels
from tilelink.planner.limits import check_extent
from tilelink.planner.pins import checked_pins
from tilelink.planner.plan import search
from tilelink.planner.terms import Account, account_of
from topologies.topology import Topology


@dataclass(frozen=True, slots=True)
class Explanation:
    """`schedule`: with the smallest predicted time, not proved. `family`: its fields that tell families apart. `others`: the
    families that were looked at, the fastest first, of which there are `more`."""

    schedule: Schedule
    account: Account
    family: Pins
    others: tuple[Rejected, ...]
    more: int
    walked: tuple[Walked, ...]
    levels: tuple[Busy, ...] = ()  # of a schedule over several nodes


def explain(
    bind: Bind,
    sizes: Mapping[str, int],
    topology: Topology,
    pins: Mapping[str, object],
    most_families: int,
    more: Callable[[], bool],
) -> Explanation:
    """The search for the spec that `bind` makes of `sizes`, with its reasons. Flips are looked for while there is `more` time.

    Raises what `plan` raises, but for ScheduleRefuted."""
    spec = bind(sizes)
    check_extent(spec)
    wanted = checked_pins(spec, topology, pins)
    best, candidates = search(spec, topology, wanted)
    chosen = family_of(best)
    schedule = build(best.problem)
    account = account_of(schedule, topology)
    others = [one for one in families(candidates) if key_of(one) != key_of(chosen)]
    lost = tuple(rejected(topology, account, chosen, one) for one in others[:most_families])
    walked = tuple(flips(bind, sizes, topology, wanted, chosen, more))
    levels = busy_levels(schedule, topology)
    return Explanation(schedule, account, chosen.fields, lost, len(others) - len(lost), walked, levels)
