"""Schedule -> the host class: allocate once, enqueue one call after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lowering.kernels import PrintedKernel
from lowering.names import TORCH, class_name
from lowering.source import Source
from lowering.tiles import rank_at
from tilelink.ir.counting import source_arrivals
from tilelink.ir.nodes import (
    Begin,
    Buffer,
    CopyOwn,
    CopyProgram,
    Exchange,
    Finish,
    Kernel,
    Kind,
    Launch,
    LibraryCollective,
    LibraryGemm,
    Memory,
    Publish,
    Scope,
    Transfer,
)
from tilelink.ir.order import Nest
from tilelink.ir.schedule import Schedule


class HostPrinter:
    """Prints the class of one schedule."""

    def __init__(self, schedule: Schedule, kernels: tuple[PrintedKernel, ...]) -> None:
        self.schedule = schedule
        self.kernels = {printed.kernel.name: printed for printed in kernels}
        self.out = Source()
        self.num_counts = sum(s.slots for s in schedule.signals if s.scope is Scope.LOCAL)
        self.num_signals = sum(s.slots for s in schedule.signals if s.scope is not Scope.LOCAL)
        self.turns = any(isinstance(launch, Finish) and launch.turns for launch in schedule.launches)

    def text(self) -> str:
        inputs = [value.name for value in self.schedule.spec.inputs]
        with self.out.block(f"class {class_name(self.schedule.name)}:"):
            self._doc(inputs)
            self._init()
            self.out.line()
            self._call(inputs)
        return self.out.text()

    def _doc(self, inputs: list[str]) -> None:
        shown = [f"{b.name} {list(b.shape)} {b.dtype}" for b in self._buffers(Memory.INPUT)]
        results = [f"{b.name} {list(b.shape)} {b.dtype}" for b in self._buffers(Memory.OUTPUT)]
        self.out.line(
            f'"""`{", ".join(self.schedule.spec.outputs)} = op({", ".join(inputs)})` on every rank of the fabric.'
        )
        self.out.line()
        for line in (f"Takes {', '.join(shown)}.", f"Returns {', '.join(results)}."):
            self.out.line(line)
        self.out.line(
            "All are contiguous. Calls follow each other on one stream or on several, eager or captured in a CUDA graph."
        )
        self.out.line('"""')
        self.out.line()
        self.out.line(
            f'SCHEDULE = "{self.schedule.hash}"  # ranks with different schedules would hang: compare before the first call'
        )
        entries = [f'"{b.name}": ({_tuple(b.shape)}, {TORCH[b.dtype]})' for b in self._buffers(Memory.INPUT)]
        self.out.call("INPUTS = {", entries, "}")
        machine = self.schedule.machine
        self.out.line(f"NUM_RANKS = {machine.num_ranks}")
        self.out.line(f"NUM_SMS = {machine.num_sms}  # all that spins at once fits on so many")
        self.out.line("ANY_STREAM = True  # calls may come from any stream")
        if not machine.peer_atomics:
            self.out.line("PEER_ATOMICS = False  # the links need none")
        self.out.line()

    def _buffers(self, memory: Memory) -> list[Buffer]:
        found = [buffer for buffer in self.schedule.buffers if buffer.memory is memory]
        if memory is Memory.INPUT:
            return found
        if memory is Memory.OUTPUT:
            by_name = {buffer.name: buffer for buffer in found}
            return [by_name[name] for name in self.schedule.spec.outputs]
        return found

    def _init(self) -> None:
        out = self.out
        with out.block("def __init__(self, fabric):"):
            with out.block("if fabric.num_ranks != self.NUM_RANKS or fabric.num_sms < self.NUM_SMS:"):
                out.line('found = f"{fabric.num_ranks} ranks of {fabric.num_sms} SMs"')
                out.line(
                    'raise ValueError(f"this schedule is for {self.NUM_RANKS} ranks of {self.NUM_SMS} SMs, not {found}")'
                )
            out.line("fabric.agree(self.SCHEDULE)")
            out.line("self.fabric = fabric")
            for buffer in self._buffers(Memory.SYMMETRIC):
                out.line(f"self.{buffer.name} = fabric.symmetric({_tuple(buffer.shape)}, {TORCH[buffer.dtype]})")
            for buffer in self._buffers(Memory.LOCAL):
                out.line(
                    f"self.{buffer.name} = torch.empty({_tuple(buffer.shape)}, dtype={TORCH[buffer.dtype]}, device=fabric.device)"
                )
            if self.schedule.exchanges:
                out.line(f"self.signals = fabric.symmetric(({self.num_signals},), torch.int32)")
                out.line(
                    f"self.counts = torch.zeros({max(1, self.num_counts)}, dtype=torch.int32, device=fabric.device)"
                )
                if self.turns:
                    out.line("self.epoch = torch.ones(1, dtype=torch.int32, device=fabric.device)")
                    done = self.schedule.signal("done").first
                    first = f"[{done} : {done + 1}].fill_({self.schedule.num_ranks - 1})"
                    out.line(f"self.signals.local{first}  # peers have finished the call before the first one")
                else:
                    out.line("self.epoch = torch.zeros(1, dtype=torch.int32, device=fabric.device)")
            for launch in self.schedule.launches:
                if isinstance(launch, CopyProgram):
                    one = f'fabric.stream("{launch.stream}")'
                    each = (
                        f'[fabric.stream(f"{launch.stream}_{{step}}") for step in range({self.schedule.num_ranks - 1})]'
                    )
                    out.line(f"self.{launch.stream} = {each if launch.streams > 1 else one}")
            out.line("self.last = fabric.main()")
            with out.block("with fabric.loading():  # before any of them spins; all ranks meet at the end"):
                shapes = "for shape, dtype in self.INPUTS.values()"
                out.line(f"self(*[torch.empty(shape, dtype=dtype, device=fabric.device) {shapes}])")

    def _call(self, inputs: list[str]) -> None:
        out = self.out
        with out.block(f"def __call__(self, {', '.join(inputs)}):"):
            out.line(f"for name, tensor in zip(self.INPUTS, [{', '.join(inputs)}], strict=True):")
            out.line("    check_input(name, tensor, *self.INPUTS[name])")
            out.line("rank, main = self.fabric.rank, self.fabric.main()")
            out.line("main.after(self.last)  # a call on another stream must not overtake the last one")
            out.line("self.last = main")
            for buffer in self._buffers(Memory.OUTPUT):
                out.line(
                    f"{buffer.name} = torch.empty({_tuple(buffer.shape)}, dtype={TORCH[buffer.dtype]}, device=self.fabric.device)"
                )
            for launch in self.schedule.launches:
                if self.turns and isinstance(launch, CopyProgram) and not launch.after_source:
                    self._fork(launch)
            for launch in self.schedule.launches:
                self._launch(launch)
            out.line(f"return {', '.join(self.schedule.spec.outputs)}")

    def _launch(self, launch: Launch) -> None:
        match launch:
            case Begin():
                self.out.comment("next epoch, counts to 0, once every peer has finished the last call")
                self._begin()
            case Finish():
                self.out.comment("nothing of this call is read or written here any more: tell every peer")
                self._finish(launch)
            case Kernel():
                self._kernel(launch)
            case CopyProgram():
                found = self.schedule.exchange(launch.exchange)
                how = "whole parts" if found.chunks == 1 else f"{found.chunks} chunks a part"
                self.out.comment(
                    f"{found.transfer.value} {found.source} by copy engine, {how}; the epoch follows the data"
                )
                if launch.after_source:
                    self._fork(launch)
                self._copies(self.schedule.exchange(launch.exchange), launch)
            case Publish(exchange, copy_from):
                self.out.comment(f"peers may pull {self.schedule.exchange(exchange).source} now")
                self._publish(self.schedule.exchange(exchange), copy_from)
            case CopyOwn(exchange):
                found = self.schedule.exchange(exchange)
                own = "[rank]" if found.kind is Kind.SCATTER else ""
                self.out.line(f"main.copy({self._here(found.target)}[rank], {self._source(found)}{own})")
            case LibraryGemm():
                self._library_gemm(launch)
            case LibraryCollective(function, target, operand):
                self._collective(function, target, operand)

    def _finish(self, finish: Finish) -> None:
        for launch in self.schedule.launches:
            if isinstance(launch, CopyProgram):
                self._join(launch)
        done = self.schedule.signal("done").first
        if finish.turns:
            self._turn(done)
            return
        if finish.by_copy:
            with self.out.block(f"for step in range(1, {self.schedule.num_ranks}):"):
                self.out.line(f"slot = {_plus(done, 'rank')}")
                self.out.line(f"peer = (rank + step) % {self.schedule.num_ranks}")
                self.out.line("main.copy(self.signals.peers[peer][slot : slot + 1], self.epoch)")
            return
        arguments = ["finish_call", f"({self.schedule.num_ranks - 1},)", "self.epoch", "self.signals.pointers", "rank"]
        self.out.call(
            "main.launch(", [*arguments, f"DONE={done}", f"NUM_RANKS={self.schedule.num_ranks}", "num_warps=1"]
        )

    def _turn(self, done: int) -> None:
        block = 1 << max(0, self.num_counts - 1).bit_length()
        words = f"self.signals.local[{done}:]" if done else "self.signals.local"
        arguments = ["turn_call", f"({self.schedule.num_ranks},)", "self.epoch", "self.counts", words]
        arguments += [
            "self.signals.pointers",
            "rank",
            f"DONE={done}",
            f"NUM_COUNTS={self.num_counts}",
            f"BLOCK={block}",
        ]
        self.out.call("main.launch(", [*arguments, f"NUM_RANKS={self.schedule.num_ranks}", "num_warps=1"])

    def _fork(self, launch: CopyProgram) -> None:
        done = self.schedule.signal("done").first
        wait = f"wait_at_least(self.signals.local[{done} : {done + 1}], {self.schedule.num_ranks - 1})"
        lines = ["after(main)"]
        if launch.awaits_done:
            lines.append(f"{wait}  # every peer has finished the last call")
        if launch.streams > 1:
            self.out.line(f"for stream in self.{launch.stream}:")
            lines = [f"    stream.{line}" for line in lines]
        else:
            lines = [f"self.{launch.stream}.{line}" for line in lines]
        for line in lines:
            self.out.line(line)

    def _join(self, launch: CopyProgram) -> None:
        if launch.streams > 1:
            self.out.line(f"for stream in self.{launch.stream}:")
            self.out.line("    main.after(stream)")
        else:
            self.out.line(f"main.after(self.{launch.stream})")

    def _begin(self) -> None:
        done = self.schedule.signal("done").first
        block = 1 << max(0, self.num_counts - 1).bit_length()
        words = f"self.signals.local[{done}:]" if done else "self.signals.local"
        arguments = ["begin_call", "(1,)", "self.epoch", "self.counts", words, "rank"]
        sizes = [f"NUM_COUNTS={self.num_counts}", f"BLOCK={block}", f"NUM_RANKS={self.schedule.num_ranks}"]
        self.out.call("main.launch(", [*arguments, *sizes, "num_warps=1"])
        for launch in self.schedule.launches:
            if isinstance(launch, CopyProgram) and not launch.after_source:
                self._fork(launch)

    def _here(self, buffer: str) -> str:
        """Host expression of this rank's tensor."""
        match self.schedule.buffer(buffer).memory:
            case Memory.INPUT | Memory.OUTPUT:
                return buffer
            case Memory.LOCAL:
                return f"self.{buffer}"
            case Memory.SYMMETRIC:
                return f"self.{buffer}.local"

    def _source(self, exchange: Exchange) -> str:
        """Host expression of the source; parts of a SCATTER under a dimension of their own."""
        found = self.schedule.buffer(exchange.source)
        if exchange.kind is Kind.SCATTER and found.memory is Memory.INPUT:
            parts = (self.schedule.num_ranks, exchange.rows, *found.shape[1:])
            return f"{self._here(exchange.source)}.view{_tuple(parts)}"
        return self._here(exchange.source)

    def _matrix(self, buffer: str) -> str:
        """The tensor as a matrix, parts under each other."""
        found = self.schedule.buffer(buffer)
        flat = f".view(-1, {found.shape[-1]})" if len(found.shape) > 2 else ""
        return f"{self._here(buffer)}{flat}"

    def _kernel(self, kernel: Kernel) -> None:
        printed = self.kernels[kernel.name]
        arguments = [kernel.name, f"({kernel.programs},)"]
        arguments += [self._argument(printed, name) for name in printed.parameters]
        options = [f"num_warps={kernel.warps}", f"num_stages={kernel.stages}"]
        options += [f"per_sm={kernel.per_sm}"] if kernel.per_sm > 1 else []
        self.out.call("main.launch(", [*arguments, *options])

    def _argument(self, printed: PrintedKernel, name: str) -> str:
        words = {
            "epoch": "self.epoch",
            "counts": "self.counts",
            "signals": "self.signals.local",
            "signal_peers": "self.signals.pointers",
            "rank": "rank",
        }
        if name in printed.descriptors:
            buffer, block = printed.descriptors[name]
            return f"TensorDescriptor.from_tensor({self._matrix(buffer)}, [{', '.join(map(str, block))}])"
        if name.endswith("_ptr"):
            return self._here(name.removesuffix("_ptr"))
        if name.endswith("_peers") and name not in words:
            return f"self.{name.removesuffix('_peers')}.pointers"
        return words[name]

    def _slot(self, signal: str, exchange: Exchange, part: str) -> str:
        first = self.schedule.signal(signal).first
        place = f"{part} * {exchange.chunks} + chunk" if part != "0" else "chunk"
        if exchange.chunks == 1:
            place = part
        return _plus(first, place)

    @contextmanager
    def _transfers(self, exchange: Exchange, *, rows: bool) -> Iterator[None]:
        """Loops over (peer, chunk) in the order of the mover; `rows`: those of the chunk, if there are several."""
        peers = f"for step in range({self.schedule.num_ranks - 1}):"
        chunks = f"for chunk in range({exchange.chunks}):" if exchange.chunks > 1 else ""
        loops = (peers, chunks) if exchange.order.nest is Nest.RANK_MAJOR else (chunks, peers)
        with self.out.maybe(loops[0]), self.out.maybe(loops[1]):
            self.out.line(f"peer = {rank_at(exchange.order.ranks, 'step', on_host=True)}")
            if rows:
                self._rows(exchange)
            yield

    def _rows(self, exchange: Exchange) -> None:
        size = exchange.chunk_rows
        if exchange.chunks > 1:
            self.out.line(f"rows = slice(chunk * {size}, min((chunk + 1) * {size}, {exchange.rows}))")

    def _index(self, exchange: Exchange, part: str = "") -> str:
        """Index of the chunk in a tensor of parts, or in one part."""
        names = [part] if part else []
        names += ["rows"] if exchange.chunks > 1 else []
        return f"[{', '.join(names)}]" if names else ""

    def _copies(self, exchange: Exchange, launch: CopyProgram) -> None:
        out, push, scatter = self.out, exchange.transfer is Transfer.PUSH, exchange.kind is Kind.SCATTER
        stream = f"self.{launch.stream}" + ("[step]" if launch.streams > 1 else "")
        with self._transfers(exchange, rows=True):
            if push:
                if self.schedule.has_signal(f"{exchange.name}_count"):
                    self._stream_wait(exchange, stream, "peer" if scatter else "0")
                target = f"self.{exchange.target}.peers[peer]{self._index(exchange, 'rank')}"
                source = f"{self._source(exchange)}{self._index(exchange, 'peer' if scatter else '')}"
                out.line(f"{stream}.copy({target}, {source})")
                out.line(f"slot = {self._slot(f'{exchange.name}_arrived', exchange, 'rank')}")
                out.line(f"{stream}.copy(self.signals.peers[peer][slot : slot + 1], self.epoch)")
                return
            out.line(f"slot = {self._slot(f'{exchange.name}_ready', exchange, 'peer')}")
            out.line(f"{stream}.launch(wait_on_stream, (1,), self.signals.local[slot:], self.epoch, num_warps=1)")
            source = f"self.{exchange.source}.peers[peer]{self._index(exchange, 'rank' if scatter else '')}"
            out.line(f"{stream}.copy({self._here(exchange.target)}{self._index(exchange, 'peer')}, {source})")
            out.line(f"slot = {self._slot(f'{exchange.name}_arrived', exchange, 'peer')}")
            out.line(f"{stream}.write(self.counts[slot : slot + 1], 1)")

    def _stream_wait(self, exchange: Exchange, stream: str, part: str) -> None:
        tiles = source_arrivals(self.schedule, exchange)
        target = str(tiles[0]) if len(set(tiles)) == 1 else f"{_tuple(tuple(tiles))}[chunk]"
        self.out.line(f"slot = {self._slot(f'{exchange.name}_count', exchange, part)}")
        if self.schedule.machine.stream_waits:
            self.out.line(f"{stream}.wait_at_least(self.counts[slot : slot + 1], {target})")
        else:
            self.out.line(f"{stream}.launch(wait_count_on_stream, (1,), self.counts[slot:], {target}, num_warps=1)")

    def _publish(self, exchange: Exchange, copy_from: str) -> None:
        if copy_from:
            view = (
                f".view{_tuple(self.schedule.buffer(exchange.source).shape)}" if exchange.kind is Kind.SCATTER else ""
            )
            self.out.line(f"main.copy({self._here(exchange.source)}, {self._here(copy_from)}{view})")
        with self._transfers(exchange, rows=False):
            self.out.line(f"slot = {self._slot(f'{exchange.name}_ready', exchange, 'rank')}")
            self.out.line("main.copy(self.signals.peers[peer][slot : slot + 1], self.epoch)")

    def _library_gemm(self, gemm: LibraryGemm) -> None:
        out = self.out
        left, right = self._matrix(gemm.left.buffer), self._matrix(gemm.right.buffer)
        if not gemm.split:
            out.line(f"main.matmul({self._matrix(gemm.out.buffer)}, {left}, {right})")
            return
        exchange = self.schedule.exchange(gemm.split)
        parts = f"view({self.schedule.num_ranks}, {exchange.rows}, -1){self._index(exchange, 'part')}"
        with out.block(f"for step in range({self.schedule.num_ranks}):"):
            out.line(f"part = {rank_at(gemm.order, 'step', on_host=True)}")
            with out.maybe(f"for chunk in range({exchange.chunks}):" if exchange.chunks > 1 else ""):
                self._rows(exchange)
                if gemm.wait is not None:
                    self._part_wait(gemm.wait.signal, gemm.wait.target, exchange)
                source = f"{self._here(gemm.left.buffer)}.{parts}"
                if gemm.left.own:
                    own = f"{self._here(gemm.left.own)}{self._index(exchange)}"
                    source = f"{own} if part == rank else {source}"
                out.line(f"left = {source}")
                out.line(f"main.matmul({self._here(gemm.out.buffer)}.{parts}, left, {right})")
                if gemm.count:
                    out.line(f"slot = {self._slot(gemm.count, exchange, 'part')}")
                    out.line("main.write(self.counts[slot : slot + 1], 1)")

    def _part_wait(self, signal: str, target: int, exchange: Exchange) -> None:
        with self.out.block("if part != rank:"):
            self.out.line(f"slot = {self._slot(signal, exchange, 'part')}")
            if not target:
                self.out.line("main.launch(wait_on_stream, (1,), self.signals.local[slot:], self.epoch, num_warps=1)")
            elif self.schedule.machine.stream_waits:
                self.out.line(f"main.wait_at_least(self.counts[slot : slot + 1], {target})")
            else:
                self.out.line(f"main.launch(wait_count_on_stream, (1,), self.counts[slot:], {target}, num_warps=1)")

    def _collective(self, function: str, target: str, operand: str) -> None:
        if function == "all_reduce":
            if target != operand:
                self.out.line(f"main.copy({self._here(target)}, {self._here(operand)})")
            self.out.line(f"main.all_reduce({self._here(target)})")
            return
        rows = "main.all_gather" if function == "all_gather" else "main.reduce_scatter"
        self.out.line(f"{rows}({self._flat(target)}, {self._flat(operand)})")

    def _flat(self, buffer: str) -> str:
        """Parts along the first dimension, as library collectives want them."""
        found = self.schedule.buffer(buffer)
        return f"{self._here(buffer)}.flatten(0, 1)" if len(found.shape) > 2 else self._here(buffer)


def _plus(first: int, place: str) -> str:
    return f"{first} + {place}" if first else place


def _tuple(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
