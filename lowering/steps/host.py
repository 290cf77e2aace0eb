"""A schedule's host class: it allocates once, and enqueues one call after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lowering.dialect import Reach
from lowering.names import class_name
from lowering.source import Source
from lowering.steps.closing import MAIN
from lowering.steps.descriptors import Described, layout_attribute
from lowering.steps.dtypes import element, stored
from lowering.steps.frame import Frame
from lowering.steps.indices import HostSpelling, Scope
from lowering.steps.kernel import Kernel
from lowering.steps.routing import ids_checked
from lowering.steps.streams import ARGUMENTS, COLLECTIVES, HostRole, tensor_of
from tilelink.ir.placement import share
from tilelink.schedule.index import replaced
from tilelink.schedule.memory import Buffer, Memory, Table
from tilelink.schedule.roles import Launch, Network, Sms
from tilelink.schedule.steps import Call
from tilelink.schedule.walk import all_steps, multicasts


@dataclass(frozen=True)
class Around:
    """What a file has beside the schedule: its head, the docstring of the host class, what ranks compare, the text of its
    self-check, and the results in the order and in the shapes of the caller. `stream_waits`: streams of the machine can wait
    for a word of memory; `peer_atomics`: every link carries atomics. `matrices`: inputs of which the last ranks have fewer parts
    along the first dimension, with how many all ranks have. `arguments`: shapes in which the caller has inputs, where these are
    others than those of the schedule; `order`: of all inputs."""

    head: str
    doc: str
    digest: str
    main: str
    results: Mapping[str, tuple[int, ...]]
    stream_waits: bool = True
    peer_atomics: bool = True
    matrices: Mapping[str, int] = field(default_factory=dict)
    arguments: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    order: tuple[str, ...] = ()


class HostClass:
    """`kernels` and `host_roles`: of each launch, in order. `end`: the kernel that ends a call, if none of them does."""

    def __init__(
        self,
        frame: Frame,
        kernels: list[Kernel | None],
        host_roles: list[list[HostRole]],
        end: Kernel | None,
        around: Around,
    ) -> None:
        self.around = around
        self.frame, self.schedule, self.words = frame, frame.schedule, frame.words
        self.kernels, self.host_roles, self.end = kernels, host_roles, end
        self.out = Source()
        self.described = dict[Described, str]()  # -> attribute that holds it
        self.spell = HostSpelling(Scope(frame.schedule), frame.constants)
        self.buffers = {buffer.name: buffer for buffer in self.schedule.buffers}
        self.sides = [one for one in dict.fromkeys(launch.stream for launch in self.schedule.launches) if one != MAIN]
        self.launched: Counter[str] = Counter()  # by stream
        self.joined: dict[tuple[str, str], int] = {}  # how many launches of the second stream the first one is behind
        given = [*self._of(Memory.INPUT), *(table.name for table in self._tables(Memory.INPUT))]
        self.inputs = sorted(given, key=lambda name: around.order.index(name) if name in around.order else len(given))
        self.pools = [buffer for buffer in self.schedule.buffers if buffer.places]
        self.fresh = [*self._of(Memory.OUTPUT), *(buffer.name for buffer in self.pools)]

    def _of(self, memory: Memory) -> list[str]:
        return [buffer.name for buffer in self.schedule.buffers if buffer.memory is memory]

    def _tables(self, memory: Memory) -> list[Table]:
        return [table for table in self.schedule.tables if table.memory is memory]

    def text(self) -> str:
        out = self.out
        with out.block(f"class {class_name(self.schedule.name)}:"):
            out.lines(self.around.doc.rstrip())
            out.line()
            self._constants()
            out.line()
            self._init()
            out.line()
            self._call()
            out.line()
            self._enqueue()
            checks = ids_checked(self.schedule)
            if checks:
                out.line()
                with out.block("def check(self):"):
                    out.line(
                        '"""Waits for all calls so far. Raises IllegalIds for ids that are no expert\'s, and not -1."""'
                    )
                    for line in checks:
                        out.line(line)
        return out.text()

    def _constants(self) -> None:
        self.out.line(f'SCHEDULE = "{self.around.digest}"  # compared between ranks: different schedules would hang')
        shapes = self.schedule.shapes
        tables = {one.name: f"({shapes[one.name]}, torch.int32)" for one in self._tables(Memory.INPUT)}
        entries = [f'"{name}": {tables.get(name) or self._declared(self.buffers[name])}' for name in self.inputs]
        self.out.call("INPUTS = {", entries, "}")
        if self.around.matrices:
            fewer = [f'"{name}": {many}' for name, many in self.around.matrices.items()]
            self.out.comment("of all ranks: the last ranks have fewer than INPUTS says")
            self.out.call("MATRICES = {", fewer, "}")
        outputs = [f'"{one.name}": ({self._shape(one)}, torch.{element(one)})' for one in self._results()]
        self.out.call("OUTPUTS = {", outputs, "}")
        self.out.line(f"NUM_RANKS = {self.schedule.num_ranks}")
        self.out.line(f"NUM_SMS = {self._resident()}  # all spinning programs fit on so many SMs at once")
        self.out.line("ANY_STREAM = True  # calls may come from any stream")
        if multicasts(self.schedule):
            self.out.line("MULTICAST = True  # kernels store at all ranks at once")
            if self.schedule.ranks_per_node < self.schedule.num_ranks:
                self.out.line(f"RANKS_PER_NODE = {self.schedule.ranks_per_node}  # of which these are all")
        if not self.around.peer_atomics:
            self.out.line("PEER_ATOMICS = False  # the links need no remote atomics")
        for layout in dict.fromkeys(found.layout for _, found in self._described() if found.layout):
            self.out.line(f"{layout_attribute(layout)} = {layout}  # layout of operands in shared memory")

    def _declared(self, buffer: Buffer) -> str:
        shape = self.around.arguments.get(buffer.name, self.schedule.shapes[buffer.name])
        return f"({shape}, torch.{element(buffer)})"

    def _results(self) -> list[Buffer]:
        found = [one for one in self.schedule.buffers if one.memory is Memory.OUTPUT or one.for_caller]
        order = list(self.around.results)
        return sorted(found, key=lambda one: order.index(one.name) if one.name in order else len(order))

    def _shape(self, buffer: Buffer) -> tuple[int, ...]:
        return self.around.results.get(buffer.name, self.schedule.shapes[buffer.name])

    def _result(self, buffer: Buffer) -> str:
        """What the caller gets."""
        as_stored = self._shape(buffer) == self.schedule.shapes[buffer.name]
        return tensor_of(buffer) + ("" if as_stored else f".view({self._shape(buffer)})")

    def _resident(self) -> str:
        """SMs for the largest launch of each stream, and one for each stream that a program holds up."""
        most: dict[str, dict[str, int]] = {}
        for launch, roles in zip(self.schedule.launches, self.host_roles, strict=True):
            outer = [role for role in launch.roles if not role.inside]
            programs = [(role.programs, role.engine.per_sm if isinstance(role.engine, Sms) else 1) for role in outer]
            alone = [one for one, role in zip(programs, outer, strict=True) if isinstance(role.engine, Sms)]
            counts = [-(-many // per_sm) for many, per_sm in (alone if roles else programs)]
            most.setdefault(launch.stream, {})[" + ".join(map(self.spell, counts)) or "0"] = sum(map(int, counts))
            for one in roles:
                if one.kernels:
                    most.setdefault(one.stream, {})[one.programs or "1"] = int(one.streams)
        terms = [
            _largest({text: count for text, count in counts.items() if count} or {"0": 0}) for counts in most.values()
        ]
        number = all(term.isdigit() for term in terms)
        return str(max(1, sum(map(int, terms)))) if number else " + ".join(term for term in terms if term != "0")

    def _places(self, name: str) -> str:
        """The shape of a buffer, in constants where it follows from them."""
        sizes = [self.spell(size) for size in self.schedule.shapes[name]]
        return f"({', '.join(sizes)}{',' * (len(sizes) == 1)})"

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
            if self.around.matrices:
                out.line("self.INPUTS = inputs_of(type(self), fabric.rank)")
            for name in self._of(Memory.SYMMETRIC):
                shape, dtype = self._places(name), stored(self.buffers[name])
                if self.buffers[name].places:
                    out.line(f"self.{name} = Pool(fabric, {shape}, torch.{dtype})")
                    self._pool(name)
                    continue
                out.line(f"self.{name} = fabric.symmetric({shape}, torch.{dtype})")
            for name in self._of(Memory.LOCAL):
                shape, dtype = self._places(name), stored(self.buffers[name])
                out.line(f"self.{name} = torch.empty({shape}, dtype=torch.{dtype}, device=fabric.device)")
            for table in self._tables(Memory.LOCAL):
                size = self.schedule.shapes[table.name]
                out.line(f"self.{table.name} = torch.zeros({size}, dtype=torch.int32, device=fabric.device)")
            self._describe()
            self._words()
            out.line("self.last = fabric.main()")
            with out.block("with fabric.loading():  # kernels are loaded before one of them spins"):
                shapes = "for shape, dtype in self.INPUTS.values()"
                made = "zeros" if self._tables(Memory.INPUT) else "empty"  # entries of tables find memory
                out.line(f"self(*[torch.{made}(shape, dtype=dtype, device=fabric.device) {shapes}])")

    def _pool(self, name: str) -> None:
        """Addresses of all places of a pool: of all ranks, or of this one where those of peers follow from them."""
        places = f"self.{name}.places"
        if self.frame.dialect.reach is Reach.TABLE:
            self.out.line(f"self.{name}_pool = torch.cat([place.pointers for place in {places}])")
            return
        here = f"[place.local.data_ptr() for place in {places}]"
        self.out.line(f"self.{name}_pool = torch.tensor({here}, dtype=torch.int64, device=fabric.device)")

    def _words(self) -> None:
        """Signals, the number of the call, counts, and values that streams copy."""
        out, words, word = self.out, self.words, self.frame.dialect.word
        if words.num_signals:
            out.line(f"self.signals = fabric.symmetric(({self.spell(words.num_signals)},), {word})")
        where = f"dtype={word}, device=fabric.device"
        for signal, anew in words.anew.items():
            if anew.first:
                place = self.frame.constants.name(signal, words.first(signal), f"first word of signal {signal}")
                first, size = f"{place}.value", self.spell(words.size(signal), 1)
                out.comment("no call before the first one: all of it counts as done")
                out.line(f"self.signals.local[{first} : {first} + {size}].fill_({self.spell(anew.first)})")
        if words.num_counts:
            out.line(f"self.counts = torch.zeros({self.spell(words.num_counts)}, {where})")
        if words.apart:
            out.line(
                f"self.calls = torch.ones({self.spell(words.num_calls)}, {where})  # of the next call, of each program"
            )
        else:
            made = f"torch.ones(1, {where})"
            roles = [role for launch in self.schedule.launches for role in launch.roles if role.by_host]
            if self.frame.dialect.puts and any(isinstance(role.engine, Network) for role in roles):
                made = f"fabric.symmetric((1,), {word}).local.fill_(1)"  # a network card reads nothing else
            out.line(f"self.epoch = {made}  # the number of the call that is next")
        if words.values:
            spell = HostSpelling(Scope(self.schedule), self.frame.constants)
            if any("rank" in str(one) for one in words.values):
                out.line("rank = fabric.rank")
            first = ", ".join(spell(replaced(one, {"call": 1})) for one in words.values)
            out.line(f"self.stream_values = torch.tensor([{first}], {where})")

    def _call(self) -> None:
        out = self.out
        out.line("@opaque")
        with out.block(f"def __call__({', '.join(['self', *self.inputs])}):"):
            for name in self.inputs:
                out.line(f'check_input("{name}", {name}, *self.INPUTS["{name}"])')
            for name in self.around.arguments:
                out.line(f"{name} = {name}.view({self.schedule.shapes[name]})")
            out.line("main = self.fabric.main()")
            out.line("main.after(self.last)  # calls on other streams stay in order")
            out.line("self.last = main")
            for name in self.fresh:
                dtype = element(self.buffers[name])
                shape = self.schedule.shapes[name]
                new = f"torch.empty({shape}, dtype=torch.{dtype}, device=self.fabric.device)"
                out.line(f"{name} = {f'self.{name}.take(main, {shape})' if self.buffers[name].places else new}")
            if any(isinstance(step, Call) and step.function in COLLECTIVES for step in all_steps(self.schedule)):
                out.line(f"self.enqueue({', '.join(self._tensors())})")
            else:
                out.line(f"self.fabric.run({', '.join(['self.enqueue', *self._tensors()])})")
            for one in self.pools:
                out.line(f"{one.name} = self.{one.name}.give(main, {one.name})")
            out.line(f"return {', '.join(map(self._result, self._results()))}")

    def _tensors(self) -> list[str]:
        return ["main", *self.inputs, *self.fresh]

    def _enqueue(self) -> None:
        out = self.out
        with out.block(f"def enqueue({', '.join(['self', *self._tensors()])}):"):
            out.line('"""All launches, copies and waits of a call, in order."""')
            kernels = [one for one in (*self.kernels, self.end) if one is not None]
            named = frozenset[str]().union(*(role.names for roles in self.host_roles for role in roles))
            if "rank" in named or any("rank" in one.parameters for one in kernels):
                out.line("rank = self.fabric.rank")
            for one in self.pools:
                out.line(f"{one.name}_here = self.{one.name}.place_of({one.name})")
            for side in self.sides:
                out.line(f'{side} = self.fabric.stream("{side}")')
                self._join(side, MAIN)
            for place, launch in enumerate(self.schedule.launches):
                self._launch(launch, self.kernels[place], self.host_roles[place])
            for side in self.sides:
                self._join(MAIN, side)
            if self.end is not None:
                self._kernel("main", self.end)

    def _launch(self, launch: Launch, kernel: Kernel | None, roles: list[HostRole]) -> None:
        out, stream = self.out, launch.stream
        for name in launch.joins:
            self._join(stream, name)
        self.launched[stream] += any(role.phases for role in launch.roles)
        for role in roles:
            self._host_role(stream, role)
        if kernel is not None:
            self._kernel(stream, kernel)
        for role in roles:
            if role.programs:
                with out.block(f"for program in range({role.programs}):"):
                    out.line(f'{stream}.after(self.fabric.stream(f"{role.stream}_{{program}}"))')
            elif role.stream != stream:
                out.line(f"{stream}.after({role.stream})")

    def _join(self, stream: str, other: str) -> None:
        """`stream` goes on behind all that `other` holds by now, unless it does so already."""
        if self.joined.get((stream, other)) != self.launched[other]:
            self.joined[stream, other] = self.launched[other]
            self.out.line(f"{stream}.after({other})")

    def _host_role(self, stream: str, role: HostRole) -> None:
        """The operations of a role; streams beside that of the launch begin behind what it holds."""
        out = self.out
        with out.maybe(f"for program in range({role.programs}):" if role.programs else ""):
            if role.stream != stream:
                name = f'f"{role.stream}_{{program}}"' if role.programs else f'"{role.stream}"'
                out.line(f"{role.stream} = self.fabric.stream({name})")
                out.line(f"{role.stream}.after({stream})")
            out.lines(role.text.rstrip("\n"))

    def _kernel(self, stream: str, kernel: Kernel) -> None:
        arguments = [self._argument(kernel, name) for name in kernel.parameters]
        self.out.call(f"{stream}.launch(", [kernel.name, f"({kernel.grid},)", *arguments, *kernel.options])

    def _argument(self, kernel: Kernel, name: str) -> str:
        """What a parameter of a kernel is given."""
        if name in ARGUMENTS:
            return ARGUMENTS[name]
        if name in kernel.descriptors:
            found = kernel.descriptors[name]
            head, arguments = self._descriptor(found)
            return self.described.get(found) or f"{head}{', '.join(arguments)})"
        if name in self.buffers:
            return tensor_of(self.buffers[name])
        if any(name == table.name for table in self._tables(Memory.LOCAL)):
            return f"self.{name}"
        if any(name == f"{one.name}_pool" for one in self.pools):
            return f"self.{name}"
        for beside, attribute in (("_peers", "pointers"), ("_multicast", "multicast")):
            if name.endswith(beside) and name.removesuffix(beside) in self.buffers:
                return f"self.{name.removesuffix(beside)}.{attribute}"
        return name

    def _describe(self) -> None:
        """Descriptors of the operator's own memory, made once: a call makes those of what it is given."""
        own = {name for memory in (Memory.LOCAL, Memory.SYMMETRIC) for name in self._of(memory)}
        own -= {buffer.name for buffer in self.pools}
        kept = [(name, found) for name, found in self._described() if found.buffer in own or found.peer is not None]
        if any(found.part for _, found in kept):
            self.out.line("rank = fabric.rank")
        for name, found in kept:
            if found not in self.described:
                sides = "x".join(found.block).lower()
                attribute = f"self.{name}" if f"self.{name}" not in self.described.values() else f"self.{name}_{sides}"
                self.described[found] = attribute
                head, arguments = self._descriptor(found)
                self.out.call(f"{attribute} = {head}", arguments)

    def _descriptor(self, found: Described) -> tuple[str, list[str]]:
        """The call that makes a descriptor: its head and its arguments."""
        tensor, ranks = tensor_of(self.buffers[found.buffer]), self.schedule.num_ranks
        if found.peer is not None:
            place = "" if found.place is None else f".places[{found.place}]"
            part = f"[{', '.join(map(self.spell, found.part))}]" if found.part else ""
            tensor = f"self.{found.buffer}{place}.peers[{found.peer}]{part}"
        shape = self.schedule.shapes[found.buffer][len(found.part) :]
        matrix = tensor if len(shape) == 2 else f"{tensor}.view(-1, {shape[-1]})"
        if len(share(self.around.matrices.get(found.buffer, ranks), ranks, ranks - 1)) == 0:
            matrix = f"rows_of_matrices({tensor})"
        if found.parts:
            matrix = tensor if len(shape) == 3 else f"{tensor}.view(-1, {shape[-2]}, {shape[-1]})"
        if any(end is not None for end in found.ends):
            matrix += f"[{', '.join(':' if end is None else f':{end}' for end in found.ends)}]"
        sizes = ", ".join(
            one if one.isdigit() else f"{one}.value" for one in (*(["1"] if found.parts else []), *found.block)
        )
        if found.layout:
            arguments = [matrix, f"[{sizes}]", f"self.{layout_attribute(found.layout)}"]
            return "SharedDescriptor.from_tensor(", arguments
        return "TensorDescriptor.from_tensor(", [matrix, f"[{sizes}]"]

    def _described(self) -> Iterator[tuple[str, Described]]:
        """All descriptors, by the parameter that takes them."""
        for kernel in self.kernels:
            yield from kernel.descriptors.items() if kernel else ()


def _largest(counts: dict[str, int]) -> str:
    """The text of the largest number, which may be another one where constants are edited."""
    if all(text.isdigit() for text in counts):
        return str(max(counts.values()))
    return f"max({', '.join(counts)})" if len(counts) > 1 else next(iter(counts))
