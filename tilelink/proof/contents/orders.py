"""Operations of the proof, which no spec has: of values in the order of tables."""

from __future__ import annotations

from dataclasses import dataclass

from tilelink.ir.ops.op import Inferred, Op
from tilelink.ir.ops.states import Merged
from tilelink.ir.ops.user_fold import UserFold
from tilelink.ir.spec import Route

REORDERED, RETURNED, OWN_ROWS = "reordered", "returned", "own_rows"
OF_OWN = ", of own tokens"  # the end of the name of what has their rows only


class _OfProof(Op):
    """An operation of the proof, which no spec has."""

    __slots__ = ()

    def infer(self, operands: object, location: object) -> Inferred:
        raise AssertionError("no spec has it")


@dataclass(frozen=True, slots=True)
class Reordered(_OfProof):
    """The same elements in another order. `by`: the end of the names of what lies in that order."""

    by: str

    @property
    def word(self) -> str:
        return f"order of {self.by}"


@dataclass(frozen=True, slots=True)
class BlockMatmul(_OfProof):
    """Rows of block i of the left operand times block i of the right one; blocks have `height` and `depth` rows."""

    height: int
    depth: int

    @property
    def word(self) -> str:
        return "grouped_matmul"


@dataclass(frozen=True, slots=True)
class Returned(_OfProof):
    """Rows of the own tokens, each from the rank of its expert, of rows in the order of tables."""

    @property
    def word(self) -> str:
        return "return"


@dataclass(frozen=True, slots=True)
class CombineChoices(_OfProof):
    """Rows [T, choices * N] of all choices of a token, one behind the other, each times its weight. `apart`: rows are those of
    tokens of all ranks, and each lies at the rank of its expert; of each rank those of its experts are added."""

    choices: int
    route: Route
    apart: bool = False

    @property
    def word(self) -> str:
        return "combine"


@dataclass(frozen=True, slots=True)
class MeansOfShares(_OfProof):
    """[splits, B, Q, D]: of each share of the tokens of a rank the means of values by weight."""

    @property
    def word(self) -> str:
        return "means of shares"


@dataclass(frozen=True, slots=True)
class LogsOfShares(_OfProof):
    """[splits, B, Q]: of each share the logarithms, of base 2, of the sums of the weights."""

    @property
    def word(self) -> str:
        return "logarithms of shares"


def base_2_of(logs: str) -> str:
    """The same logarithms, of base 2."""
    return f"{logs} of base 2"


@dataclass(frozen=True, slots=True)
class InBase2(_OfProof):
    """Logarithms of base e as those of base 2."""

    @property
    def word(self) -> str:
        return "logarithms of base 2"


@dataclass(frozen=True, slots=True)
class StatesOf(_OfProof):
    """States of the fold that `how` merges, wherever the result goes."""

    fold: UserFold
    how: Merged

    @property
    def word(self) -> str:
        return f"states of {self.fold.word}"


@dataclass(frozen=True, slots=True)
class StatesOfParts(_OfProof):
    """[2 ** parts, S, Q * D]: of each set of parts of the keys of attention `out` the means of values by weight; or its `logs`
    [2 ** parts, S, Q], the logarithms of the sums of the weights."""

    out: str
    logs: bool

    @property
    def word(self) -> str:
        return f"{'logarithms' if self.logs else 'means'} of parts of {self.out}"


@dataclass(frozen=True, slots=True)
class PartOfStates(_OfProof):
    """[n + 1, n + 1, M]: of each row a part of the state of own elements first .. end - 1."""

    part: str

    @property
    def word(self) -> str:
        return f"part {self.part} of states"


@dataclass(frozen=True, slots=True)
class ResultOf(_OfProof):
    """Result `number` of whole states, along `dim` the own part."""

    number: int
    dim: int | None

    @property
    def word(self) -> str:
        return f"result {self.number}"
