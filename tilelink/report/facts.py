"""What a page is about: a plan, and all that is known of it."""

from __future__ import annotations

from dataclasses import dataclass

import lowering
from lowering.steps.renaming import with_own_names
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.expand import expand
from tilelink.ir.graph import TileGraph
from tilelink.ir.location import Location
from tilelink.ir.schedule import Schedule
from tilelink.planner.course import Course, course_of
from tilelink.planner.explain import Explanation
from tilelink.planner.terms import Account, account_of
from tilelink.proof.proved import Proof
from tilelink.report.limits import Limits, limits_of
from tilelink.report.measured import Measured
from tilelink.report.signals import Use, uses_of
from tilelink.report.source_map import SourceMap
from tilelink.schedule.instance import instantiated
from tilelink.schedule.roles import Schedule as Steps
from topologies.topology import Topology


@dataclass(frozen=True, eq=False)
class Facts:
    """`declared`: the first of the user's lines. `printed`: `steps` with the names that the emitted file has. `others_of`:
    whether the families that lost were compared with this very schedule: where its proof refuted the best one, the next one was
    planned."""

    schedule: Schedule
    topology: Topology
    declared: Location
    steps: Steps
    printed: Steps
    graph: TileGraph
    source: SourceMap
    account: Account
    explanation: Explanation
    others_of: bool
    course: Course
    limits: Limits
    uses: tuple[Use, ...]
    proof: Proof
    measured: Measured | None


def facts_of(
    schedule: Schedule,
    topology: Topology,
    explanation: Explanation,
    proof: Proof,
    declared: Location,
    measured: Measured | None = None,
) -> Facts:
    """All about a schedule. `explanation`: of the search that planned it."""
    elaborate = elaborated(schedule)
    steps = instantiated(elaborate)
    graph = expand(schedule.spec, dict(schedule.decided.collectives))
    same = explanation.schedule.program == schedule.program
    return Facts(
        schedule,
        topology,
        declared,
        steps,
        instantiated(with_own_names(elaborate)),
        graph,
        SourceMap(lowering.emit(schedule)),
        explanation.account if same else account_of(schedule, topology),
        explanation,
        same,
        course_of(schedule, topology),
        limits_of(schedule, graph, topology),
        tuple(uses_of(steps)),
        proof,
        measured,
    )
