"""Steps of a merge of states: each program makes states of this rank and sends them, then it merges those of all ranks.

    for a split of the tokens of a tile of heads:                        # the own ones
      state = fold over keys[begin : end] ...
      mean, log -> packets of the rank that the heads belong to, or of all ranks
    for a tile of the result:
      for state < ranks * splits:                                        # in this order on every rank
        merge its mean and log, from packets
      store out

A program sends all of its states before it waits, and all programs are resident: so no rank waits for one that waits. Packets of
logarithms say the number of the call, because several programs read each; those of means are of either kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import gcd

from tilelink.elaborate.positions import TILE
from tilelink.ir.calls import StateMerge
from tilelink.ir.enums import Protocol
from tilelink.ir.ops.user_fold import UserFold
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import DecodeAttention, MergeStates
from tilelink.schedule.index import Index, Number, call, greatest, least, rank
from tilelink.schedule.memory import Buffer, Memory, Region, Table
from tilelink.schedule.roles import Phase, Role, Sms
from tilelink.schedule.steps import Compute, For, If, Let, Load, Step, Store

STATE = Index("state")  # of those of all ranks
SPLIT, HEAD, SEQUENCE, KEYS_HEAD = (Index(name) for name in ("split", "head", "sequence", "keys_head"))
_STATE = ("top", "weight", "total")


def of_merge(launch: StateMerge, ranks: int) -> Iterator[tuple[str, str, int, str]]:
    """(what, name, number, title) of what a merge is made of."""
    out = launch.out
    if isinstance(launch.how.how, UserFold):
        yield "splits", "SPLITS", launch.splits, f"programs that share the own elements of a row of {out}"
        yield "block", "BLOCK", launch.block, "elements of a row that are taken at once"
        yield "tokens", "ELEMENTS", launch.how.tokens, "elements of a row on a rank"
        yield "rows", "TILE_ROWS", launch.rows, "rows that a program folds at once"
        if launch.splits > 1 or not launch.how.alone:
            rows, _ = launch.merged_tile(1 if launch.how.alone else ranks, "fp32")
            yield "merged", "MERGED_ROWS", rows, "rows that a program merges at once"
        return
    yield "splits", "SPLITS", launch.splits, f"programs that share the own tokens of a sequence of {out}"
    yield "block", "BLOCK", launch.block, "tokens that are taken at once"
    yield "tokens", "TOKENS", launch.how.tokens, "tokens of a sequence on a rank, at most"


@dataclass(frozen=True)
class States:
    schedule: Schedule
    launch: StateMerge

    @property
    def ranks(self) -> int:
        return self.schedule.num_ranks

    @cached_property
    def named(self) -> dict[str, str]:
        """Operands by what they are."""
        how = self.launch.how.how
        if isinstance(how, DecodeAttention):
            return how.named(self.launch.operands)
        return dict(zip(("means", "logs"), self.launch.operands, strict=True))

    @property
    def own(self) -> tuple[int, int, int]:
        """Shape of the result on a rank: sequences, heads, elements of a head."""
        return self.launch.own(self.ranks)

    @property
    def count(self) -> int:
        """States of all ranks of each head."""
        return self.ranks * self.launch.splits

    # ---- buffers and tables ----
    def buffers(self) -> Iterator[Buffer]:
        sequences, heads, width = self.own
        name, means = self.launch.out, "fp32"
        if not isinstance(self.launch.how.how, DecodeAttention):
            means = self.schedule.buffer(self.launch.operands[0]).dtype
        lead = 2, self.count, sequences, heads
        yield Buffer(f"{name}_means", Memory.SYMMETRIC, (*lead, width), means, self.launch.protocol)
        yield Buffer(f"{name}_logs", Memory.SYMMETRIC, (*lead, 1), "fp32", Protocol.LL)

    def tables(self) -> Iterator[Table]:
        """Inputs that indices look up."""
        how = self.launch.how
        if "lengths" in self.named:
            yield Table(self.named["lengths"], (self.launch.shape[0],), how.tokens * self.ranks + 1)
        if "pages" in self.named:
            pages = self.schedule.buffer(self.named["k"]).shape[0] // how.page
            yield Table(self.named["pages"], (self.launch.shape[0], how.tokens // how.page), pages)

    # ---- the two phases ----
    def role(self) -> Role:
        launch = self.launch
        engine = Sms(launch.programs, launch.warps, launch.stages, launch.per_sm)
        fold = isinstance(launch.how.how, DecodeAttention)
        return Role(launch.out, engine, (self._folded() if fold else self._given(), self._merged()))

    def _given(self) -> Phase:
        """States that the caller has, tile by tile of heads."""
        launch, rows, width = self.launch, self.launch.rows, self.launch.shape[2]
        tiles = launch.shape[1] // rows
        let: Let = (("sequence", TILE // tiles), ("head", TILE % tiles * rows))
        logs = Region(self.named["logs"], (SEQUENCE, HEAD), (1, rows))
        how = launch.how.how
        assert isinstance(how, MergeStates), "it is given"
        steps: tuple[Step, ...] = (
            Load("mean", Region(self.named["means"], (SEQUENCE, HEAD, 0), (1, rows, width))),
            Load("given_logs", logs),
            Compute(("logs_row",), "copy" if how.base2 else "in_base_2", ("given_logs",)),
            Compute(("log",), "trans", ("logs_row",)),
            *self._sent(rows, rank),
        )
        return Phase(launch.shape[0] * tiles, steps, let, title="own states, to the ranks that need them")

    def _folded(self) -> Phase:
        """States of own tokens, split by split of each tile of heads."""
        launch, how = self.launch, self.launch.how
        fold = how.how
        assert isinstance(fold, DecodeAttention), "it folds"
        width, block, splits, shared, rows = launch.shape[2], launch.block, launch.splits, launch.shared, launch.rows
        tiles = -(-shared // rows)
        place = TILE // splits
        inner = place % tiles * rows
        let: Let = (("split", TILE % splits), ("first_head", inner), ("keys_head", place // tiles % how.keys))
        let += (("sequence", place // (tiles * how.keys)), ("head", KEYS_HEAD * shared + Index("first_head")))
        many = least(rows, shared - Index("first_head"))
        names, first, end = self._tokens(fold)
        let += names
        blocks = -(-int(how.tokens) // int(block))
        begins = Index("first_block") + (Index("blocks") * SPLIT // splits if splits > 1 else 0)
        count: Number = Index("blocks")
        if splits > 1:  # at most so many, and who reads bounds off an index sees it
            count = Index("blocks") * (SPLIT + 1) // splits - Index("blocks") * SPLIT // splits
            count = least(count, -(-blocks // int(splits)))
        let += (
            ("first_block", first // block),
            ("blocks", (end + (block - 1)) // block - first // block),
            ("begins", begins),
        )
        token = Index("token")
        here = least(block, end - token)
        state = _STATE
        loads = (Load(f"{name}_tile", self._keys(self.named[name[0]], token, here)) for name in ("keys", "values"))
        operands: tuple[str | float | Index | int, ...] = (
            *state,
            "queries_tile",
            "keys_tile",
            "values_tile",
            fold.scale,
            fold.soft_cap,
        )
        made = Compute(state, "attend_between", (*operands, first - token, end - token))
        if isinstance(end, int) and end % block == 0 and first == 0:  # all tokens of all tiles
            here, made = block, Compute(state, "attend", operands)
        at = least(Index("begins") + Index("block"), blocks - 1)  # it is; who reads bounds off an index sees it
        loop = For("block", count, (*loads, made), (("token", at * block),))
        steps: tuple[Step, ...] = (
            Load("queries_tile", Region(self.named["q"], (SEQUENCE, HEAD, 0), (1, many, width))),
            Compute(("top",), "full", (-1e30,), (rows, 1)),
            Compute(("weight",), "zeros", shape=(rows, 1)),
            Compute(("total",), "zeros", shape=(rows, width)),
            loop,
            Compute(("mean",), "attended", ("total", "weight")),
            Compute(("log",), "log_of_weights", ("top", "weight")),
            *self._sent(many, rank * splits + (SPLIT if splits > 1 else 0)),
        )
        title = "states of own tokens, to the ranks that need them"
        return Phase(launch.tiles * splits, steps, let, title=title)

    def _tokens(self, fold: DecodeAttention) -> tuple[Let, Number, Number]:
        """(names, first, end) of the own tokens that a query sees."""
        tokens, lengths = self.launch.how.tokens, self.named.get("lengths")
        if lengths is None and not fold.window:
            return (), 0, tokens
        length: Number = Index(lengths, (SEQUENCE,)) if lengths is not None else tokens * self.ranks
        end = greatest(least(length - rank * tokens, tokens), 0)
        names: Let = (("end", end),)
        if not fold.window:
            return names, 0, Index("end")
        first = greatest(least(length - (fold.window + rank * tokens), tokens), 0)
        return (*names, ("first", first)), Index("first"), Index("end")

    def _keys(self, buffer: str, token: Number, here: Number) -> Region:
        """A tile of keys or values of the head that the tile's heads share."""
        how, width = self.launch.how, self.launch.shape[2]
        if how.page:
            lane = token if how.page % self.launch.block == 0 else token + Index("lane")
            page = Index(self.named["pages"], (SEQUENCE, lane // how.page))
            row: Number = page * how.page + lane % how.page
        else:
            row = SEQUENCE * how.tokens + token
        return Region(buffer, (row, KEYS_HEAD * width), (here, width))

    def _sent(self, many: Number, state: Number) -> tuple[Step, ...]:
        """The state of heads to the rank that they belong to, or to all; the own rank as well."""
        dim, (sequences, heads, _) = self.launch.how.dim, self.own
        if dim == 0:
            return self._stores(SEQUENCE // sequences, SEQUENCE % sequences, HEAD, many, state)
        rows = self.launch.rows
        if (
            dim == 1
            and heads % gcd(self.launch.shared, rows) == 0
            and (heads % rows == 0 or heads % self.launch.shared == 0)
        ):
            return self._stores(HEAD // heads, SEQUENCE, HEAD % heads, many, state)
        peer = Index("peer")
        head = HEAD - peer * heads if dim == 1 else HEAD  # heads of others stick out
        body = self._stores(peer, SEQUENCE, head, many, state)
        return (For("step", self.ranks, body, (("peer", (rank + Index("step")) % self.ranks),), unrolled=True),)

    def _stores(self, at: Number, sequence: Number, head: Number, many: Number, state: Number) -> tuple[Step, ...]:
        lead, name = (call % 2, state, sequence, head, 0), self.launch.out
        return (
            Store("mean", Region(f"{name}_means", lead, (1, 1, 1, many, self.launch.shape[2]), at)),
            Store("log", Region(f"{name}_logs", lead, (1, 1, 1, many, 1), at)),
        )

    def _merged(self) -> Phase:
        """States of all ranks, tile by tile of the own part of the result."""
        name, (sequences, heads, width) = self.launch.out, self.own
        rows, cols = self.launch.merged_tile(self.ranks, self.schedule.buffer(self.launch.operands[0]).dtype)
        across, down = width // cols, heads // rows
        place = TILE // across if across > 1 else TILE
        let: Let = (("sequence", place // down), ("head", place % down * rows if rows > 1 else place % down))
        let += (("column", TILE % across * cols),)
        column = Index("column")
        lead = call % 2, STATE, SEQUENCE, HEAD
        merged = Compute(_STATE, "merge_state", (*_STATE, "mean", "log"))
        body: tuple[Step, ...] = (
            Load("mean", Region(f"{name}_means", (*lead, column), (1, 1, 1, rows, cols))),
            Load("log", Region(f"{name}_logs", (*lead, 0), (1, 1, 1, rows, 1))),
            merged,
        )
        steps = (
            Compute(("top",), "full", (-1e30,), (rows, 1)),
            Compute(("weight",), "zeros", shape=(rows, 1)),
            Compute(("total",), "zeros", shape=(rows, cols)),
            For(STATE.op, self.count, body, unrolled=True),
            Compute((name,), "attended", ("total", "weight")),
            Store(name, self._result(rows, cols)),
            *self._logs(rows, across),
        )
        return Phase(sequences * down * across, steps, let, title="states of all ranks, in their order")

    def _logs(self, rows: int, across: int) -> tuple[Step, ...]:
        """The logarithms of the sums of all weights, which of the tiles of the same heads the first one stores."""
        how = self.launch.how
        if not how.logs:
            return ()
        steps: tuple[Step, ...] = (
            Compute(("logs",), "log_of_weights", ("top", "weight")),
            Compute(("logs_row",), "trans", ("logs",)),
            *(() if how.base2 else (Compute(("logs_row",), "in_base_e", ("logs_row",)),)),
            Store("logs_row", Region(how.logs, (SEQUENCE, HEAD), (1, rows))),
        )
        return (If(Index("column"), 0, steps),) if across > 1 else steps

    def _result(self, rows: int, cols: int) -> Region:
        """A tile of the result."""
        name, column = self.launch.out, Index("column")
        if self.launch.how.flat:
            return Region(name, (SEQUENCE, HEAD * self.launch.shape[2] + column), (1, cols))
        return Region(name, (SEQUENCE, HEAD, column), (1, rows, cols))
