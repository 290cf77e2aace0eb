"""Collectives that one call carries out -> host code: calls of the library, and launches of kernels that send words."""

from __future__ import annotations

from lowering.constants import Group, on_host
from lowering.dialect import Dialect
from lowering.host_names import HostNames
from lowering.names import TRITON, element_bytes
from lowering.source import Source
from lowering.words import collective_sizes, words_of_tile
from tilelink.ir.calls import LibraryCollective, WordCollective
from tilelink.ir.nodes import ComputeRole, Kernel
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import SumWords


class CollectivePrinter:
    """Prints into the class of one schedule."""

    def __init__(self, schedule: Schedule, dialect: Dialect, names: HostNames, out: Source) -> None:
        self.schedule = schedule
        self.dialect = dialect
        self.names = names
        self.out = out

    def prepare(self) -> None:
        """Two sets of words for what travels in words, and for each program that sends them the number of its last call."""
        for launch in self.schedule.launches:
            if isinstance(launch, WordCollective):
                numbers, name = self.names.numbers, launch.out
                collective_sizes(numbers, launch)
                words, block = (f"{name}_{what}".upper() for what in ("WORDS", "BLOCK"))
                text = f"({words} + {block} - 1) // {block} * {block}"
                places = numbers.name(
                    f"{name}_PLACES", launch.places, f"packets of {name} from one rank", Group.WORDS, text
                )
                self._words(name, launch.shots, on_host(places), self._programs(launch))
                if launch.within:
                    count = f"torch.zeros(1, dtype={self.dialect.word}, device=fabric.device)"
                    self.out.line(
                        f"self.{launch.out}_gathered = {count}  # programs that have finished, over all calls"
                    )
            if isinstance(launch, Kernel) and launch.compute is not None:
                for step in launch.compute.body:
                    if isinstance(step, SumWords):
                        places = self._places_of_tiles(launch.compute, step)
                        programs = on_host(self.names.numbers.programs(launch.compute))
                        self._words(step.result, step.shots, places, programs)

    def _places_of_tiles(self, role: ComputeRole, step: SumWords) -> str:
        numbers, each = self.names.numbers, words_of_tile(self.schedule, role, step)
        sizes = " * ".join(numbers.tile(role, role.axis(axis)) for axis in step.index)
        width = element_bytes(self.schedule.buffer(step.result).dtype)
        text = f"{numbers.num_tiles(role)} * ({sizes} * {width} // {step.protocol.data_bytes})"
        why = f"packets of {step.result} from one rank, of {step.protocol.data_bytes} bytes of data each"
        return on_host(numbers.name(f"{step.result}_PLACES", role.num_tiles * each, why, Group.WORDS, text))

    def _programs(self, launch: WordCollective) -> str:
        why = f"programs that send {launch.out}"
        return on_host(self.names.numbers.name(f"{launch.out}_SENDERS", launch.programs, why, Group.SIZES))

    def _words(self, name: str, shots: int, places: str, programs: str) -> None:
        """Of each sender, in each shot; empty as memory is that nobody has written to."""
        senders = self.names.ranks if shots == 1 else f"{shots} * {self.names.ranks}"
        self.out.line(f"self.{name}_words = fabric.symmetric((2, {senders}, {places}), torch.int64)")
        calls = f"torch.zeros({programs}, dtype={self.dialect.word}, device=fabric.device)"
        self.out.line(f"self.{name}_calls = {calls}")

    def argument(self, parameter: str) -> str:
        """What the host passes for a parameter of a kernel that has to do with words."""
        for launch in self.schedule.launches:
            if isinstance(launch, WordCollective) and parameter in (f"{launch.out}_source_data", f"{launch.out}_data"):
                return self._data(launch, launch.operand if parameter.endswith("_source_data") else launch.out)
        if parameter.endswith("_peers"):
            return self.dialect.peers_argument(parameter.removesuffix("_peers"))
        return f"self.{parameter}.local" if parameter.endswith("_words") else f"self.{parameter}"

    def _data(self, launch: WordCollective, buffer: str) -> str:
        """A buffer as the data of words."""
        return f"{self.names.here(buffer)}.view(-1).view(torch.int{8 * launch.protocol.data_bytes})"

    def by_library(self, launch: LibraryCollective) -> None:
        if launch.function == "all_reduce":
            out, operand = self.names.here(launch.out), self.names.here(launch.operand)
            if out != operand:
                self.out.line(f"main.copy({out}, {operand})")
            self.out.line(f"main.all_reduce({out})")
            return
        flat = [self.names.flat(name) for name in (launch.out, launch.operand)]
        self.out.line(f"main.{launch.function}({', '.join(flat)})")

    def by_words(self, launch: WordCollective) -> None:
        gather = launch.function == "all_gather"
        arguments = ["words_gather" if gather else "words_reduce", f"({self._programs(launch)},)"]
        arguments += [self._data(launch, name) for name in (launch.operand, launch.out)]
        arguments += [self.argument(f"{launch.out}_{what}") for what in ("words", "words_peers", "calls")]
        arguments.append("rank")
        sizes = collective_sizes(self.names.numbers, launch, ".value")
        if not gather:
            sizes.append(f"DTYPE={TRITON[self.schedule.buffer(launch.out).dtype]}")
            sizes.append(f"SCATTER={launch.function == 'reduce_scatter' or launch.shots > 1}")
            sizes.append(f"GATHER={launch.shots > 1}")
        # a thread a word, so that a warp stores to a peer in one piece
        options = [f"num_warps={max(1, launch.block // self.dialect.warp_threads)}"]
        options += [f"per_sm={launch.per_sm}"] if launch.per_sm > 1 else []
        options += [self.dialect.launch_options] if self.dialect.launch_options else []
        self.out.comment(f"{launch.function} in {launch.protocol.value} packets: data that carries its own arrival")
        self.out.call("main.launch(", [*arguments, *sizes, *options])
