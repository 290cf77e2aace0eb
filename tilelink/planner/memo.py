"""What a search has computed before: kept in the structure that it is about, and gone with it.

@remembered
def exchange_of(structure, name, choice): ...   # computed once for each name and choice of the structure
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

_MISSING = object()
Memo = dict[object, dict[tuple[object, ...], Any]]


class Remembers(Protocol):
    """Has a place for what is computed of it, or of what it belongs to."""

    @property
    def memo(self) -> Memo: ...


Subject = TypeVar("Subject", bound=Remembers)
Rest = ParamSpec("Rest")
Result = TypeVar("Result")


def remembered(
    function: Callable[Concatenate[Subject, Rest], Result],
) -> Callable[Concatenate[Subject, Rest], Result]:
    """The same function, which computes once what it is asked again; all arguments are given by position and are values."""

    @wraps(function)
    def ask(subject: Subject, /, *args: Rest.args, **named: Rest.kwargs) -> Result:
        known = subject.memo.get(function)
        if known is None:
            known = subject.memo[function] = {}
        key = (subject, *args)
        found = known.get(key, _MISSING)  # hashes of long keys take longer than all else here
        if found is _MISSING:
            found = known[key] = function(subject, *args, **named)
        return found  # type: ignore[no-any-return]

    return ask
