"""Planned schedule -> its steps in a file with all that today's files have: where it comes from, and a check of itself."""

from __future__ import annotations

from lowering.entry import matrices_of, print_main
from lowering.header import print_header
from lowering.host_doc import print_doc
from lowering.source import Source
from lowering.steps.errors import NothingToPut
from lowering.steps.file import Around, lower, spelling_of
from lowering.steps.renaming import with_own_names
from lowering.targets import NVSHMEM
from tilelink.elaborate.rails import puts_words
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.matrices import names_of_matrices
from tilelink.ir.schedule import Schedule


def lower_planned(planned: Schedule, target: str = "triton") -> str:
    """Source text of `planned` in the language of `target`, printed from its steps. Raises UnknownTarget, and errors of
    `lowering.steps.errors`."""
    steps, doc, head = elaborated(planned), Source(), Source()
    spelling = spelling_of(steps, target, planned.machine.arch)
    if target == NVSHMEM and not puts_words(planned):
        raise NothingToPut(schedule=planned.name, target=target)
    print_header(head, planned, spelling, kernels=True)
    spec = planned.spec
    results = {name: spec.value(name).local for name in spec.outputs}
    print_doc(doc, planned, [buffer.name for buffer in steps.buffers if buffer.places])
    main = print_main(planned, spelling).rstrip()
    machine = planned.machine
    limits = machine.stream_waits, machine.peer_atomics
    given = names_of_matrices(spec.inputs)
    arguments = {value.name: value.local for value in spec.inputs if value.name in given}
    order = tuple(value.name for value in spec.inputs)
    around = Around(head.text(), doc.text(), planned.hash, main, results, *limits, matrices_of(spec), arguments, order)
    return lower(with_own_names(steps), planned.machine.arch, around, target)
