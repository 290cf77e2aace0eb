"""When a mutated source does what the original does: one predicate a reason, none broader than its reason."""

from __future__ import annotations

import ast

from tilelink.ir.nodes import (
    AwaitPeers,
    Begin,
    CommSms,
    CopyEngine,
    CopyProgram,
    Finish,
    Fused,
    Kernel,
    Publish,
    Transfer,
)
from tilelink.ir.schedule import Schedule
from tilelink.mutation import idle_rules, scope_rules
from tilelink.mutation.progress import waits_of
from tilelink.mutation.source_pair import Holds, SourcePair, leftmost
from tilelink.mutation.statements import category
from tilelink.mutation.text import LANGUAGES, SourceText, called, dotted, in_language, last_word

_ALWAYS_TWICE = ("wait", "barrier", "fence", "copy", "signal copy", "stream wait", "stream write", "join", "setup")
_PURE = ("arange", "minimum", "maximum", "cdiv", "zeros")  # of Triton and Gluon


def twice_in_a_row(pair: SourcePair) -> bool:
    if not pair.mutant.operator.startswith("duplicate "):
        return False
    return any(_idempotent(pair.text, one) for one, _ in pair.statements() if isinstance(one, ast.Expr))


def _idempotent(text: SourceText, statement: ast.Expr) -> bool:
    call, what = statement.value, category(text, statement)
    if not isinstance(call, ast.Call):
        return False
    arguments = [dotted(leftmost(argument)) for argument in call.args]
    if last_word(called(call)).startswith("async_copy"):
        return False  # one tells a barrier how much it has brought, two have no order
    match what:
        case "raise":
            return last_word(called(call)) in ("notify", "atomic_xchg")
        case "store" | "move":
            loads = [node for node in ast.walk(call) if isinstance(node, ast.Call) and in_language(node, "load")]
            sources = [dotted(leftmost(load.args[0])) for load in loads] + (arguments[1:2] if what == "move" else [])
            return (what == "move" or called(call).endswith(".store")) and arguments[0] not in sources
        case "launch":
            return _only_waits_and_raises(text, arguments[0]) or _counts_nothing(text, arguments[0])
        case "library":
            return last_word(called(call)) != "all_reduce" and arguments[0] not in arguments[1:]
        case "stream write":  # who hears that a stream has nothing left to copy clears that word
            return what in _ALWAYS_TWICE and arguments[0] != "self.counts"
        case _:
            return what in _ALWAYS_TWICE


def _only_waits_and_raises(text: SourceText, kernel: str) -> bool:
    """It exchanges words for values that do not depend on them, and writes nothing else."""
    found = [function for function in text.kernels if function.name == kernel]
    calls = {last_word(called(node)) for function in found for node in ast.walk(function) if isinstance(node, ast.Call)}
    return bool(found) and calls <= {
        "load",
        "range",
        "notify",
        "notify_all",
        "on_peer",
        "program_id",
        "wait_epoch",
        "wait_epochs",
        "wait_count",
        "await_peers",
        "jit",
    }


def _counts_nothing(text: SourceText, kernel: str) -> bool:
    """Neither the kernel nor the functions that it calls raise anything, so what it stores is a function of what it
    loads, and it loads nothing that it stores: kernels read inputs and targets of exchanges, and write other buffers."""
    by_name = {function.name: function for function in text.kernels}
    reached, todo = set[str](), [kernel]
    while todo:
        name = todo.pop()
        if name in by_name and name not in reached:
            reached.add(name)
            todo += [last_word(called(node)) for node in ast.walk(by_name[name]) if isinstance(node, ast.Call)]
    calls = [node for name in reached for node in ast.walk(by_name[name]) if isinstance(node, ast.Call)]
    raises = any(last_word(called(node)).startswith(("notify", "count_", "atomic_x")) for node in calls)
    stored = {dotted(leftmost(node.args[0])) for node in calls if in_language(node, "store") and node.args}
    loaded = {dotted(leftmost(node.args[0])) for node in calls if in_language(node, "load") and node.args}
    return kernel in by_name and not raises and not stored & loaded and "epoch" not in stored


def barrier_after_a_barrier(pair: SourcePair) -> bool:
    helper = pair.function()
    moved = pair.mutant.operator in ("drop barrier", "swap barrier") and helper in (
        "notify",
        "notify_all",
        "count_up",
        "count_at_peers",
    )
    return moved and _nothing_stored_before_uses(pair.text, helper)


def _nothing_stored_before_uses(text: SourceText, helper: str) -> bool:
    uses = [node for node in text.nodes(ast.Call) if called(node) == helper]
    return bool(uses) and all(_nothing_stored_before(text, use) for use in uses)


def _nothing_stored_before(text: SourceText, use: ast.Call) -> bool:
    """In `finish_call` or `turn_call`, whose programs that raise store nothing; or in the branch of `if count_arrival(...)`,
    which had a barrier; or all that `count_at_peer` does, where it is used like that."""
    node: ast.AST | None = use
    while node is not None and not isinstance(node, ast.FunctionDef):
        test = node.test if isinstance(node, ast.If) else None
        if test is not None and any(called(one) == "count_arrival" for one in ast.walk(test)):
            return True
        node = text.parent(node)
    if isinstance(node, ast.FunctionDef) and node.name in ("count_at_peer", "count_at_peers"):
        return _nothing_stored_before_uses(text, node.name)
    return isinstance(node, ast.FunctionDef) and node.name in ("finish_call", "turn_call")


def stores_of_one_program_to_two_tensors(pair: SourcePair) -> bool:
    swapped = pair.mutant.operator in ("swap store", "swap raise")
    if not swapped or pair.function() not in ("begin_call", "next_call"):
        return False
    return any(
        isinstance(other, ast.Expr) and _own_word(one) and _own_word(other) and _own_word(one) != _own_word(other)
        for one, other in pair.statements()
    )


def _own_word(statement: ast.stmt) -> str:
    """The tensor of this rank that the statement stores to or counts off; empty if it does anything else."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not in_language(call, "store", "atomic_add"):
        return ""
    return dotted(leftmost(call.args[0]))


def epochs_of_two(pair: SourcePair) -> bool:
    """Every rank goes on by two, and so do all that raise or await an epoch: they take it from the word."""
    statement = next((one for one, _ in pair.statements()), None)
    text = ast.unparse(statement) if statement is not None else ""
    stored = text in {f"{x}.store(epoch, {x}.load(epoch) + 1)" for x in LANGUAGES}
    slots = any(exchange.slots for exchange in pair.schedule.exchanges)
    return pair.mutant.operator == "duplicate store" and pair.function() == "next_call" and stored and not slots


def epoch_and_a_wait(pair: SourcePair) -> bool:
    if not pair.mutant.operator.startswith("swap "):
        return False
    for one, other in pair.statements():
        texts = [ast.unparse(statement) for statement in (one, other) if statement is not None]
        if "call = tl.load(epoch)" in texts:
            rest = next(text for text in texts if text != "call = tl.load(epoch)")
            return rest.startswith("await_peers(") and "call" not in rest.removeprefix("await_peers(")
    return False


def programs_that_only_wait(pair: SourcePair) -> bool:
    if pair.mutant.operator != "grid":
        return False
    launched = [
        ast.unparse(node.args[0])
        for node in pair.text.nodes(ast.Call)
        if last_word(called(node)) == "launch"
        and node.args
        and node.lineno <= pair.mutant.line <= (node.end_lineno or node.lineno)
    ]
    return launched in (["wait_on_stream"], ["wait_count_on_stream"]) and "+ 1" in pair.mutant.after


def kernels_of_one_stream(pair: SourcePair) -> bool:
    if pair.mutant.operator not in ("drop loading", "drop setup", "swap setup"):
        return False
    moved = pair.mutant.operator == "swap setup" or pair.mutant.after.strip() == "pass"
    if "fabric.loading()" not in pair.mutant.before or "fabric.agree" in pair.mutant.before or not moved:
        return False
    launches = [node for node in pair.text.nodes(ast.Call) if last_word(called(node)) == "launch"]
    return bool(launches) and all(called(node) == "main.launch" for node in launches)


def refused_either_way(pair: SourcePair) -> bool:
    """The check of ranks and SMs, and that ranks hold one schedule."""
    if pair.mutant.operator != "swap setup":
        return False
    two = {_refuses(statement) for both in pair.statements() for statement in both if statement is not None}
    return two == {"check", "agree"}


def _refuses(statement: ast.stmt) -> str:
    if isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Raise) and not statement.orelse:
        return "check"
    is_call = isinstance(statement, ast.Expr) and last_word(called(statement.value)) == "agree"
    return "agree" if is_call else ""


def one_call_more(pair: SourcePair) -> bool:
    if pair.mutant.operator != "duplicate launch":
        return False
    kernels = pair.schedule.kernels()
    rest = [launch for launch in pair.schedule.launches if not isinstance(launch, Kernel)]
    carried = all(isinstance(one, AwaitPeers | Publish | Finish) and one.within for one in rest)
    return len(kernels) == 1 and carried and any(isinstance(one, Finish) for one in rest)


def told_before_the_last_copies(pair: SourcePair) -> bool:
    if pair.mutant.operator != "swap wait" or any(exchange.met for exchange in pair.schedule.exchanges):
        return False
    calls = {called(node) for two in pair.statements() for one in two if one for node in ast.walk(one)}
    return calls == {"", "await_copies", "count_at_peers"}


def joined_earlier(pair: SourcePair) -> bool:
    if pair.mutant.operator != "swap launch":
        return False
    for one, other in pair.statements():
        if not isinstance(one, ast.Expr) or not isinstance(other, ast.Expr):
            continue
        launch, join = one.value, other.value
        if called(launch) != "main.launch" or called(join) != "main.after":
            continue
        assert isinstance(launch, ast.Call)
        assert isinstance(join, ast.Call)
        if ast.unparse(launch.args[0]) not in ("turn_call", "finish_call"):
            return any(
                ast.unparse(join.args[0]) == f"self.{copies.stream}" and _fed_from_outside(pair.schedule, copies)
                for copies in pair.schedule.launches
                if isinstance(copies, CopyProgram)
            )
    return False


def _fed_from_outside(schedule: Schedule, copies: CopyProgram) -> bool:
    """Pushes of what was there before: they wait for no kernel of this call, so that a kernel may wait for them."""
    counted = schedule.has_signal(f"{copies.exchange}_count")
    return not counted and schedule.exchange(copies.exchange).transfer is Transfer.PUSH


def neighbours_commute(pair: SourcePair) -> bool:
    if not pair.mutant.operator.startswith("swap "):
        return False
    return any(other is not None and _commute(pair.text, one, other) for one, other in pair.statements())


def _commute(text: SourceText, one: ast.stmt, other: ast.stmt) -> bool:
    kinds = {category(text, one), category(text, other)}
    if kinds <= {"wait"} or kinds <= {"join"}:
        receivers = {called(one).rpartition(".")[0], called(other).rpartition(".")[0]}
        return len(receivers) == 1
    return (_is_pure(one) or _is_pure(other)) and not (
        _written(one) & (_named(other) | _written(other)) or _written(other) & _named(one)
    )


def _is_pure(statement: ast.stmt) -> bool:
    """An assignment of numbers that touches no memory."""
    if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.annotation).endswith("constexpr"):
        return True
    if not isinstance(statement, ast.Assign):
        return False
    calls = [node for node in ast.walk(statement.value) if isinstance(node, ast.Call)]
    numbers = all(in_language(call, *_PURE) or called(call) in ("slice", "min", "max", "range") for call in calls)
    return numbers and not any(
        isinstance(node, ast.Subscript | ast.Await | ast.NamedExpr) for node in ast.walk(statement)
    )


def _written(statement: ast.stmt) -> set[str]:
    return {
        dotted(node)
        for node in ast.walk(statement)
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store)
    }


def _named(statement: ast.stmt) -> set[str]:
    return {dotted(node) for node in ast.walk(statement) if isinstance(node, ast.Name | ast.Attribute)}


def never_passes(pair: SourcePair) -> bool:
    after = pair.mutant.after.strip()
    if pair.mutant.operator != "comparison":
        return False
    counted = pair.function() == "wait_count" and pair.mutant.before.strip() == "<" and after == "!="
    completing = after == ">=" and any(
        isinstance(one, ast.If) and called(one.test.left) == "count_arrival"
        for one, _ in pair.statements()
        if isinstance(one, ast.If) and isinstance(one.test, ast.Compare)
    )
    return (counted or completing) and _counts_are_exact(pair.schedule)


def _counts_are_exact(schedule: Schedule) -> bool:
    """Counts start at 0 in every call, and each awaited one is raised as often as is waited for. What tiles count is
    spelled from the same numbers as its target (lowering/counting.py), so only targets in waits are looked at."""
    programs = {role.exchange: role.programs for kernel in schedule.kernels() for role in kernel.comm}
    for kernel in schedule.kernels():
        for wait in waits_of(kernel.compute.body) if kernel.compute is not None else ():
            exchange = schedule.exchange(wait.exchange)
            if not wait.target:
                continue
            match exchange.mover:
                case CopyEngine():
                    raised = 1
                case CommSms():
                    raised = programs.get(exchange.name, 0)
                case Fused():
                    raised = 0
            if wait.target != raised or exchange.transfer is not Transfer.PULL:
                return False
    return any(
        isinstance(launch, Begin) or (isinstance(launch, Finish) and launch.turns) for launch in schedule.launches
    )


def mask_is_always_true(pair: SourcePair) -> bool:
    if pair.mutant.operator not in ("mask", "comparison"):
        return False
    dropped = pair.mutant.operator == "mask" or pair.mutant.after.strip() in ("<=", "!=")
    if not dropped or not _is_mask_line(pair):
        return False
    match pair.function():
        case "copy_share":
            uses = [node.args for node in pair.text.nodes(ast.Call) if called(node) == "copy_share"]
            sizes = [(_number(pair, use[2]), _number(pair, use[5])) for use in uses if len(use) == 6]
        case "begin_call" | "next_call":
            calls = pair.text.nodes(ast.Call)
            named = [{keyword.arg: _number(pair, keyword.value) for keyword in call.keywords} for call in calls]
            sizes = [(row["NUM_COUNTS"], row["BLOCK"]) for row in named if "NUM_COUNTS" in row]
        case _:
            return False
    # without counts there is one word all the same, which nobody uses
    return bool(sizes) and all(
        (size > 0 and block > 0 and size % block == 0) or (size, block) == (0, 1) for size, block in sizes
    )


def _is_mask_line(pair: SourcePair) -> bool:
    return pair.mutant.operator == "mask" or any(
        ast.unparse(one).startswith("inside = offsets <") or "mask=offsets <" in ast.unparse(one)
        for one, _ in pair.statements()
    )


def _number(pair: SourcePair, node: ast.expr) -> int:
    found = pair.text.number(node)
    return -1 if found is None else found


RULES: tuple[tuple[Holds, str], ...] = (
    (twice_in_a_row, "a wait, a fence or an access that leaves what is there already may be done twice."),
    (neighbours_commute, "neither statement uses what the other one makes, and at most one touches memory."),
    *scope_rules.RULES,
    *idle_rules.RULES,
    (never_passes, "the count starts at 0 in every call and is raised exactly as often as is waited for."),
    (
        barrier_after_a_barrier,
        "each notify stands in a program that stores nothing, or behind a count that had a barrier, with no store between.",
    ),
    (
        stores_of_one_program_to_two_tensors,
        "nobody reads either tensor before the program, the last of its kernel, has ended.",
    ),
    (epochs_of_two, "every rank goes on by two epochs a call, and epochs are compared with nothing but each other."),
    (
        epoch_and_a_wait,
        "only the program that ends a call changes the epoch, so that it may be read before a wait or after.",
    ),
    (refused_either_way, "an operator that one of two checks refuses is not built, whichever comes first."),
    (one_call_more, "the launch is the whole call: twice, it is two calls with the same tensors."),
    (
        told_before_the_last_copies,
        "peers are told that what is theirs to overwrite is read here: tiles have waited for pulls, and peers wait for pushes.",
    ),
    (joined_earlier, "pushes that wait for no kernel may be joined before one instead of behind it."),
    (programs_that_only_wait, "a second program that only waits for the same word ends with the first one."),
    (
        kernels_of_one_stream,
        "all kernels of a rank are on one stream, so that each is loaded when the one before has ended.",
    ),
    (mask_is_always_true, "every size is a whole number of blocks, so no lane lies outside."),
)
