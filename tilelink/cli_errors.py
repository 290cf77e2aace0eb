"""Mistakes in what is typed on the command line: spec files, sizes, pins and output files, one class each."""

from __future__ import annotations

from topologies.errors import UserError


class NoFunctionNamed(UserError):
    """SPEC has no `:function` part. Facts: spec."""

    template = "{spec!r} names no function of a file.\nWrite it as path.py:function, for example layers.py:ag_gemm."


class SpecFileMissing(UserError):
    """Facts: path, folder (where it was looked for), hint."""

    template = (
        "there is no file {path!r}, looked for from {folder}.{hint}\n"
        "SPEC is path.py:function, with a path from the current folder or an absolute one."
    )


class SpecFileBroken(UserError):
    """Running the spec file raised. Facts: path, where (file:line), exception (class and text)."""

    template = (
        "{where}: the file cannot be imported.\n{exception}\n"
        "A spec file must import cleanly; `python {path}` shows the whole traceback."
    )


class NoSuchFunction(UserError):
    """Facts: path, function, hint, legal (the file's overlap functions)."""

    template = "{path} defines no {function!r}.{hint}\n{legal}"


class NotAnOverlap(UserError):
    """The name is something else. Facts: path, function, got, legal (the file's overlap functions)."""

    template = "{function!r} in {path} is a value of type {got}, not an overlap function.\n{legal}"


class MalformedSize(UserError):
    """Facts: size."""

    template = "{size!r} is not a size.\nWrite each as NAME=INTEGER, for example M=8192 K=4096."


class SizeNotInteger(UserError):
    """Facts: name, value."""

    template = "{name}={value} is not an integer.\nWrite a count of elements, for example {name}=8192."


class SizeNotPositive(UserError):
    """Facts: name, value."""

    template = "{name}={value} leaves no tile to compute.\nLegal {name}: integers of at least 1."


class DuplicateSize(UserError):
    """Facts: name, values (as written)."""

    template = "{name} is given more than once: {values}.\nGive each size once."


class OptionAmongSizes(UserError):
    """A size has the name of a planning argument. Facts: name, value, option."""

    template = "{name}={value} stands among the sizes, but {name} is no size.\nWrite {option} {value}."


class MalformedPin(UserError):
    """Facts: pin."""

    template = (
        "--pin {pin!r} does not say which choice has which value.\n"
        "Write --pin NAME=VALUE, for example --pin 'mover=CommSms(16)'."
    )


class DuplicatePin(UserError):
    """Facts: name, values (as written)."""

    template = "--pin {name} is given more than once: {values}.\nPin each choice once."


class OutputNotWritable(UserError):
    """Facts: path, reason (the system's words)."""

    template = "cannot write {path}: {reason}.\nGive -o a file in an existing folder that you may write to."


class WouldOverwrite(UserError):
    """Facts: path."""

    template = (
        "{path} is there, and is not what demo writes: somebody has edited it, or another version has made it. It is kept.\n"
        "Legal: -o with another file, or remove this one."
    )


class SizesOfFile(UserError):
    """Facts: path, sizes (as written)."""

    template = (
        "{path} is a file with an operator, whose sizes are fixed, so {sizes} has no meaning.\n"
        "Give the file alone, or name a function to plan: {path}:FUNCTION {sizes}."
    )


class OptionOfApi(UserError):
    """Facts: vendor."""

    template = (
        "--vendor {vendor} has no meaning without --api: schedules and runs take the GPU from the topology.\n"
        "Write `tilelink verify --api FILE.py --vendor {vendor}` to check a file against the API of Triton-distributed."
    )


class FileIsForOthers(UserError):
    """Facts: path, option, given, legal."""

    template = (
        "{path} cannot run with {option} {given}: it is a file for a fixed machine.\n"
        "Legal: {legal}; or emit it again for another one."
    )


class TooLongToEmulate(UserError):
    """Facts: what, time, most (minutes), legal."""

    template = "{what} would take at least {time}, and --max-minutes is {most}.\n{legal}"
