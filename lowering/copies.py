"""Copy programs in the host class: views of every chunk and signal, made once, and the loop over them in a call.

Slicing tensors costs the host more than enqueuing the copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lowering.constants import on_host
from lowering.dialect import Dialect
from lowering.host_names import HostNames, chunk_index, shape_text
from lowering.positions import rank_at
from lowering.source import Source
from tilelink.ir.counting import source_arrivals
from tilelink.ir.nodes import CopyProgram, Exchange, Kind, Memory, Transfer
from tilelink.ir.order import Nest
from tilelink.ir.schedule import Schedule


class CopyPrinter:
    """Prints copy programs and publications."""

    def __init__(self, schedule: Schedule, dialect: Dialect, names: HostNames, out: Source) -> None:
        self.schedule = schedule
        self.dialect = dialect
        self.names = names
        self.out = out

    def prepare(self, launch: CopyProgram) -> None:
        """In the constructor: streams, and for each copy what it needs, in order."""
        name = launch.stream
        peers = f"{self.names.ranks} - 1"
        one, each = f'fabric.stream("{name}")', f'[fabric.stream(f"{name}_{{step}}") for step in range({peers})]'
        self.out.line(f"self.{name} = {each if launch.streams > 1 else one}")
        exchange = self.schedule.exchange(launch.exchange)
        fields = self._fields(launch, exchange)
        self.out.line(f"self.{exchange.name}_moves = []  # {', '.join(fields)} of each chunk, in order")
        with self.loops(exchange):
            rows = self.names.chunk_rows(exchange)
            self.out.lines(rows)
            values = [self._value(field, launch, exchange) for field in fields]
            self.out.call(f"self.{exchange.name}_moves.append((", values, "))")

    def _fields(self, launch: CopyProgram, exchange: Exchange) -> list[str]:
        fields = ["stream"] if launch.streams > 1 else []
        if exchange.transfer is Transfer.PULL:
            return [*fields, "ready", "target", "source", "arrived"]
        if self._counted(exchange):
            fields += ["counted", *(["tiles"] if len(set(source_arrivals(self.schedule, exchange))) > 1 else [])]
        if self.schedule.buffer(exchange.source).memory is not Memory.INPUT:
            return [*fields, "target", "source", *([] if exchange.met else ["arrived"])]
        return [*fields, "target", *(["part"] if self._part(exchange) else []), "arrived"]

    def _counted(self, exchange: Exchange) -> bool:
        return self.schedule.has_signal(f"{exchange.name}_count")

    def _part(self, exchange: Exchange) -> str:
        """Index of what is sent in the source of a push."""
        return chunk_index(exchange, "peer" if exchange.kind is Kind.SCATTER else "")

    def _value(self, field: str, launch: CopyProgram, exchange: Exchange) -> str:
        """Expression of a field; words of signals are printed before."""
        name, names, push = exchange.name, self.names, exchange.transfer is Transfer.PUSH
        scatter = exchange.kind is Kind.SCATTER
        match field:
            case "stream":
                return f"self.{launch.stream}[step]"
            case "tiles":
                return f"({', '.join(map(on_host, self.names.numbers.source_arrivals(exchange)))})[chunk]"
            case "counted":
                return self._word(
                    field, "self.counts", names.slot(f"{name}_count", exchange, "peer" if scatter else "0")
                )
            case "ready":
                return self._word(field, "self.signals.local", names.slot(f"{name}_ready", exchange, "peer"))
            case "arrived" if push:
                return self._word(field, "self.signals.peers[peer]", names.slot(f"{name}_arrived", exchange, "rank"))
            case "arrived":
                return self._word(field, "self.counts", names.slot(f"{name}_arrived", exchange, "peer"))
            case "target" if push:
                return f"self.{exchange.target}.peers[peer]{chunk_index(exchange, 'rank')}"
            case "target":
                return f"{names.here(exchange.target)}{chunk_index(exchange, 'peer')}"
            case "source" if push:
                return f"{names.source(exchange)}{self._part(exchange)}"
            case "source":
                return f"self.{exchange.source}.peers[peer]{chunk_index(exchange, 'rank' if scatter else '')}"
            case "part":
                index = self._part(exchange).strip("[]")
                return f"({index})" if "," in index else index
        raise AssertionError(f"{field} is no field of a copy")

    def _word(self, field: str, words: str, slot: str) -> str:
        self.out.line(f"slot = {slot}")
        self.out.line(f"{field} = {words}[slot : slot + 1]")
        return field

    def enqueue(self, launch: CopyProgram) -> None:
        """In a call: all copies, each after what it waits for and before its signal."""
        exchange = self.schedule.exchange(launch.exchange)
        fields = self._fields(launch, exchange)
        stream = "stream" if launch.streams > 1 else f"self.{launch.stream}"
        with self.out.block(f"for {', '.join(fields)} in self.{exchange.name}_moves:"):
            if exchange.transfer is Transfer.PULL:
                self.out.line(f"{stream}.launch(wait_on_stream, (1,), ready, self.epoch, num_warps=1)")
            elif "counted" in fields:
                self._wait(stream, exchange)
            source = "source"
            if "source" not in fields:
                source = self.names.source(exchange) + ("[part]" if "part" in fields else "")
            self.out.line(f"{stream}.copy(target, {source})")
            if exchange.transfer is Transfer.PULL:
                self.out.line(f"{stream}.write(arrived, 1)")
            elif not exchange.met:
                self.out.line(f"{stream}.copy(arrived, self.epoch)")

        if launch.tells_end:
            self._tell_end(launch)

    def _tell_end(self, launch: CopyProgram) -> None:
        """The word of each stream, for the program that ends the call."""
        self.out.comment("the copies of this stream are done")
        signal, number = self.schedule.signal("copied"), self.schedule.copied_word(launch)
        word = on_host(self.names.numbers.word(signal)) + (f" + {number}" if number else "")
        if launch.streams == 1:
            self.out.line(f"self.{launch.stream}.write(self.counts[{word} : {word} + 1], 1)")
            return
        with self.out.block(f"for word, stream in enumerate(self.{launch.stream}, {word}):"):
            self.out.line("stream.write(self.counts[word : word + 1], 1)")

    def _wait(self, stream: str, exchange: Exchange) -> None:
        tiles = self.names.numbers.source_arrivals(exchange)
        target = on_host(tiles[0]) if len(tiles) == 1 else "tiles"
        if self.schedule.machine.stream_waits:
            self.out.line(f"{stream}.{self.dialect.stream_wait}(counted, {target})")
        else:
            self.out.line(f"{stream}.launch(wait_count_on_stream, (1,), counted, {target}, num_warps=1)")

    def fork(self, launch: CopyProgram) -> None:
        wait = f"{self.dialect.stream_wait}({self.names.word('done')}, {self.names.ranks} - 1)"
        lines = ["after(main)"]
        if launch.awaits_done:
            lines.append(wait)
            self.out.comment("the first copy follows the last call of every peer")
        if launch.streams > 1:
            self.out.line(f"for stream in self.{launch.stream}:")
            lines = [f"    stream.{line}" for line in lines]
        else:
            lines = [f"self.{launch.stream}.{line}" for line in lines]
        for line in lines:
            self.out.line(line)

    def join(self, launch: CopyProgram) -> None:
        if launch.streams > 1:
            self.out.line(f"for stream in self.{launch.stream}:")
            self.out.line("    main.after(stream)")
        else:
            self.out.line(f"main.after(self.{launch.stream})")

    def publish(self, exchange: Exchange, copy_from: str) -> None:
        """Tell every peer that the own part may be pulled."""
        if copy_from:
            shape = shape_text(self.schedule.buffer(exchange.source).shape)
            view = f".view{shape}" if exchange.kind is Kind.SCATTER else ""
            self.out.line(f"main.copy({self.names.here(exchange.source)}, {self.names.here(copy_from)}{view})")
        with self.loops(exchange):
            self.out.line(f"slot = {self.names.slot(f'{exchange.name}_ready', exchange, 'rank')}")
            self.out.line("main.copy(self.signals.peers[peer][slot : slot + 1], self.epoch)")

    @contextmanager
    def loops(self, exchange: Exchange) -> Iterator[None]:
        """Loops over (peer, chunk) in the order of the mover."""
        peers, chunks = f"for step in range({self.names.ranks} - 1):", self.names.each_chunk(exchange)
        loops = (peers, chunks) if exchange.order.nest is Nest.RANK_MAJOR else (chunks, peers)
        with self.out.maybe(loops[0]), self.out.maybe(loops[1]):
            self.out.line(f"peer = {rank_at(exchange.order.ranks, 'step', self.names.ranks, on_host=True)}")
            yield
