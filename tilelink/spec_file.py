"""What the command line is told: the overlap of `path.py:function`, sizes `M=8192`, pins `mover=Fused()`."""

from __future__ import annotations

import difflib
import keyword
import sys
import traceback
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from tilelink.cli_errors import (
    DuplicatePin,
    DuplicateSize,
    MalformedPin,
    MalformedSize,
    NoFunctionNamed,
    NoSuchFunction,
    NotAnOverlap,
    OptionAmongSizes,
    SizeNotInteger,
    SizeNotPositive,
    SpecFileBroken,
    SpecFileMissing,
)
from tilelink.declaration import Overlap
from tilelink.errors import did_you_mean
from topologies.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# the named parameters of Overlap.plan: sizes are passed beside them by keyword
_OPTIONS = {"topology": "--topology", "num_ranks": "--ranks", "dtype": "--dtype", "pin": "--pin"}


def load_overlap(text: str) -> Overlap:
    """The overlap that `text`, written `path.py:function`, names. Runs the file as `python path.py` would,
    except that its `__name__` is not `__main__`.

    Raises NoFunctionNamed, SpecFileMissing, SpecFileBroken, NoSuchFunction, NotAnOverlap; a UserError
    that the file's declarations raise comes through as it is.
    """
    path_text, colon, function = text.rpartition(":")
    if not colon or not path_text or not function:
        raise NoFunctionNamed(spec=text)
    path = Path(path_text)
    if not path.is_file():
        raise SpecFileMissing(path=path_text, folder=str(Path.cwd()), hint=_neighbour(path))
    found = vars(_import(path))
    overlaps = [name for name, value in found.items() if isinstance(value, Overlap)]
    if function not in found:
        hint = did_you_mean(function, overlaps)
        raise NoSuchFunction(path=path_text, function=function, hint=hint, legal=_legal(overlaps))
    overlap = found[function]
    if not isinstance(overlap, Overlap):
        got = type(overlap).__name__
        raise NotAnOverlap(path=path_text, function=function, got=got, legal=_legal(overlaps))
    return overlap


def parse_sizes(texts: Iterable[str]) -> dict[str, int]:
    """`["M=8192", "K=4096"]` as `{"M": 8192, "K": 4096}`, in the order written.

    Raises MalformedSize, OptionAmongSizes, SizeNotInteger, SizeNotPositive, DuplicateSize.
    """
    sizes: dict[str, int] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not value or not name.isidentifier() or keyword.iskeyword(name):
            raise MalformedSize(size=text)
        if name in _OPTIONS:
            raise OptionAmongSizes(name=name, value=value, option=_OPTIONS[name])
        if name in sizes:
            raise DuplicateSize(name=name, values=f"{name}={sizes[name]}, {text}")
        sizes[name] = _size(name, value)
    return sizes


def parse_pins(texts: Iterable[str]) -> dict[str, str]:
    """`["mover=CommSms(16)"]` as `{"mover": "CommSms(16)"}`; the planner gives the values their meaning.

    Splits at the first `=` only. Raises MalformedPin, DuplicatePin.
    """
    pins: dict[str, str] = {}
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        if not name or not value:
            raise MalformedPin(pin=text)
        if name in pins:
            raise DuplicatePin(name=name, values=f"{pins[name]}, {value}")
        pins[name] = value
    return pins


def _size(name: str, value: str) -> int:
    try:
        size = int(value)
    except ValueError:
        raise SizeNotInteger(name=name, value=value) from None
    if size < 1:
        raise SizeNotPositive(name=name, value=size)
    return size


def _legal(overlaps: list[str]) -> str:
    makes_one = "@tilelink.overlap above a function makes it one"
    if not overlaps:
        return f"The file has no overlap function; {makes_one}."
    return f"Overlap functions of the file: {', '.join(overlaps)}; {makes_one}."


def _neighbour(path: Path) -> str:
    """` Did you mean 'layers.py'?` for the closest file beside `path`; the `.py` of both does not count."""
    files = {file.stem: str(file) for file in sorted(path.parent.glob("*.py"))}
    close = difflib.get_close_matches(path.stem, files, n=1)
    return f" Did you mean {files[close[0]]!r}?" if close else ""


def _import(path: Path) -> ModuleType:
    # compiled here, not by an import loader: file:line is as the user typed it, and no __pycache__ appears
    module = ModuleType(f"tilelink_spec_{path.stem}")
    module.__file__ = str(path.resolve())
    with _importable(module, path.resolve().parent):
        try:
            exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), vars(module))
        except UserError:
            raise
        except (Exception, SystemExit) as error:
            text = error.msg if isinstance(error, SyntaxError) else str(error)
            exception = f"{type(error).__name__}: {text}"
            raise SpecFileBroken(path=str(path), where=_where(error, path), exception=exception) from error
    return module


@contextmanager
def _importable(module: ModuleType, folder: Path) -> Iterator[None]:
    """The module is found by its name (dataclasses look it up), and its neighbours can be imported by it."""
    before = list(sys.path)
    sys.path.insert(0, str(folder))
    sys.modules[module.__name__] = module
    try:
        yield
    except BaseException:
        sys.modules.pop(module.__name__, None)
        raise
    finally:
        sys.path[:] = before


def _where(error: BaseException, path: Path) -> str:
    """`file:line` of the line of the spec file that raised `error`, or of the syntax error."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{error.filename}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{path}:{lines[-1]}" if lines else str(path)
