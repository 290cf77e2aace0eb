"""Mutators of roles, kernels and orders: who computes what, in which sequence, on how many SMs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilelink.ir.nodes import Axis, CommRole, ComputeRole, Kernel
from tilelink.ir.order import Die, Nest, RankOrder, TileOrder
from tilelink.ir.schedule import Schedule
from tilelink.mutation.sites import Edits, Operator, Site, sites, variants


def ranks_from_another_one(schedule: Schedule) -> Edits:
    """`first` one up or down: starts one rank off, so the own rank lies elsewhere in the sequence."""

    def change(site: Site[RankOrder]) -> Iterator[RankOrder]:
        for first in dict.fromkeys(((site.node.first + 1) % schedule.num_ranks, 0, 1)):
            yield replace(site.node, first=first)

    return variants(schedule, RankOrder, change)


def ranks_in_the_other_direction(schedule: Schedule) -> Edits:
    return variants(schedule, RankOrder, lambda site: [replace(site.node, direction=-site.node.direction)])


def ranks_of_smaller_nodes(schedule: Schedule) -> Edits:
    """As if every rank were a node of its own."""
    return variants(schedule, RankOrder, lambda site: [replace(site.node, ranks_per_node=1)])


def one_rank_fewer_in_an_order(schedule: Schedule) -> Edits:
    fewer = max(1, schedule.num_ranks - 1)
    return variants(
        schedule, RankOrder, lambda site: [replace(site.node, num_ranks=fewer, ranks_per_node=min(fewer, 1))]
    )


def nest_of_tiles(schedule: Schedule) -> Edits:
    return variants(schedule, TileOrder, lambda site: (replace(site.node, nest=nest) for nest in Nest))


def group_of_tiles(schedule: Schedule) -> Edits:
    def change(site: Site[TileOrder]) -> Iterator[TileOrder]:
        group = site.node.group
        for other in (group - 1, group + 1, 2 * group):
            if other > 0:
                yield replace(site.node, group=other)

    return variants(schedule, TileOrder, change)


def major_and_minor(schedule: Schedule) -> Edits:
    return variants(
        schedule,
        TileOrder,
        lambda site: [replace(site.node, major=site.node.minor, minor=site.node.major)] if site.node.minor else [],
    )


def compute_programs(schedule: Schedule) -> Edits:
    """Fewer, more, as many as tiles, and more than the machine has SMs."""

    def change(site: Site[ComputeRole]) -> Iterator[ComputeRole]:
        programs, sms = site.node.programs, schedule.machine.num_sms
        for other in (programs - 1, programs + 1, site.node.num_tiles, sms, 2 * sms):
            if other > 0:
                yield replace(site.node, programs=other)

    return variants(schedule, ComputeRole, change)


def tiles_in_halves(schedule: Schedule) -> Edits:
    """One more, one fewer, all of them, none, and more than there are."""

    def change(site: Site[ComputeRole]) -> Iterator[ComputeRole]:
        halved, tiles = site.node.halved, site.node.num_tiles
        for other in dict.fromkeys((halved + 1, halved - 1, tiles, 0, tiles + 1)):
            if other not in (halved, -1):
                yield replace(site.node, halved=other)

    return variants(schedule, ComputeRole, change)


def tiles_counted_late(schedule: Schedule) -> Edits:
    """Counted at once instead, and the other way round."""
    return variants(schedule, ComputeRole, lambda site: [replace(site.node, counts_late=not site.node.counts_late)])


def turns_of_warpgroups(schedule: Schedule) -> Edits:
    """One group of warps, two that take turns, and three."""
    return variants(
        schedule,
        ComputeRole,
        lambda site: [replace(site.node, warpgroups=n) for n in (1, 2, 3) if n != site.node.warpgroups],
    )


def axis_extent(schedule: Schedule) -> Edits:
    def change(site: Site[Axis]) -> Iterator[Axis]:
        for extent in (site.node.extent - 1, site.node.extent + 1, site.node.extent // 2):
            if extent > 0:
                yield replace(site.node, extent=extent)

    return variants(schedule, Axis, change)


def axis_segments(schedule: Schedule) -> Edits:
    def change(site: Site[Axis]) -> Iterator[Axis]:
        for segments in (site.node.segments - 1, site.node.segments + 1):
            if segments > 0:
                yield replace(site.node, segments=segments)

    return variants(schedule, Axis, change)


def axis_tile(schedule: Schedule) -> Edits:
    """Tiles of half and double the extent, with everything that is derived from it as it was."""

    def change(site: Site[Axis]) -> Iterator[Axis]:
        for tile in (site.node.tile // 2, site.node.tile * 2):
            if tile >= 16:
                yield replace(site.node, tile=tile)

    return variants(schedule, Axis, change)


def communication_programs(schedule: Schedule) -> Edits:
    """Other than the mover's number of SMs, which is what readers count."""

    def change(site: Site[CommRole]) -> Iterator[CommRole]:
        for programs in (site.node.programs - 1, site.node.programs + 1, schedule.machine.num_sms):
            if programs > 0:
                yield replace(site.node, programs=programs)

    return variants(schedule, CommRole, change)


def communicate_another_exchange(schedule: Schedule) -> Edits:
    names = [exchange.name for exchange in schedule.exchanges]
    return variants(schedule, CommRole, lambda site: (replace(site.node, exchange=name) for name in names))


def drop_communication(schedule: Schedule) -> Edits:
    for site in sites(schedule, CommRole):
        yield site.label, site.drop()


def duplicate_communication(schedule: Schedule) -> Edits:
    for site in sites(schedule, CommRole):
        yield site.label, site.put_all(site.node, site.node)


def communication_in_another_kernel(schedule: Schedule) -> Edits:
    """In a launch of its own before or after the tiles that it serves, or beside those of another kernel."""
    for site in sites(schedule, Kernel):
        for role in site.node.comm:
            rest = replace(site.node, comm=tuple(other for other in site.node.comm if other is not role))
            alone = Kernel(f"{role.exchange}_kernel", (role,), None, 4, 1, 1, Die(1))
            yield f"{site.label}: {role.exchange} before it", site.put_all(alone, rest)
            yield f"{site.label}: {role.exchange} after it", site.put_all(rest, alone)
            for other in sites(schedule, Kernel):
                if other.node != site.node:
                    moved = replace(other.node, comm=(*other.node.comm, role))
                    launches = tuple(
                        {site.path: rest, other.path: moved}.get(("launches", i), launch)
                        for i, launch in enumerate(schedule.launches)
                    )
                    yield f"{site.label}: {role.exchange} in {other.node.name}", replace(schedule, launches=launches)


def dies(schedule: Schedule) -> Edits:
    return variants(schedule, Die, lambda site: [Die(site.node.count + 1)])


OPERATORS: tuple[Operator, ...] = (
    ranks_from_another_one,
    ranks_in_the_other_direction,
    ranks_of_smaller_nodes,
    one_rank_fewer_in_an_order,
    nest_of_tiles,
    group_of_tiles,
    major_and_minor,
    compute_programs,
    tiles_in_halves,
    tiles_counted_late,
    turns_of_warpgroups,
    axis_extent,
    axis_segments,
    axis_tile,
    communication_programs,
    communicate_another_exchange,
    drop_communication,
    duplicate_communication,
    communication_in_another_kernel,
    dies,
)
