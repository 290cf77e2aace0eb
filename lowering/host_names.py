"""Host expressions of buffers, chunks and signal slots."""

from __future__ import annotations

from tilelink.ir.nodes import Exchange, Kind, Memory
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import Operand


class HostNames:
    """What things of a schedule are called in the host class."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule

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
        first = self.schedule.signal(signal).first
        place = f"{part} * {exchange.chunks} + chunk" if part != "0" else "chunk"
        return plus(first, part if exchange.chunks == 1 else place)


def chunk_index(exchange: Exchange, part: str = "") -> str:
    """Index of the chunk in a tensor of parts, or in one part."""
    names = [part] if part else []
    names += ["rows"] if exchange.chunks > 1 else []
    return f"[{', '.join(names)}]" if names else ""


def chunk_rows(exchange: Exchange) -> str:
    """The line that sets `rows`, empty if a part is one chunk."""
    size = exchange.chunk_rows
    found = f"rows = slice(chunk * {size}, min((chunk + 1) * {size}, {exchange.rows}))"
    return found if exchange.chunks > 1 else ""


def plus(first: int, place: str) -> str:
    return f"{first} + {place}" if first else place


def shape_text(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
