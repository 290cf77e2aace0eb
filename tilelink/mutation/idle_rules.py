"""When a mutant changes nothing but time, or what no call does."""

from __future__ import annotations

import ast

from tilelink.mutation.source_pair import Holds, SourcePair
from tilelink.mutation.text import SourceText, called, last_word

_OF_A_PLACE = "(left.numel + right.numel) // PLACES"
_CLOCK = {"cycles", "inline_asm_elementwise"}
_TIMES = {"took", "begun", "clocks"}  # of kernels, which only `until` reads


def pace_of_pieces(pair: SourcePair) -> bool:
    operator, after = pair.mutant.operator, pair.mutant.after.strip()
    for one, _ in pair.statements():
        if (
            isinstance(one, ast.Expr)
            and "nanosleep" in ast.unparse(one)
            and operator in ("drop fence", "duplicate fence")
        ):
            return True
        if isinstance(one, ast.While):  # other conditions may hold for ever
            kept = operator == "drop wait" or (operator == "comparison" and after == "<=")
        else:
            kept = not operator.startswith(("drop", "duplicate", "swap"))
        if kept and _only_time(one):
            return True
    return False


def _only_time(statement: ast.stmt) -> bool:
    """A wait for the clock, or what such waits are for."""
    calls = {last_word(called(node)) for node in ast.walk(statement) if isinstance(node, ast.Call)}
    if isinstance(statement, ast.While):
        return calls == _CLOCK
    if isinstance(statement, ast.Assign):
        names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
        return bool(names) and set(names) <= _TIMES and calls <= _CLOCK
    return isinstance(statement, ast.If) and not statement.orelse and all(map(_only_time, statement.body)) and not calls


def branch_that_nobody_takes(pair: SourcePair) -> bool:
    name, other = pair.mutant.before.strip(), pair.mutant.after.strip()
    if pair.mutant.operator == "condition" and name.isidentifier():
        return _given(pair.text, pair.function(), name, 4) == {other}
    return any(is_never_done(pair.text, one) for one, _ in pair.statements())


def is_never_done(text: SourceText, node: ast.AST) -> bool:
    """Whether it stands under a name that every caller gives the other value of."""
    while not isinstance(node, ast.FunctionDef):
        above = text.parent(node)
        if isinstance(above, ast.If) and isinstance(above.test, ast.Name):
            given = _given(text, text.function(above).name, above.test.id, 4)
            if (node in above.body and given == {"False"}) or (node in above.orelse and given == {"True"}):
                return True
        node = above
    return False


def loads_in_any_order(pair: SourcePair) -> bool:
    if not pair.mutant.operator.startswith("swap "):
        return False
    for one, other in pair.statements():
        if other is not None:
            nodes = (node for two in (one, other) for node in ast.walk(two))
            calls = {last_word(called(node)) for node in nodes if isinstance(node, ast.Call)}
            if "async_copy_global_to_shared" in calls and calls <= {"async_copy_global_to_shared", "expect", "index"}:
                return True
    return False


def turn_given_later(pair: SourcePair) -> bool:
    """Behind the wait for what this group multiplies itself, instead of before it."""
    if pair.mutant.operator != "swap raise":
        return False
    return any(
        other is not None and _called(one) == "mbarrier.arrive" and last_word(_assigned(other)) == "warpgroup_mma_wait"
        for one, other in pair.statements()
    )


def _assigned(statement: ast.stmt) -> str:
    return called(statement.value) if isinstance(statement, ast.Assign) else ""


def no_call_meets(text: SourceText) -> bool:
    """Whether calls do not end together with those of peers, so that what stands under `MEETS` is never done."""
    given = [node.value for node in text.nodes(ast.keyword) if node.arg == "MEETS"]
    return bool(given) and all(ast.unparse(value) in ("False", "MEETS") for value in given)


def told_behind_the_turn(pair: SourcePair) -> bool:
    if pair.mutant.operator != "swap raise" or pair.function() != "close_call" or not no_call_meets(pair.text):
        return False
    calls = [(_called(one), _called(other)) for one, other in pair.statements() if other is not None]
    return ("count_at_peers", "next_call") in calls


def never_below_zero(pair: SourcePair) -> bool:
    if pair.mutant.operator != "comparison" or (pair.mutant.before.strip(), pair.mutant.after.strip()) != (">", "!="):
        return False
    loops = {
        node.target.id
        for node in pair.text.nodes(ast.For)
        if isinstance(node.target, ast.Name) and called(node.iter) == "range" and isinstance(node.iter, ast.Call)
        if len(node.iter.args) == 1 and pair.text.function(node).name == pair.function()
    }
    compared = [
        ast.unparse(node.left)
        for one, _ in pair.statements()
        for node in ast.walk(one)
        if isinstance(node, ast.Compare) and ast.unparse(node.comparators[0]) == "0" and isinstance(node.ops[0], ast.Gt)
    ]
    return len(compared) == 1 and compared[0] in loops


def offset_of_nothing(pair: SourcePair) -> bool:
    """`a + b` where every caller gives 0 for `b`."""
    if pair.mutant.operator != "offset":
        return False
    before, after = pair.mutant.before, pair.mutant.after
    name = before.removeprefix(after).strip().removeprefix("+").strip()
    return before.startswith(after) and name.isidentifier() and _given(pair.text, pair.function(), name, 4) == {"0"}


def whole_places(pair: SourcePair) -> bool:
    """`left` and `right` are rings of PLACES places each."""
    return pair.mutant.operator == "rounding" and pair.mutant.before.strip().startswith(_OF_A_PLACE)


def pointer_of_this_rank(pair: SourcePair) -> bool:
    """It is loaded as well, and what follows leaves it out; with a power of 2 of ranks there is no other lane."""
    if pair.mutant.operator != "mask" or pair.function() != "count_at_peers":
        return False
    loads = any(isinstance(one, ast.Assign) and "load(peer_words" in ast.unparse(one) for one, _ in pair.statements())
    ranks = _given(pair.text, "count_at_peers", "NUM_RANKS", 4)
    return loads and all(each.isdigit() and int(each).bit_count() == 1 for each in ranks)


def _given(text: SourceText, function: str, parameter: str, depth: int) -> set[str]:
    """What callers give for a parameter, through `depth` functions that pass it on."""
    found = [one for one in text.kernels if one.name == function]
    names = [argument.arg for argument in found[0].args.args] if len(found) == 1 else []
    if parameter not in names or not depth:
        return {str(text.constants.get(parameter, parameter))}
    given: set[str] = set()
    for call in (node for node in text.nodes(ast.Call) if called(node) == function):
        named = {keyword.arg: keyword.value for keyword in call.keywords}
        named |= dict(zip(names, call.args, strict=False))
        if parameter not in named:
            return {parameter}
        value = ast.unparse(named[parameter])
        given |= _given(text, text.function(call).name, value, depth - 1) if value.isidentifier() else {value}
    return given or {parameter}


def _called(statement: ast.stmt) -> str:
    return called(statement.value) if isinstance(statement, ast.Expr) else ""


RULES: tuple[tuple[Holds, str], ...] = (
    (pace_of_pieces, "how long a warpgroup waits between two pieces changes nothing but time."),
    (
        told_behind_the_turn,
        "a peer counts in the next call only when it has been told of this one, in which what it counted has been taken off.",
    ),
    (never_below_zero, "the variable of a loop over a range from 0 on is more than 0 where it is not 0."),
    (offset_of_nothing, "the term that is left out is 0 in every call."),
    (branch_that_nobody_takes, "whoever calls it gives a constant with which the branch is not there."),
    (whole_places, "the memory of a ring is so many places of one size, so that nothing is rounded."),
    (pointer_of_this_rank, "an address more is loaded, with which nothing is done."),
    (
        loads_in_any_order,
        "loads into shared memory come in any order, and no phase ends before its bytes are announced.",
    ),
    (turn_given_later, "the other group begins a little later: this one waits for nobody meanwhile."),
)
