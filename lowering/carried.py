"""What programs of a kernel do before and after their work, instead of a launch of its own."""

from __future__ import annotations

from lowering.dialect import Dialect
from lowering.names import place, plus
from lowering.operands import LoopScope
from lowering.signalling import slot_of
from lowering.source import Source
from lowering.words import collective_sizes
from tilelink.ir.calls import WordCollective
from tilelink.ir.nodes import AwaitPeers, Finish, Kernel, Publish, Scope, TellPlace
from tilelink.ir.schedule import Schedule


class Carried:
    """Text of what comes `first` and `last` in each program of a kernel; `scope` knows the parameters that it needs."""

    def __init__(self, schedule: Schedule, dialect: Dialect, kernel: Kernel) -> None:
        self.scope = LoopScope(schedule, dialect)
        self.first, self.last = Source(), Source()
        for launch in schedule.within(kernel):
            match launch:
                case AwaitPeers():
                    self._await_peers()
                case Publish():
                    self._publish(launch)
                case TellPlace(exchange):
                    self._tell_place(exchange)
                case WordCollective():
                    self._gather(launch)
                case Finish():
                    self._finish(kernel, launch)
                case _:
                    raise AssertionError(f"programs of a kernel carry out no {type(launch).__name__}")

    def _done(self) -> str:
        first = self.scope.schedule.signal("done").first
        self.scope.need("signals")
        return f"signals + {first}" if first else "signals"

    def _await_peers(self) -> None:
        peers = self.scope.schedule.num_ranks - 1
        wait = f"await_peers({self._done()}, {peers})"
        self.first.line(f"{wait}  # every peer has finished the last call")

    def _publish(self, publish: Publish) -> None:
        schedule = self.scope.schedule
        exchange = schedule.exchange(publish.exchange)
        ready = schedule.signal(f"{exchange.name}_ready").first
        self.scope.need(self.scope.dialect.peer_words, "rank", "call")
        chunks = f"for chunk in range({exchange.chunks}):" if exchange.chunks > 1 else ""
        with (
            self.first.block(f"if program == 0:  # peers may pull {exchange.source} now"),
            self.first.maybe(chunks),
        ):
            slot = slot_of(exchange, "rank", "chunk")
            self.first.line(self.scope.dialect.notify_all(f"{ready} + {slot}", schedule.num_ranks))

    def _tell_place(self, exchange: str) -> None:
        schedule = self.scope.schedule
        target = schedule.exchange(exchange).target
        first = schedule.signal(f"{exchange}_place").first
        self.scope.need(place(target), self.scope.dialect.peer_words, "rank", "call")
        with self.first.block(f"if program == 0:  # peers may put their parts of {target} there now"):
            told = self.scope.dialect.notify_all(
                plus(str(first), "rank"), schedule.num_ranks, f"told({place(target)}, call)"
            )
            self.first.line(told)

    def _gather(self, launch: WordCollective) -> None:
        name = launch.out
        pointers = [f"{name}_{what}" for what in ("source_data", "data", "words", "words_peers", "calls", "gathered")]
        self.scope.need(*pointers, "rank")
        sizes = collective_sizes(launch, self.scope.schedule.num_ranks)
        self.first.call("gather_first(", [*pointers, "rank", *sizes])
        if self.scope.schedule.machine.tensor_descriptors:
            self.first.line("fence_descriptors()")

    def _finish(self, kernel: Kernel, finish: Finish) -> None:
        schedule = self.scope.schedule
        self.scope.need("epoch", "counts", self.scope.dialect.peer_words, "rank")
        counts = sum(signal.slots for signal in schedule.signals if signal.scope is Scope.LOCAL)
        arguments = ["epoch", "counts", self._done(), self.scope.dialect.peer_words, "rank"]
        arguments += [f"PROGRAMS={schedule.grid(kernel)}", f"ENDED={schedule.signal('ended').first}"]
        arguments += [f"DONE={schedule.signal('done').first}", f"NUM_COUNTS={counts}"]
        arguments += [f"BLOCK={1 << max(0, counts - 1).bit_length()}", f"NUM_RANKS={schedule.num_ranks}"]
        arguments += [f"MEETS={finish.meets}"]
        if not schedule.has_signal("copied"):
            self.last.call("close_call(", arguments)
            return
        copied = schedule.signal("copied")
        self.last.call("close_call_after_copies(", [*arguments, f"COPIED={copied.first}", f"STREAMS={copied.slots}"])
