"""A schedule as text: the design review. Pseudo-code of one rank in field words; every decision can be read off it."""

from __future__ import annotations

from collections.abc import Iterator

from tilelink.ir.calls import LibraryCollective, LibraryGemm, WordCollective
from tilelink.ir.functions import FUNCTIONS
from tilelink.ir.nodes import (
    AwaitPeers,
    Axis,
    Begin,
    CommRole,
    ComputeRole,
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
    TellPlace,
    Transfer,
)
from tilelink.ir.order import Nest, RankOrder
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import (
    Access,
    Apply,
    AwaitPlaces,
    IfOwn,
    Load,
    MatmulBody,
    Notify,
    Operand,
    Place,
    SlotNotify,
    SlotWait,
    Step,
    Store,
    SumParts,
    SumWords,
    UserBody,
    Wait,
)
from tilelink.ir.word import Protocol

_RULES = {
    Scope.LOCAL: "count of this rank, 0 at the start of a call",
    Scope.PEER: "epoch, raised by peers",
    Scope.PEER_COUNT: "count of peers that have finished the call",
    Scope.PLACE: "epoch and place in the pool, raised by every rank",
}
_NEXT = "advance the epoch, clear the counts"


def print_schedule(schedule: Schedule) -> str:
    """Header, then what each rank launches, in order."""
    machine, spec = schedule.machine, schedule.spec
    sizes = " ".join(f"{name}={size}" for name, size in spec.sizes)
    lines = [f"schedule {schedule.name} on {machine.topology} x{machine.num_ranks}, {sizes} {spec.inputs[0].dtype}"]
    for buffer in schedule.buffers:
        if buffer.memory in (Memory.SYMMETRIC, Memory.LOCAL, Memory.POOL):
            shape = " x ".join(map(str, buffer.shape))
            lines.append(f"  {buffer.memory.value} {buffer.name} [{shape}] {buffer.dtype}")
    for signal in schedule.signals:
        uses = any(signal.name in (f"{x.name}_arrived", f"{x.name}_free") for x in schedule.exchanges if x.slots)
        rule = "number of the use of a slot, raised by a peer" if uses else _RULES[signal.scope]
        lines.append(f"  signal {signal.name}[{signal.slots}] {rule}")
    for launch in schedule.launches:
        lines += (f"  {line}" for line in _launch(schedule, launch))
    if schedule.predicted_us:
        lines.append(f"  predicted {schedule.predicted_us:.1f} us")
    return "\n".join(lines)


def _launch(schedule: Schedule, launch: Launch) -> Iterator[str]:
    match launch:
        case Begin():
            yield f"begin: wait done[peer] of the last call for every peer; {_NEXT}"
        case AwaitPeers(within):
            who = "every program of the next kernel" if within else "the stream"
            yield f"{who}: {_last_call(schedule)}"
        case Finish(within=within):
            yield "finish, by the last program of the kernel:" if within else "finish: join the streams"
            if within and schedule.has_signal("copied"):
                yield "  wait copied[every stream] == 1"
            yield from (f"  {line}" for line in _finish(schedule, launch))
        case Kernel():
            yield from _kernel(schedule, launch)
        case CopyProgram(exchange, stream, streams, after_source, awaits_done, tells_end):
            when = " after its source" if after_source else ""
            each = ", one for each peer" if streams > 1 else ""
            yield f"copy engine on stream {stream}{each}{when}:"
            if awaits_done:
                yield f"  {_last_call(schedule)}"
            yield from _moves(schedule, schedule.exchange(exchange), counted=not after_source)
            if tells_end:
                word = schedule.copied_word(launch)
                yield f"  write copied[{word if streams == 1 else f'{word} + stream'}] = 1"
        case Publish(exchange, copy_from, within):
            source = schedule.exchange(exchange).source
            copy = f"copy {copy_from} -> {source}; " if copy_from else ""
            who = "publish, the first program of the next kernel" if within else "publish"
            yield f"{who}: {copy}notify {exchange}_ready[rank, every chunk] at every peer"
        case TellPlace(exchange):
            target = schedule.exchange(exchange).target
            yield f"the first program of the next kernel: notify {exchange}_place[rank], the place of {target}, at every rank"
        case CopyOwn(exchange):
            found = schedule.exchange(exchange)
            yield f"copy own part: {found.source} -> {found.target}[rank]"
        case LibraryGemm():
            yield from _library_gemm(schedule, launch)
        case LibraryCollective(function, out, operand):
            yield f"library: {out} = {function}({operand})"
        case WordCollective(function, out, operand, words, programs, block, per_sm, protocol, shots, within):
            many = f", {per_sm} an SM" if per_sm > 1 else ""
            who = "all programs of the next kernel, before their tiles" if within else f"{programs} programs{many}"
            yield f"{protocol.value}: {out} = {function}({operand}), {who}, blocks of {block} packets:"
            each = f"send {words} packets to each peer, {_packets(protocol)}"
            if shots == 1:
                yield f"  {each}; receive those of each peer"
            else:
                yield f"  {each}, for its part; add those of each peer; send the sums to each peer; receive its sums"


def _packets(protocol: Protocol) -> str:
    if protocol is Protocol.LL:
        return "of 4 bytes of data and the 4-byte number of the call"
    return "of 8 bytes of data, cleared by the reader"


def _last_call(schedule: Schedule) -> str:
    return f"wait done == {schedule.num_ranks - 1}: every peer has finished the last call"


def _finish(schedule: Schedule, finish: Finish) -> Iterator[str]:
    if not finish.turns:
        yield f"notify done[rank] at every peer{' by copy engine' if finish.by_copy else ''}"
        return
    peers = schedule.num_ranks - 1
    yield "count done at every peer"
    if finish.meets:
        yield f"wait done == {peers}: every peer has finished this call"
    yield f"{_NEXT}, subtract {peers} from done"


def _library_gemm(schedule: Schedule, launch: LibraryGemm) -> Iterator[str]:
    right = f"{_operand(launch.right)}{'.T' if launch.transposed else ''}"
    if not launch.split:
        yield f"library: {launch.out.buffer} = {_operand(launch.left)} @ {right}"
        return
    exchange = schedule.exchange(launch.split)
    yield f"library, {_rank_loop(launch.order, 'part')}, {_count(exchange.chunks, 'chunk')} of {exchange.chunk_rows} rows each:"
    if launch.wait is not None:
        yield f"  wait {launch.wait.signal}[part, chunk] unless own"
    yield f"  {launch.out.buffer}[part, chunk] = {_operand(launch.left)}[part, chunk] @ {right}"
    if launch.count:
        yield f"  notify {launch.count}[part, chunk]"


def _rank_loop(order: RankOrder, name: str) -> str:
    sign = "+" if order.direction > 0 else "-"
    if order.num_ranks > order.ranks_per_node:
        return (
            f"{name} = node-major from node {sign} {order.first_node}, inside from rank {sign} {order.first} "
            f"({order.num_ranks // order.ranks_per_node} x {order.ranks_per_node})"
        )
    first = f" {sign} {order.first}" if order.first else ""
    return f"{name} = (rank{first} {sign} step) % {order.num_ranks}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _moves(schedule: Schedule, exchange: Exchange, *, counted: bool) -> Iterator[str]:
    rows = f"{_count(exchange.chunks, 'chunk')} of {exchange.chunk_rows} x {exchange.cols}"
    yield f"  for each peer {exchange.order.nest.value}, {_rank_loop(exchange.order.ranks, 'peer')}, {rows}:"
    name, push = exchange.name, exchange.transfer is Transfer.PUSH
    scatter = exchange.kind is Kind.SCATTER
    if push and counted and schedule.has_signal(f"{name}_count"):
        yield f"    wait {name}_count[{'peer, ' if scatter else ''}chunk] == its tiles"
    if not push:
        yield f"    wait {name}_ready[peer, chunk]"
    inside = scatter or exchange.source == exchange.target
    part = "[peer, chunk]" if push and scatter else "[rank, chunk]" if inside else "[chunk]"
    if push:
        yield f"    push {exchange.source}{part} -> {exchange.target}[rank, chunk] at peer"
        if not exchange.met:
            yield f"    notify {name}_arrived[rank, chunk] at peer"
    else:
        yield f"    pull {exchange.source}{part} at peer -> {exchange.target}[peer, chunk]"
        yield f"    notify {name}_arrived[peer, chunk]"


def _kernel(schedule: Schedule, kernel: Kernel) -> Iterator[str]:
    shared = f", {kernel.per_sm} programs on each" if kernel.per_sm > 1 else ""
    again = "the same programs go on with " if kernel.joined else ""
    yield f"{again}kernel {kernel.name} on {kernel.sms} SMs{shared}:"
    for role in kernel.comm:
        yield from (f"  {line}" for line in _comm(schedule, role))
    if kernel.compute is not None:
        yield from (f"  {line}" for line in _compute(kernel, kernel.compute))


def _comm(schedule: Schedule, role: CommRole) -> Iterator[str]:
    exchange = schedule.exchange(role.exchange)
    if exchange.slots:
        yield from _produce(schedule, role, exchange)
        return
    yield f"communicate on {role.programs} SMs:"
    yield from _moves(schedule, schedule.exchange(role.exchange), counted=True)


def _produce(schedule: Schedule, role: CommRole, exchange: Exchange) -> Iterator[str]:
    rows = f"{_count(exchange.chunks, 'item')} of {exchange.chunk_rows} x {exchange.cols}"
    yield f"produce on {role.programs} SMs, {rows}, one program an item, through {_count(exchange.slots, 'slot')}:"
    yield f"  peer = (rank + {exchange.by % schedule.num_ranks}) % {schedule.num_ranks}, slot = item % {exchange.slots}"
    yield from (f"  {line}" for wait in role.before for line in _step(wait))
    yield f"  push {exchange.source}[item] -> {exchange.target}[slot] at peer"
    yield from (f"  {line}" for notify in role.after for line in _step(notify))


def _compute(kernel: Kernel, role: ComputeRole) -> Iterator[str]:
    axes = " x ".join(_axis(axis) for axis in role.axes if not axis.reduction)
    where = f"{role.programs} SMs" if kernel.per_sm == 1 else f"{role.programs} programs"
    warps = (
        f"{kernel.warps} warps"
        if role.warpgroups == 1
        else f"{role.warpgroups} consumer warpgroups of {kernel.warps} warps"
    )
    yield f"compute {role.name} on {where}, tiles {axes}, {warps}, {_count(kernel.stages, 'stage')}:"
    order, major = role.order, role.axis(role.order.major)
    minor = f" through all of {order.minor}" if order.minor else ""
    groups = f"groups of {_count(order.group, f'{major.name} tile')}{minor}"
    if major.segments > 1:
        tiles = _count(order.group, "tile")
        inner = "one segment" if order.nest is Nest.RANK_MAJOR else f"{tiles} of every segment"
        inner += ", the last segment one round later," if order.late else ""
        yield f"  {inner} at a time, {_rank_loop(order.ranks, 'segment')}; {groups}"
    else:
        yield f"  {groups}"
    if role.warpgroups > 1:
        yield "  ping-pong: a producer warp waits and loads; one consumer multiplies while the other runs its epilogue"
    if role.prefetch:
        yield "  prefetch: the next tile waits and begins to load before this one is stored"
    if role.halved:
        yield f"  the last {_count(role.halved, 'tile')} in halves of {role.axis(role.order.minor).tile // 2} along {order.minor}"
    if role.counts_late:
        yield "  late count: a tile is counted after the product of the next tile of its program"
    if kernel.dies.count > 1:
        yield f"  neighbouring programs share one of {kernel.dies.count} dies"
    for step in role.body:
        yield from (f"  {line}" for line in _step(step))


def _axis(axis: Axis) -> str:
    pieces = f"{axis.segments} segments of " if axis.segments > 1 else ""
    return f"{axis.name}: {pieces}{_count(axis.tiles, 'tile')} of {axis.tile} (of {axis.extent})"


def _operand(operand: Operand) -> str:
    name = f"{operand.buffer}@peer" if operand.remote else operand.buffer
    if operand.item:
        name = f"{name}[slot of the {operand.item} tile]"
    if operand.window:
        name = f"{name}[{', '.join(f'{first}:{end}' for first, end in operand.window)}]"
    return f"{name}|own {operand.own}" if operand.own else name


def _wait(wait: Wait) -> str:
    part = "every part" if wait.every else f"{wait.slot} segment"
    chunks = f"chunks of the {wait.rows} tile" if wait.rows else "every chunk"
    return f"wait {wait.signal}[{part}, {chunks}]{'' if wait.own else ' unless own'}"


def _step(step: Step) -> Iterator[str]:
    match step:
        case Wait():
            yield _wait(step)
        case MatmulBody(result, left, right, axis, waits, beside):
            turned = ".T" if step.transposed else ""
            loop = f" in the loop of {beside}" if beside else ""
            access = f"{left.access.value} and {right.access.value}"
            yield f"{result} = {_operand(left)} @ {_operand(right)}{turned} over {axis}{loop}, {access}"
            yield from (f"  {_wait(wait)}" for wait in waits if not beside)
        case UserBody(result, function, operands):
            yield f"{result} = {function}({', '.join(_operand(operand) for _, operand in operands)})"
        case SumParts(result, operand, wait, onto):
            yield f"{result} = {onto + ' + ' if onto else ''}sum over parts of {_operand(operand)}"
            if wait is not None:
                yield f"  {_wait(wait)}"
        case SumWords(result, value, _, cut, protocol, shots):
            yield f"{result} = sum over ranks of {value}{f', of the own share of {cut}' if cut else ''}, in packets:"
            whose = f"the owner of each share of {cut}" if cut else "every peer"
            if shots == 1:
                yield f"  send packets {_packets(protocol)} to {whose}; receive those of each peer"
            else:
                yield f"  send packets {_packets(protocol)}, a share to each peer; add those of each peer; exchange the sums"
        case Load(result, operand):
            yield f"{result} = load {_operand(operand)}"
        case Apply(result, function, arguments):
            known = FUNCTIONS.get(function)
            yield f"{result} = " + (known.on(*step.operands) if known else f"{function}({', '.join(arguments)})")
        case Store(value, operand, place):
            where = "" if place is Place.HERE else "[rank]" if place is Place.OWN else f"[rank] at {place.value}"
            how = "in pieces" if operand.access is Access.PIECES else operand.access.value
            yield f"store {value} -> {operand.buffer}{where}, {how}"
        case Notify(count, _, slot, rows, then, place):
            yield f"count {count}[{f'{slot} segment, ' if slot else ''}chunks of the {rows} tile]" + (
                f"; last tile of a chunk: notify {then}[rank, chunk] at {place.value}" if then else ""
            )
        case SlotWait(signal, _, rows, plus):
            yield f"wait {signal}[slot] == {_use(plus)}{f', of the {rows} tile' if rows else ''}"
        case SlotNotify(signal, _, rows, plus):
            yield f"notify {signal}[slot] = {_use(plus)} at {f'the sender of the {rows} tile' if rows else 'peer'}"
        case AwaitPlaces(signal):
            yield f"wait {signal}[every rank]"
        case IfOwn(axis, own, others, slices):
            yield f"if the {axis} segment is own{f', in {slices} slices of columns' if slices > 1 else ''}:"
            yield from (f"  {line}" for inner in own for line in _step(inner))
            yield "else:"
            yield from (f"  {line}" for inner in others for line in _step(inner))


def _use(plus: int) -> str:
    return f"use {'+' if plus > 0 else '-'} {abs(plus)}" if plus else "use"
