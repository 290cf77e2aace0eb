"""Host expressions of buffers, chunks and signal slots."""

from __future__ import annotations

from lowering.constants import on_host
from lowering.numbers import Numbers
from tilelink.ir.nodes import Exchange, Kind, Memory, Signal
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import Operand


class HostNames:
    """What things of a schedule are called in the host class."""

    ranks = "self.NUM_RANKS"

    def __init__(self, schedule: Schedule, numbers: Numbers) -> None:
        self.schedule = schedule
        self.numbers = numbers

    def here(self, buffer: str) -> str:
        """This rank's tensor."""
        match self.schedule.buffer(buffer).memory:
            case Memory.INPUT | Memory.OUTPUT | Memory.POOL:
                return buffer
            case Memory.LOCAL:
                return f"self.{buffer}"
            case Memory.SYMMETRIC:
                return f"self.{buffer}.local"

    def source(self, exchange: Exchange) -> str:
        """The source; parts of a SCATTER under a dimension of their own."""
        found = self.schedule.buffer(exchange.source)
        if exchange.kind is Kind.SCATTER and found.memory is Memory.INPUT:
            parts = (self.schedule.num_ranks, exchange.rows, *found.shape[1:])
            return f"{self.here(exchange.source)}.view{shape_text(parts)}"
        if exchange.source == exchange.target:
            return f"{self.here(exchange.source)}[rank]"
        return self.here(exchange.source)

    def matrix(self, buffer: str) -> str:
        """The tensor as a matrix, parts under each other."""
        found = self.schedule.buffer(buffer)
        flat = f".view(-1, {found.shape[-1]})" if len(found.shape) > 2 else ""
        return f"{self.here(buffer)}{flat}"

    def operand(self, operand: Operand) -> str:
        """The matrix, or what of it the operand is."""
        window = ", ".join(f"{first}:{end}" for first, end in operand.window)
        return self.matrix(operand.buffer) + (f"[{window}]" if window else "")

    def flat(self, buffer: str) -> str:
        """Parts along the first dimension, as library collectives want them."""
        found = self.schedule.buffer(buffer)
        return f"{self.here(buffer)}.flatten(0, 1)" if len(found.shape) > 2 else self.here(buffer)

    def slot(self, signal: str, exchange: Exchange, part: str) -> str:
        """Index of (part, chunk) among the words of the signal's scope; part "0" is the only one."""
        place = f"{part} * {on_host(self.numbers.chunks(exchange))} + chunk" if part != "0" else "chunk"
        return self.behind(self.schedule.signal(signal), part if exchange.chunks == 1 else place)

    def behind(self, signal: Signal, place: str) -> str:
        """Index of the word at `place` of a signal."""
        return f"{on_host(self.numbers.word(signal))} + {place}" if signal.first else place

    def word(self, name: str) -> str:
        """The only word of a signal of peers, as a tensor."""
        first = on_host(self.numbers.word(self.schedule.signal(name)))
        return f"self.signals.local[{first} : {first} + 1]"

    def words(self, name: str) -> str:
        """The words of a signal of peers, and what lies behind them."""
        signal = self.schedule.signal(name)
        return f"self.signals.local[{on_host(self.numbers.word(signal))}:]" if signal.first else "self.signals.local"

    def each_chunk(self, exchange: Exchange) -> str:
        """The header of a loop over the chunks of a part, empty if a part is one chunk."""
        return f"for chunk in range({on_host(self.numbers.chunks(exchange))}):" if exchange.chunks > 1 else ""

    def chunk_rows(self, exchange: Exchange) -> str:
        """The lines that set `rows`, empty if a part is one chunk."""
        if exchange.chunks == 1:
            return ""
        size, rows = on_host(self.numbers.chunk_rows(exchange)), on_host(self.numbers.rows(exchange))
        return f"first = chunk * {size}\nrows = slice(first, min(first + {size}, {rows}))"


def chunk_index(exchange: Exchange, part: str = "") -> str:
    """Index of the chunk in a tensor of parts, or in one part."""
    names = [part] if part else []
    names += ["rows"] if exchange.chunks > 1 else []
    return f"[{', '.join(names)}]" if names else ""


def shape_text(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
