"""Emitted files as contenders: what lowering wrote and somebody edited, against what the planner picks and the baselines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from lowering.names import class_name
from tilelink.bench.errors import FileFitsNoRow, MalformedFile, NotAnEmittedFile
from tilelink.bench.operators import declaration
from tilelink.bench.plans import Candidate, Origin, PlannedRow
from tilelink.bench.problem import input_dtypes, input_shapes
from tilelink.bench.rows import Operator
from tilelink.bench.spec_rows import AnyRow, SpecRow
from tilelink.measuring.spec_problem import local_inputs
from tilelink.runtime.load import in_dialect, load_source, operator_class


@dataclass(frozen=True, slots=True)
class EmittedFile:
    """A labelled file; `inputs` are the shapes and dtypes that `operator`, its class, takes on each of `num_ranks` ranks."""

    label: str
    path: str
    source: str
    operator: str
    num_ranks: int
    inputs: tuple[tuple[tuple[int, ...], torch.dtype], ...]

    def fits(self, row: AnyRow, num_ranks: int) -> bool:
        if isinstance(row, SpecRow):
            wanted = tuple(local_inputs(row.spec))
            return (num_ranks, class_name(row.spec.name)) == (self.num_ranks, self.operator) and self.inputs == wanted
        wanted = tuple(zip(input_shapes(row, num_ranks), input_dtypes(row, num_ranks), strict=True))
        # what adds and scatters takes the same inputs as what adds for all: a class that has the name of one is no other
        named = {class_name(declaration(operator, row.k_major).spec.name): operator for operator in Operator}
        other = named.get(self.operator, row.operator) is not row.operator
        return num_ranks == self.num_ranks and self.inputs == wanted and not other


def parse_file(text: str) -> EmittedFile:
    """`LABEL:FILE.py`. Raises MalformedFile, NotAnEmittedFile."""
    label, colon, name = (part.strip() for part in text.partition(":"))
    if not colon or not label or not name:
        raise MalformedFile(text=text, reason="it is not a label, a colon and a path")
    path = Path(name)
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotAnEmittedFile(path=name, reason=str(error)) from error
    if in_dialect(source):
        raise NotAnEmittedFile(path=name, reason="it is in the dialect of Triton-distributed")
    try:
        build = operator_class(load_source(source, path.stem, path))
        found = tuple((tuple(shape), dtype) for shape, dtype in build.INPUTS.values())  # type: ignore[attr-defined]
        ranks = int(build.NUM_RANKS)  # type: ignore[attr-defined]
    except StopIteration:
        raise NotAnEmittedFile(path=name, reason="it has no class with INPUTS") from None
    except Exception as error:  # the file is the user's, and runs
        raise NotAnEmittedFile(path=name, reason=f"{type(error).__name__}: {error}") from error
    return EmittedFile(label, name, source, build.__name__, ranks, found)


def with_files(rows: Iterable[PlannedRow], files: Iterable[EmittedFile], num_ranks: int) -> tuple[PlannedRow, ...]:
    """Each file becomes a candidate of the rows that it fits. Raises FileFitsNoRow, MalformedFile."""
    out = list(rows)
    for file in files:
        fitting = [index for index, planned in enumerate(out) if file.fits(planned.row, num_ranks)]
        if not fitting:
            takes = ", ".join(f"{list(shape)} {dtype}" for shape, dtype in file.inputs)
            found = f"{takes} on {file.num_ranks} ranks"
            raise FileFitsNoRow(path=file.path, found=found, rows=", ".join(one.row.key for one in out))
        for index in fitting:
            if any(one.label == file.label for one in out[index].candidates):
                raise MalformedFile(text=file.label, reason=f"{out[index].row.key} has a contender of that name")
            candidate = Candidate(file.label, Origin.FILE, None, "", file.source)
            out[index] = replace(out[index], candidates=(*out[index].candidates, candidate))
    return tuple(out)
