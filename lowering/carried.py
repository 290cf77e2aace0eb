"""What programs of a kernel do before and after their work, instead of a launch of its own."""

from __future__ import annotations

from lowering.dialect import Dialect
from lowering.names import place, plus
from lowering.numbers import Numbers
from lowering.operands import LoopScope
from lowering.signalling import slot_of
from lowering.source import Source
from lowering.words import collective_sizes
from tilelink.ir.calls import WordCollective
from tilelink.ir.nodes import AwaitPeers, Finish, Kernel, Publish, Scope, TellPlace
from tilelink.ir.schedule import Schedule


class Carried:
    """Text of what comes `first` and `last` in each program of a kernel; `scope` knows the parameters that it needs."""

    def __init__(self, schedule: Schedule, dialect: Dialect, numbers: Numbers, kernel: Kernel) -> None:
        self.scope = LoopScope(schedule, dialect, numbers)
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
        done = self.scope.schedule.signal("done")
        self.scope.need("signals")
        return f"signals + {self.scope.numbers.word(done)}" if done.first else "signals"

    def _await_peers(self) -> None:
        wait = f"await_peers({self._done()}, {self.scope.numbers.ranks()} - 1)"
        self.first.line(f"{wait}  # every peer has finished the last call")

    def _publish(self, publish: Publish) -> None:
        schedule = self.scope.schedule
        exchange = schedule.exchange(publish.exchange)
        numbers = self.scope.numbers
        ready = numbers.word(schedule.signal(f"{exchange.name}_ready"))
        self.scope.need(self.scope.dialect.peer_words, "rank", "call")
        chunks = f"for chunk in range({numbers.chunks(exchange)}):" if exchange.chunks > 1 else ""
        with (
            self.first.block(f"if program == 0:  # peers may pull {exchange.source} now"),
            self.first.maybe(chunks),
        ):
            slot = slot_of(self.scope, exchange, "rank", "chunk")
            self.first.line(self.scope.dialect.notify_all(f"{ready} + {slot}", numbers.ranks()))

    def _tell_place(self, exchange: str) -> None:
        schedule = self.scope.schedule
        target = schedule.exchange(exchange).target
        numbers, told_place = self.scope.numbers, schedule.signal(f"{exchange}_place")
        first = numbers.word(told_place) if told_place.first else "0"
        self.scope.need(place(target), self.scope.dialect.peer_words, "rank", "call")
        with self.first.block(f"if program == 0:  # peers may put their parts of {target} there now"):
            told = self.scope.dialect.notify_all(plus(first, "rank"), numbers.ranks(), f"told({place(target)}, call)")
            self.first.line(told)

    def _gather(self, launch: WordCollective) -> None:
        name = launch.out
        pointers = [f"{name}_{what}" for what in ("source_data", "data", "words", "words_peers", "calls", "gathered")]
        self.scope.need(*pointers, "rank")
        sizes = collective_sizes(self.scope.numbers, launch)
        self.first.call("gather_first(", [*pointers, "rank", *sizes])
        if self.scope.schedule.machine.tensor_descriptors:
            self.first.line("fence_descriptors()")

    def _finish(self, kernel: Kernel, finish: Finish) -> None:
        schedule = self.scope.schedule
        self.scope.need("epoch", "counts", self.scope.dialect.peer_words, "rank")
        counts = sum(signal.slots for signal in schedule.signals if signal.scope is Scope.LOCAL)
        arguments = ["epoch", "counts", self._done(), self.scope.dialect.peer_words, "rank"]
        numbers = self.scope.numbers
        arguments += [f"PROGRAMS={numbers.grid(kernel)}", f"ENDED={numbers.word(schedule.signal('ended'))}"]
        arguments += [f"DONE={numbers.word(schedule.signal('done'))}", f"NUM_COUNTS={numbers.num_words(local=True)}"]
        block = numbers.counts_block(1 << max(0, counts - 1).bit_length())
        arguments += [f"BLOCK={block}", f"NUM_RANKS={numbers.ranks()}"]
        arguments += [f"MEETS={finish.meets}"]
        if not schedule.has_signal("copied"):
            self.last.call("close_call(", arguments)
            return
        copied = schedule.signal("copied")
        arguments += [f"COPIED={numbers.word(copied)}", f"STREAMS={numbers.streams(copied)}"]
        self.last.call("close_call_after_copies(", arguments)
