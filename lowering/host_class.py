"""Schedule -> the host class: allocate once, enqueue one call after the other."""

from __future__ import annotations

import re

from lowering.collectives import CollectivePrinter
from lowering.constants import on_host
from lowering.copies import CopyPrinter
from lowering.dialect import Dialect, Reach
from lowering.host_doc import print_doc
from lowering.host_names import HostNames, chunk_index, shape_text
from lowering.kernels import Descriptor, PrintedKernel
from lowering.names import TORCH, class_name, place, places
from lowering.numbers import Numbers
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

    def __init__(
        self, schedule: Schedule, dialect: Dialect, numbers: Numbers, kernels: tuple[PrintedKernel, ...]
    ) -> None:
        self.schedule = schedule
        self.dialect = dialect
        self.kernels = {printed.kernel.name: printed for printed in kernels}
        self.out = Source()
        self._described: dict[Descriptor, str] = {}  # -> attribute that holds it
        self.numbers = numbers
        self.names = HostNames(schedule, numbers)
        self.copies = CopyPrinter(schedule, dialect, self.names, self.out)
        self.num_counts = sum(s.slots for s in schedule.signals if s.scope is Scope.LOCAL)
        self.results = {b.name: b for b in schedule.buffers if b.memory in (Memory.OUTPUT, Memory.POOL)}
        self.pools = [buffer for buffer in self.results.values() if buffer.memory is Memory.POOL]
        self.collectives = CollectivePrinter(schedule, dialect, self.names, self.out)
        self.meets = any(isinstance(launch, Finish) and launch.meets for launch in schedule.launches)
        self.turns = any(isinstance(launch, Finish) and launch.turns for launch in schedule.launches)

    def text(self) -> str:
        inputs = [value.name for value in self.schedule.spec.inputs]
        with self.out.block(f"class {class_name(self.schedule.name)}:"):
            print_doc(self.out, self.schedule)
            self.out.line()
            self._constants()
            self._init()
            self.out.line()
            self._call(inputs)
        return self.out.text()

    def _constants(self) -> None:
        """Class attributes, for whoever builds the operator."""
        self.out.line(f'SCHEDULE = "{self.schedule.hash}"  # compared between ranks: different schedules would hang')
        entries = [f'"{b.name}": ({shape_text(b.shape)}, {TORCH[b.dtype]})' for b in self._buffers(Memory.INPUT)]
        self.out.call("INPUTS = {", entries, "}")
        machine = self.schedule.machine
        self.out.line(f"NUM_RANKS = {machine.num_ranks}")
        self.out.line(f"NUM_SMS = {machine.num_sms}  # all spinning programs fit on so many SMs at once")
        self.out.line("ANY_STREAM = True  # calls may come from any stream")
        layouts = [found.layout for printed in self.kernels.values() for found in printed.descriptors.values()]
        for layout in dict.fromkeys(filter(None, layouts)):
            self.out.line(f"{_attribute(layout)} = {layout}  # layout of operands in shared memory")
        if not machine.peer_atomics:
            self.out.line("PEER_ATOMICS = False  # the links need no remote atomics")
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
                signals = on_host(self.numbers.num_words(local=False))
                out.line(f"self.signals = fabric.symmetric(({signals},), {word})")
                counts = on_host(self.numbers.num_words(local=True)) if self.num_counts else "1"
                out.line(f"self.counts = torch.zeros({counts}, dtype={word}, device=fabric.device)")
                epoch = "ones" if self.turns else "zeros"
                out.line(f"self.epoch = torch.{epoch}(1, dtype={word}, device=fabric.device)")
                if self.turns and not self.meets:
                    out.comment("no call before the first one: all peers count as finished")
                    out.line(f"{self.names.word('done')}.fill_({self.names.ranks} - 1)")
            self.collectives.prepare()
            self._describe()
            copies = [launch for launch in self.schedule.launches if isinstance(launch, CopyProgram)]
            if copies:
                out.line("rank = fabric.rank")
            for launch in copies:
                self.copies.prepare(launch)
            out.line("self.last = fabric.main()")
            with out.block("with fabric.loading():  # kernels are loaded before one of them spins"):
                shapes = "for shape, dtype in self.INPUTS.values()"
                out.line(f"self(*[torch.empty(shape, dtype=dtype, device=fabric.device) {shapes}])")

    def _call(self, inputs: list[str]) -> None:
        out = self.out
        out.line("@opaque")
        with out.block(f"def __call__(self, {', '.join(inputs)}):"):
            for name in inputs:
                out.line(f'check_input("{name}", {name}, *self.INPUTS["{name}"])')
            out.line("main = self.fabric.main()")
            out.line("main.after(self.last)  # calls on other streams stay in order")
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
            out.line('"""All launches, copies and waits of a call, in order."""')
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
                        "the last program of the kernel ends the call: it waits for the copies and signals to every peer"
                    )
                self._join()
            case AwaitPeers():
                self.out.comment("every peer has finished the last call: its inputs may be overwritten")
                self._await_peers()
            case Begin():
                self.out.comment(
                    "wait until every peer has finished the last call; advance the epoch, clear the counts"
                )
                self._begin()
            case Finish():
                self.out.comment("this rank has finished the call: signal to every peer")
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
        peers = f"{self.names.ranks} - 1"
        if self.schedule.machine.stream_waits:
            self.out.line(f"main.{self.dialect.stream_wait}({self.names.word('done')}, {peers})")
        else:
            words = self.names.words("done")
            self.out.line(f"main.launch(wait_count_on_stream, (1,), {words}, {peers}, num_warps=1)")

    def _join(self) -> None:
        for launch in self.schedule.launches:
            if isinstance(launch, CopyProgram):
                self.copies.join(launch)

    def _finish(self, finish: Finish) -> None:
        self._join()
        done, ranks = self.schedule.signal("done"), self.names.ranks
        if finish.turns:
            self._turn()
            return
        if finish.by_copy:
            with self.out.block(f"for step in range(1, {ranks}):"):
                self.out.line(f"slot = {self.names.behind(done, 'rank')}")
                self.out.line(f"peer = (rank + step) % {ranks}")
                self.out.line("main.copy(self.signals.peers[peer][slot : slot + 1], self.epoch)")
            return
        arguments = [
            "finish_call",
            f"({ranks} - 1,)",
            "self.epoch",
            self.dialect.peers_argument("signals"),
        ]
        sizes = [f"DONE={on_host(self.numbers.word(done))}", f"NUM_RANKS={ranks}", "num_warps=1"]
        self.out.call("main.launch(", [*arguments, "rank", *sizes])

    def _counts(self) -> list[str]:
        """The numbers of counts, for kernels that set them to 0."""
        block = self.numbers.counts_block(1 << max(0, self.num_counts - 1).bit_length())
        return [f"NUM_COUNTS={on_host(self.numbers.num_words(local=True))}", f"BLOCK={on_host(block)}"]

    def _turn(self) -> None:
        done = on_host(self.numbers.word(self.schedule.signal("done")))
        arguments = ["turn_call", f"({self.names.ranks},)", "self.epoch", "self.counts", self.names.words("done")]
        arguments += [
            self.dialect.peers_argument("signals"),
            "rank",
            f"DONE={done}",
            *self._counts(),
            f"NUM_RANKS={self.names.ranks}",
            f"MEETS={self.meets}",
        ]
        self.out.call("main.launch(", [*arguments, "num_warps=1"])

    def _begin(self) -> None:
        arguments = ["begin_call", "(1,)", "self.epoch", "self.counts", self.names.words("done"), "rank"]
        arguments += [*self._counts(), f"NUM_RANKS={self.names.ranks}"]
        self.out.call("main.launch(", [*arguments, "num_warps=1"])
        for launch in self.schedule.launches:
            if isinstance(launch, CopyProgram) and not launch.after_source:
                self.copies.fork(launch)

    def _kernel(self, kernel: Kernel) -> None:
        printed = self.kernels[kernel.name]
        arguments = [kernel.name, f"({on_host(self.numbers.grid(kernel))},)"]
        arguments += [self._argument(printed, name) for name in printed.parameters]
        stages = str(kernel.stages)
        if printed.gluon and kernel.compute is not None:
            stages = on_host(self.numbers.stages(kernel.compute, kernel.stages))
        options = [f"num_warps={kernel.warps}", f"num_stages={stages}"]
        options += [f"per_sm={kernel.per_sm}"] if kernel.per_sm > 1 else []
        options += [self.dialect.launch_options] if self.dialect.launch_options else []
        self.out.call("main.launch(", [*arguments, *options])

    def _descriptor(self, found: Descriptor) -> tuple[str, list[str]]:
        """The call that makes a descriptor: its head and its arguments."""
        matrix = self.names.matrix(found.buffer)
        if found.peer >= 0:
            place = f".places[{found.place}]" if found.place >= 0 else ""
            matrix = f"self.{found.buffer}{place}.peers[{found.peer}][fabric.rank]"
        arguments = [matrix, f"[{', '.join(map(on_host, found.sizes))}]"]
        if found.layout:
            return "SharedDescriptor.from_tensor(", [*arguments, f"self.{_attribute(found.layout)}"]
        return "TensorDescriptor.from_tensor(", arguments

    def _describe(self) -> None:
        """Descriptors of the operator's own buffers, made once."""
        for printed in self.kernels.values():
            for name, found in printed.descriptors.items():
                own = self.schedule.buffer(found.buffer).memory in (Memory.LOCAL, Memory.SYMMETRIC)
                if (own or found.peer >= 0) and found not in self._described:
                    taken = f"self.{name}" in self._described.values()
                    attribute = f"self.{name}_{'x'.join(map(str, found.block))}" if taken else f"self.{name}"
                    self._described[found] = attribute
                    head, arguments = self._descriptor(found)
                    self.out.call(f"{attribute} = {head}", arguments)

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
            head, arguments = self._descriptor(printed.descriptors[name])
            return self._described.get(printed.descriptors[name]) or f"{head}{', '.join(arguments)})"
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
        ranks, rows = self.names.ranks, self.names.chunk_rows(exchange)
        parts = f"view({ranks}, {on_host(self.numbers.rows(exchange))}, -1){chunk_index(exchange, 'part')}"
        with out.block(f"for step in range({ranks}):"):
            out.line(f"part = {rank_at(gemm.order, 'step', ranks, on_host=True)}")
            with out.maybe(self.names.each_chunk(exchange)):
                self.out.lines(rows)
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
