"""Mistakes in what is asked of the benchmark: rows, operators, variants and result files, one class each."""

from __future__ import annotations

from topologies.errors import UserError


class UnknownOperator(UserError):
    """Facts: name, hint, legal."""

    template = "there is no operator {name!r} to benchmark.{hint}\nLegal: {legal}."


class UnknownRow(UserError):
    """Facts: name, hint, legal (the names of models)."""

    template = (
        "--rows {name} names no shape.{hint}\n"
        "Legal: default, sweep, MODEL, MODEL-mM, MODEL-sweep with a MODEL of {legal}; or ROWSxHIDDENxFFN, "
        "for example 8192x4096x14336. A name that ends in -kmajor means weights that lie as [N, K]."
    )


class UnknownExpertRow(UserError):
    """Facts: name, hint, legal (the names of models)."""

    template = (
        "--rows {name} names no shape of an operator with experts.{hint}\n"
        "Legal: default, sweep, MODEL, MODEL-mTOKENS, MODEL-sweep with a MODEL of {legal}; or "
        "TOKENSxHIDDENxWIDTHxEXPERTSxCHOICES, for example 1024x2048x768x128x8."
    )


class MalformedDrawing(UserError):
    """Facts: text."""

    template = "--drawn {text!r} says no rows to draw.\nWrite SEED:COUNT, for example --drawn 7:40 for 40 rows from the seed 7."


class SizesTwice(UserError):
    """Facts: size."""

    template = "{size} lists a size twice.\nLegal: each value once, M=1000,3000."


class SpecAndRows(UserError):
    """Facts: spec, option."""

    template = (
        "{spec} is measured with the sizes behind it, and {option} says which rows of operators are.\n"
        "Legal: `tilelink bench {spec} M=1000,3000 K=4096`, or operators with {option}."
    )


class DrawnExperts(UserError):
    """Facts: drawn, operators, legal."""

    template = (
        "--drawn {drawn} draws sizes of layers without experts, and {operators} has some.\n"
        "Legal: {legal}; --rows names sizes of the others."
    )


class RowsTwice(UserError):
    """Facts: drawn, rows."""

    template = (
        "--drawn {drawn} and --rows {rows} both say which rows are measured.\nLegal: one of them in a run; --resume keeps "
        "the rows of an earlier one."
    )


class MoreChoicesThanExperts(UserError):
    """Facts: row, choices, experts."""

    template = (
        "row {row} has {choices} different experts for each token, but there are only {experts}.\n"
        "Legal: up to {experts} choices, the last number of --rows TOKENSxHIDDENxWIDTHxEXPERTSxCHOICES."
    )


class UnknownRouting(UserError):
    """Facts: name, hint, legal."""

    template = "--routing {name} is none that can be drawn.{hint}\nLegal: {legal}; several with commas."


class RoutingWithoutExperts(UserError):
    """Facts: routing, operators, legal."""

    template = (
        "--routing {routing} says which experts tokens choose, and {operators} has no experts.\n"
        "Legal: leave the option out, or name an operator of {legal}."
    )


class RowNotDivisible(UserError):
    """Facts: row, what (a size, `M = 30`), num_ranks."""

    template = "row {row} has {what}, which {num_ranks} ranks cannot share equally.\nLegal: a multiple of {num_ranks}."


class MalformedVariant(UserError):
    """Facts: text, reason."""

    template = (
        "--variant {text!r} is not a set of pins: {reason}.\n"
        "Write LABEL:NAME=VALUE;NAME=VALUE, for example --variant 'pull:mover=CommSms(16);transfer=pull'."
    )


class MalformedFile(UserError):
    """Facts: text, reason."""

    template = "--file {text!r} is no contender: {reason}.\nWrite LABEL:FILE.py, for example --file mine:gemm_rs.py."


class NotAnEmittedFile(UserError):
    """Facts: path, reason."""

    template = (
        "{path} is no file that ranks could run: {reason}.\n"
        "Legal: what `tilelink emit SPEC SIZES -o FILE.py` writes for the target triton, edited or not."
    )


class FileFitsNoRow(UserError):
    """Facts: path, found (what it takes, and on how many ranks), rows."""

    template = (
        "{path} takes {found}, and none of the rows has that: {rows}.\n"
        "Legal: --ranks and --rows as the file was emitted for; --rows 8192x4096x14336 for sizes of no model."
    )


class UnknownBaseline(UserError):
    """Facts: name, hint, legal."""

    template = "--against {name} is no baseline.{hint}\nLegal: {legal}; all of them if the option is left out."


class UnknownDtype(UserError):
    """Facts: dtype, hint, legal."""

    template = "--dtype {dtype} is none that the baselines have.{hint}\nLegal: {legal}."


class NotABenchmarkFile(UserError):
    """Facts: path, reason."""

    template = "{path} holds no benchmark results: {reason}.\nLegal: a file that `tilelink bench --json FILE` wrote."


class NoRegret(UserError):
    """Facts: paths."""

    template = (
        "no row of {paths} has three schedules with a time, so that nothing could have been picked wrongly.\n"
        "Legal: files that `tilelink bench --tuned N --json FILE` wrote, with N of 2 or more."
    )


class NotPlans(UserError):
    """Facts: path, reason."""

    template = "{path} holds no plans: {reason}.\nLegal: a file that `tilelink bench --write-plans FILE` wrote."


class PlannedForAnother(UserError):
    """Facts: path, held_ranks, held_topology, num_ranks, topology."""

    template = (
        "{path} was planned for {held_ranks} ranks of {held_topology}, and a schedule is for one number of ranks of one machine, "
        "not for {num_ranks} of {topology} as well.\n"
        "Legal: --ranks {held_ranks} --topology {held_topology}, or neither; or plans that --write-plans has made for these."
    )


class ResultsNotWritable(UserError):
    """Facts: path, reason."""

    template = "cannot write {path}: {reason}.\nGive --json and --write-plans a file in an existing folder."
