"""A call of emitted attention on emulated ranks, each element of it beside the definition."""

from __future__ import annotations

from tests.pipeline.attention_specs import How, by_definition
from tilelink.ir.schedule import Schedule
from tilelink.runtime.emulated import EmulatedRun
from tilelink.runtime.meaning import cut, whole_inputs

FAR = {"bf16": 0.03, "fp16": 0.004, "fp32": 2e-5}  # of means of values of size 1


def farthest(schedule: Schedule, source: str, how: How, seed: int) -> float:
    """The largest distance of an element from what the definition says, over `FAR` of the dtype."""
    run = EmulatedRun(schedule, source, seed)
    run.call()
    run.finish()
    ((inputs, outputs),) = run.calls
    spec, found = schedule.spec, 0.0
    exact = by_definition(how, spec.num_ranks, *whole_inputs(spec, inputs).values())
    for rank, (out,) in enumerate(outputs):
        part = cut(exact, spec.value(spec.outputs[0]).placement, rank, spec.num_ranks)
        distance = (out.double() - part).abs().max().item()
        found = max(found, distance if distance == distance else float("inf"))
    return found / FAR[spec.inputs[0].dtype]
