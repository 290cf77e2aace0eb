"""Schedule -> the host class: allocate once, enqueue one call after the other."""

from __future__ import annotations

import re

from lowering.collectives import CollectivePrinter
from lowering.copies import CopyPrinter
from lowering.dialect import Dialect, Reach
from lowering.host.pool import Pool
from lowering.host_names import HostNames, chunk_index, chunk_rows, plus, shape_text
from lowering.kernels import Descriptor, PrintedKernel
from lowering.names import TORCH, class_name, place, places
from lowering.positions import rank_at
from lowering.source import Source
from lowering.words import SUFFIXES
from tilelink.ir.calls import LibraryCollective, LibraryGemm, WordCollective
from tilelink.ir.nodes import (
    AwaitPeers,
    BeforeKernel,
    Begin,
    Buffer,
    CopyOwn,
    CopyProgram,
    Exchange,
    Finish,
    Kernel,
    Kind,
    Launch,
    Memory,
    Publish,
    Scope,
)
from tilelink.ir.schedule import Schedule


class HostPrinter:
    """Prints the class of one schedule."""

    def __init__(self, schedule: Schedule, dialect: Dialect, kernels: tuple[PrintedKernel, ...]) -> None:
        self.schedule = schedule
        self.dialect = dialect
        self.kernels = {printed.kernel.name: printed for printed in kernels}
        self.out = Source()
        self._described: dict[Descriptor, str] = {}  # -> attribute that holds it
        self.names = HostNames(schedule)
        self.copies = CopyPrinter(schedule, dialect, self.names, self.out)
        self.num_counts = sum(s.slots for s in schedule.signals if s.scope is Scope.LOCAL)
        self.num_signals = sum(s.slots for s in schedule.signals if s.scope is not Scope.LOCAL)
        self.results = {b.name: b for b in schedule.buffers if b.memory in (Memory.OUTPUT, Memory.POOL)}
        self.pools = [buffer for buffer in self.results.values() if buffer.memory is Memory.POOL]
        self.collectives = CollectivePrinter(schedule, dialect, self.names, self.out)
        self.meets = any(isinstance(launch, Finish) and launch.meets for launch in schedule.launches)
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
        outputs = [self.schedule.spec.value(name) for name in self.schedule.spec.outputs]
        results = [f"{value.name} {list(value.local)} {value.dtype}" for value in outputs]
        self.out.line(
            f'"""`{", ".join(self.schedule.spec.outputs)} = op({", ".join(inputs)})` on every rank of the fabric.'
        )
        self.out.line()
        for line in (f"Takes {', '.join(shown)}.", f"Returns {', '.join(results)}."):
            self.out.line(line)
        placed = [value.name for value in outputs if value.name not in self.results]
        if placed:
            self.out.line(
                f"{', '.join(placed)} is the same memory in every call: read it before the next one, in stream order."
            )
        if self.pools:
            names = ", ".join(buffer.name for buffer in self.pools)
            self.out.line(
                f"{names} lies in symmetric memory, which is not written again while a tensor lies there. Where other"
            )
            self.out.line(
                "streams read it, keep it until this one has waited for them. Of results that are held at once all but"
            )
            self.out.line(f"{Pool.PLACES - 1} are copied out.")
        self.out.line(
            "All are contiguous. Calls follow each other on one stream or on several, eager or captured in a CUDA graph."
        )
        self.out.line('"""')
        self.out.line()
        self.out.line(
            f'SCHEDULE = "{self.schedule.hash}"  # ranks with different schedules would hang: compare before the first call'
        )
        entries = [f'"{b.name}": ({shape_text(b.shape)}, {TORCH[b.dtype]})' for b in self._buffers(Memory.INPUT)]
        self.out.call("INPUTS = {", entries, "}")
        machine = self.schedule.machine
        self.out.line(f"NUM_RANKS = {machine.num_ranks}")
        self.out.line(f"NUM_SMS = {machine.num_sms}  # all that spins at once fits on so many")
        self.out.line("ANY_STREAM = True  # calls may come from any stream")
        layouts = [found.layout for printed in self.kernels.values() for found in printed.descriptors.values()]
        for layout in dict.fromkeys(filter(None, layouts)):
            self.out.line(f"{_attribute(layout)} = {layout}  # how operands lie in shared memory")
        if not machine.peer_atomics:
            self.out.line("PEER_ATOMICS = False  # the links need none")
        self.out.line()

    def _buffers(self, memory: Memory) -> list[Buffer]:
        return [buffer for buffer in self.schedule.buffers if buffer.memory is memory]

    def _init(self) -> None:
        out, word = self.out, self.dialect.word
        with out.block("def __init__(self, fabric):"):
            with out.block("if fabric.num_ranks != self.NUM_RANKS or fabric.num_sms < self.NUM_SMS:"):
                out.line('found = f"{fabric.num_ranks} ranks of {fabric.num_sms} SMs"')
                out.line(
                    'raise ValueError(f"this schedule is for {self.NUM_RANKS} ranks of {self.NUM_SMS} SMs, not {found}")'
                )
            out.line("fabric.agree(self.SCHEDULE)")
            out.line("self.fabric = fabric")
            for buffer in self._buffers(Memory.SYMMETRIC):
                out.line(f"self.{buffer.name} = fabric.symmetric({shape_text(buffer.shape)}, {TORCH[buffer.dtype]})")
            for buffer in self.pools:
                self._pool(buffer)
            for buffer in self._buffers(Memory.LOCAL):
                like = f"{shape_text(buffer.shape)}, dtype={TORCH[buffer.dtype]}, device=fabric.device"
                out.line(f"self.{buffer.name} = torch.empty({like})")
            if self.schedule.exchanges:
                out.line(f"self.signals = fabric.symmetric(({self.num_signals},), {word})")
                out.line(f"self.counts = torch.zeros({max(1, self.num_counts)}, dtype={word}, device=fabric.device)")
                epoch = "ones" if self.turns else "zeros"
                out.line(f"self.epoch = torch.{epoch}(1, dtype={word}, device=fabric.device)")
                if self.turns and not self.meets:
                    done = self.schedule.signal("done").first
                    first = f"[{done} : {done + 1}].fill_({self.schedule.num_ranks - 1})"
                    out.line(f"self.signals.local{first}  # peers have finished the call before the first one")
            self.collectives.prepare()
            self._describe()
            copies = [launch for launch in self.schedule.launches if isinstance(launch, CopyProgram)]
            if copies:
                out.line("rank = fabric.rank")
            for launch in copies:
                self.copies.prepare(launch)
            out.line("self.last = fabric.main()")
            with out.block("with fabric.loading():  # before any of them spins; all ranks meet at the end"):
                shapes = "for shape, dtype in self.INPUTS.values()"
                out.line(f"self(*[torch.empty(shape, dtype=dtype, device=fabric.device) {shapes}])")

    def _call(self, inputs: list[str]) -> None:
        out = self.out
        with out.block(f"def __call__(self, {', '.join(inputs)}):"):
            for name in inputs:
                out.line(f'check_input("{name}", {name}, *self.INPUTS["{name}"])')
            out.line("main = self.fabric.main()")
            out.line("main.after(self.last)  # a call on another stream must not overtake the last one")
            out.line("self.last = main")
            fresh = [name for name in self.schedule.spec.outputs if name in self.results]
            for name in fresh:
                out.line(f"{name} = {self._taken(self.results[name])}")
            tensors = ", ".join(["main", *inputs, *fresh])
            collective = any(isinstance(launch, LibraryCollective) for launch in self.schedule.launches)
            out.line(f"self.enqueue({tensors})" if collective else f"self.fabric.run(self.enqueue, {tensors})")
            for buffer in self.pools:
                out.line(f"{buffer.name} = self.{buffer.name}.give(main, {buffer.name})")
            results = [name if name in fresh else self._placed(name) for name in self.schedule.spec.outputs]
            out.line(f"return {', '.join(results)}")
        out.line()
        with out.block(f"def enqueue(self, {tensors}):"):
            out.line('"""Everything that a call does, in order."""')
            out.line("rank = self.fabric.rank")
            for buffer in self.pools:
                out.line(f"{place(buffer.name)} = self.{buffer.name}.place_of({buffer.name})")
            for launch in self.schedule.launches:
                if self.turns and isinstance(launch, CopyProgram) and not launch.after_source:
                    self.copies.fork(launch)
            for launch in self.schedule.launches:
                self._launch(launch)

    def _pool(self, buffer: Buffer) -> None:
        """A pool, and the addresses of its places: here and at peers, or here if peers are reached through them."""
        self.out.line(f"self.{buffer.name} = Pool(fabric, {shape_text(buffer.shape)}, {TORCH[buffer.dtype]})")
        name, found = f"self.{places(buffer.name)}", f"self.{buffer.name}.places"
        if self.dialect.reach is Reach.TABLE:
            self.out.line(f"{name} = torch.cat([place.pointers for place in {found}])")
            return
        here = f"[place.local.data_ptr() for place in {found}]"
        self.out.line(f"{name} = torch.tensor({here}, dtype=torch.int64, device=fabric.device)")

    def _taken(self, buffer: Buffer) -> str:
        """Memory for an output of this call."""
        shape = shape_text(self.schedule.spec.value(buffer.name).local)
        if buffer.memory is Memory.POOL:
            return f"self.{buffer.name}.take(main, {shape})"
        return f"torch.empty({shape}, dtype={TORCH[buffer.dtype]}, device=self.fabric.device)"

    def _placed(self, name: str) -> str:
        """An output that is put together in symmetric memory, in the caller's shape."""
        return f"self.{name}.local.view{shape_text(self.schedule.spec.value(name).local)}"

    def _launch(self, launch: Launch) -> None:
        match launch:
            case _ if isinstance(launch, BeforeKernel) and launch.within:
                pass  # programs of the kernel beside it do it
            case Finish() if launch.within:
                if self.schedule.has_signal("copied"):
                    self.out.comment(
                        "the last program of the kernel ends the call: it waits for the copies and tells every peer"
                    )
                self._join()
            case AwaitPeers():
                self.out.comment("every peer has finished the last call: what it reads may be overwritten")
                self._await_peers()
            case Begin():
                self.out.comment("next epoch, counts to 0, once every peer has finished the last call")
                self._begin()
            case Finish():
                self.out.comment("nothing of this call is read or written here any more: tell every peer")
                self._finish(launch)
            case Kernel() if launch.joined:
                pass  # programs of the kernel before go on with it
            case Kernel():
                self._kernel(launch)
            case CopyProgram():
                found = self.schedule.exchange(launch.exchange)
                how = "whole parts" if found.chunks == 1 else f"{found.chunks} chunks a part"
                self.out.comment(
                    f"{found.transfer.value} {found.source} by copy engine, {how}; the epoch follows the data"
                )
                if launch.after_source:
                    self.copies.fork(launch)
                self.copies.enqueue(launch)
            case Publish(exchange=exchange, copy_from=copy_from):
                self.out.comment(f"peers may pull {self.schedule.exchange(exchange).source} now")
                self.copies.publish(self.schedule.exchange(exchange), copy_from)
            case CopyOwn(exchange):
                found = self.schedule.exchange(exchange)
                own = "[rank]" if found.kind is Kind.SCATTER else ""
                self.out.line(f"main.copy({self.names.here(found.target)}[rank], {self.names.source(found)}{own})")
            case LibraryGemm():
                self._library_gemm(launch)
            case LibraryCollective():
                self.collectives.by_library(launch)
            case WordCollective():
                self.collectives.by_words(launch)

    def _await_peers(self) -> None:
        done, peers = self.schedule.signal("done").first, self.schedule.num_ranks - 1
        if self.schedule.machine.stream_waits:
            self.out.line(f"main.{self.dialect.stream_wait}(self.signals.local[{done} : {done + 1}], {peers})")
        else:
            self.out.line(f"main.launch(wait_count_on_stream, (1,), self.signals.local[{done}:], {peers}, num_warps=1)")

    def _join(self) -> None:
        for launch in self.schedule.launches:
            if isinstance(launch, CopyProgram):
                self.copies.join(launch)

    def _finish(self, finish: Finish) -> None:
        self._join()
        done = self.schedule.signal("done").first
        if finish.turns:
            self._turn(done)
            return
        if finish.by_copy:
            with self.out.block(f"for step in range(1, {self.schedule.num_ranks}):"):
                self.out.line(f"slot = {plus(done, 'rank')}")
                self.out.line(f"peer = (rank + step) % {self.schedule.num_ranks}")
                self.out.line("main.copy(self.signals.peers[peer][slot : slot + 1], self.epoch)")
            return
        arguments = [
            "finish_call",
            f"({self.schedule.num_ranks - 1},)",
            "self.epoch",
            self.dialect.peers_argument("signals"),
        ]
        sizes = [f"DONE={done}", f"NUM_RANKS={self.schedule.num_ranks}", "num_warps=1"]
        self.out.call("main.launch(", [*arguments, "rank", *sizes])

    def _turn(self, done: int) -> None:
        block = 1 << max(0, self.num_counts - 1).bit_length()
        words = f"self.signals.local[{done}:]" if done else "self.signals.local"
        arguments = ["turn_call", f"({self.schedule.num_ranks},)", "self.epoch", "self.counts", words]
        arguments += [
            self.dialect.peers_argument("signals"),
            "rank",
            f"DONE={done}",
            f"NUM_COUNTS={self.num_counts}",
            f"BLOCK={block}",
            f"NUM_RANKS={self.schedule.num_ranks}",
            f"MEETS={self.meets}",
        ]
        self.out.call("main.launch(", [*arguments, "num_warps=1"])

    def _begin(self) -> None:
        done = self.schedule.signal("done").first
        block = 1 << max(0, self.num_counts - 1).bit_length()
        words = f"self.signals.local[{done}:]" if done else "self.signals.local"
        arguments = ["begin_call", "(1,)", "self.epoch", "self.counts", words, "rank"]
        sizes = [f"NUM_COUNTS={self.num_counts}", f"BLOCK={block}", f"NUM_RANKS={self.schedule.num_ranks}"]
        self.out.call("main.launch(", [*arguments, *sizes, "num_warps=1"])
        for launch in self.schedule.launches:
            if isinstance(launch, CopyProgram) and not launch.after_source:
                self.copies.fork(launch)

    def _kernel(self, kernel: Kernel) -> None:
        printed = self.kernels[kernel.name]
        arguments = [kernel.name, f"({self.schedule.grid(kernel)},)"]
        arguments += [self._argument(printed, name) for name in printed.parameters]
        options = [f"num_warps={kernel.warps}", f"num_stages={kernel.stages}"]
        options += [f"per_sm={kernel.per_sm}"] if kernel.per_sm > 1 else []
        options += [self.dialect.launch_options] if self.dialect.launch_options else []
        self.out.call("main.launch(", [*arguments, *options])

    def _descriptor(self, found: Descriptor) -> str:
        matrix = self.names.matrix(found.buffer)
        if found.peer >= 0:
            place = f".places[{found.place}]" if found.place >= 0 else ""
            matrix = f"self.{found.buffer}{place}.peers[{found.peer}][fabric.rank]"
        arguments = f"{matrix}, [{', '.join(map(str, found.block))}]"
        if found.layout:
            return f"SharedDescriptor.from_tensor({arguments}, self.{_attribute(found.layout)})"
        return f"TensorDescriptor.from_tensor({arguments})"

    def _describe(self) -> None:
        """Descriptors of the operator's own buffers, made once."""
        for printed in self.kernels.values():
            for name, found in printed.descriptors.items():
                own = self.schedule.buffer(found.buffer).memory in (Memory.LOCAL, Memory.SYMMETRIC)
                if (own or found.peer >= 0) and found not in self._described:
                    taken = f"self.{name}" in self._described.values()
                    attribute = f"self.{name}_{'x'.join(map(str, found.block))}" if taken else f"self.{name}"
                    self._described[found] = attribute
                    self.out.line(f"{attribute} = {self._descriptor(found)}")

    def _argument(self, printed: PrintedKernel, name: str) -> str:
        words = {
            "epoch": "self.epoch",
            "counts": "self.counts",
            "signals": "self.signals.local",
            "signal_peers": "self.signals.pointers",
            "rank": "rank",
        }
        if name.endswith(SUFFIXES):
            return self.collectives.argument(name)
        if name in printed.descriptors:
            return self._described.get(printed.descriptors[name]) or self._descriptor(printed.descriptors[name])
        if name.endswith("_place"):
            return name
        if name.endswith("_places"):
            return f"self.{name}"
        if name.endswith("_ptr"):
            return self.names.here(name.removesuffix("_ptr"))
        if name.endswith("_peers") and name not in words:
            return f"self.{name.removesuffix('_peers')}.pointers"
        return words[name]

    def _library_gemm(self, gemm: LibraryGemm) -> None:
        out = self.out
        left, right = (self.names.operand(operand) for operand in (gemm.left, gemm.right))
        right += ".t()" if gemm.transposed else ""
        if not gemm.split:
            out.line(f"main.matmul({self.names.matrix(gemm.out.buffer)}, {left}, {right})")
            return
        exchange = self.schedule.exchange(gemm.split)
        parts = f"view({self.schedule.num_ranks}, {exchange.rows}, -1){chunk_index(exchange, 'part')}"
        with out.block(f"for step in range({self.schedule.num_ranks}):"):
            out.line(f"part = {rank_at(gemm.order, 'step', on_host=True)}")
            with out.maybe(f"for chunk in range({exchange.chunks}):" if exchange.chunks > 1 else ""):
                if exchange.chunks > 1:
                    self.out.line(chunk_rows(exchange))
                if gemm.wait is not None:
                    self._part_wait(gemm.wait.signal, gemm.wait.target, exchange)
                source = f"{self.names.here(gemm.left.buffer)}.{parts}"
                if gemm.left.own:
                    own = f"{self.names.here(gemm.left.own)}{chunk_index(exchange)}"
                    source = f"{own} if part == rank else {source}"
                out.line(f"left = {source}")
                out.line(f"main.matmul({self.names.here(gemm.out.buffer)}.{parts}, left, {right})")
                if gemm.count:
                    out.line(f"slot = {self.names.slot(gemm.count, exchange, 'part')}")
                    out.line("main.write(self.counts[slot : slot + 1], 1)")

    def _part_wait(self, signal: str, target: int, exchange: Exchange) -> None:
        with self.out.block("if part != rank:"):
            self.out.line(f"slot = {self.names.slot(signal, exchange, 'part')}")
            if not target:
                self.out.line("main.launch(wait_on_stream, (1,), self.signals.local[slot:], self.epoch, num_warps=1)")
            elif self.schedule.machine.stream_waits:
                self.out.line(f"main.{self.dialect.stream_wait}(self.counts[slot : slot + 1], {target})")
            else:
                self.out.line(f"main.launch(wait_count_on_stream, (1,), self.counts[slot:], {target}, num_warps=1)")


def _attribute(layout: str) -> str:
    """Name of a layout of shared memory, by the bytes that it permutes and the bits of an element."""
    return "_".join(["SWIZZLED", *re.findall(r"\d+", layout)])
