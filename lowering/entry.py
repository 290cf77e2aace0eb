"""The end of an emitted file: a torch reference of the spec, and `main`, which runs and checks the file under torchrun."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

from lowering.dialect import Dialect
from lowering.libraries import library_values
from lowering.names import TORCH, class_name
from lowering.selfcheck.text import needed_by
from lowering.source import Source
from tilelink.ir.dtype import DTYPES
from tilelink.ir.ops.elementwise import FUNCTIONS, in_fp32, with_constants
from tilelink.ir.ops.states import StatesOp
from tilelink.ir.ops.user_fold import UserFold
from tilelink.ir.placement import Partial, Replicate, Shard
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import (
    AllGather,
    AllReduce,
    Attention,
    BoundNode,
    BoundSpec,
    Combine,
    DecodeAttention,
    Dispatch,
    Elementwise,
    Flatten,
    GroupedMatmul,
    LogWeights,
    Matmul,
    MergeStates,
    ReduceScatter,
    Route,
    SendRecv,
    Slice,
    Unflatten,
)
from tilelink.ir.user_op import UserOp, of_user


def print_reference(schedule: Schedule) -> str:
    """`reference(rank_inputs)`: every value on whole tensors; a Partial one as a list, the summand of each rank, or the one value
    that the states of ranks are merged to."""
    out = Source()
    states = {name for node in schedule.spec.nodes if isinstance(node.operation, MergeStates) for name in node.inputs}
    spec, library = schedule.spec, library_values(schedule)
    with out.block("def reference(rank_inputs):"):
        out.line(
            '"""Outputs of each rank: the spec on whole tensors in float64, and how far from it rounding may lead."""'
        )
        for value in spec.inputs:
            held = f'inputs["{value.name}"]'
            match value.placement:
                case Partial():
                    what = "of each rank" if value.name in states else "a summand of each rank"
                    out.line(f"{value.name} = [Near({held}) for inputs in rank_inputs]  # {what}")
                case Shard(dim):
                    out.line(f"{value.name} = Near.input([{held} for inputs in rank_inputs], {dim})")
                case Replicate():
                    out.line(f"{value.name} = Near.input([{held} for inputs in rank_inputs], None)")
        for node in spec.nodes:
            out.line(f"{node.output.name} = {_expression(spec, node, library)}")
        results = ", ".join(_parts(spec, name, spec.num_ranks) for name in spec.outputs)
        out.line(f"return list(zip({results}))")
    return out.text()


def _parts(spec: BoundSpec, name: str, num_ranks: int) -> str:
    """What each rank holds of a value that is no sum."""
    placement = spec.value(name).placement
    return f"{name}.parts({num_ranks}, {placement.dim})" if isinstance(placement, Shard) else f"[{name}] * {num_ranks}"


def _expression(spec: BoundSpec, node: BoundNode, library: Collection[str]) -> str:
    if isinstance(node.operation, Route):
        return f"routing_of({node.inputs[0]}, {node.operation.num_experts})"
    dtype = TORCH[node.output.dtype]
    split = f", library={dtype}" if node.output.name in library else ""
    match node.operation:
        case AllGather():
            return f"{node.inputs[0]}  # gathered: the same tensor, placed otherwise"
        case Flatten() | Unflatten():
            return f"{node.inputs[0]}.viewed({node.output.shape})"
        case SendRecv(by):
            placement = node.output.placement
            assert isinstance(placement, Shard)  # only parts can move from rank to rank
            return f"{node.inputs[0]}.shifted({spec.num_ranks}, {placement.dim}, {by})"
        case Slice(dim, start, stop) if node.output.placement == Partial():
            return f"[part.narrow({dim}, {start}, {stop - start}) for part in {node.inputs[0]}]"
        case Slice(dim, start, stop):
            return f"{node.inputs[0]}.narrow({dim}, {start}, {stop - start})"
        case ReduceScatter() | AllReduce():
            split = "" if node.inputs[0] in states_of(spec) else split
            return f"Near.sum({node.inputs[0]}{split}).rounded({dtype})"
        case DecodeAttention() as how:
            given = how.named(node.inputs)
            listed = ", ".join(given.get(name, "None") for name in ("q", "k", "v", "lengths", "pages"))
            return f"[decoded({listed}, {dtype}, {_numbers(spec, how)}).rounded({dtype})]"
        case LogWeights(DecodeAttention() as how, base2):
            given = how.named(node.inputs)
            listed = ", ".join(given.get(name, "None") for name in ("q", "k", "lengths", "pages"))
            return f"[decoded_logs({listed}, {_numbers(spec, how)}, base2={base2}).rounded({dtype})]"
        case LogWeights(MergeStates(), base2):
            return f"[merged_logs({node.inputs[1]}, {base2}).rounded({dtype})]"
        case MergeStates(base2):
            return f"[merged_states({', '.join(node.inputs)}, {base2}).rounded({dtype})]"
        case UserFold() as fold:
            made = f"{_user(fold.block.name, dtype, node.inputs, _chosen(fold))}.rounded({dtype})"
            return f"[{made}]" if node.output.placement == Partial() else made
        case _ if node.output.placement == Partial():
            return _summands(spec, node, split)
        case Combine() if split:
            return f"{_local(node, node.inputs, f'{split}, ranks={spec.num_ranks}')}.rounded({dtype})"
        case _:
            return f"{_local(node, node.inputs, split)}.rounded({dtype})"


def _numbers(spec: BoundSpec, how: DecodeAttention) -> str:
    return f"window={how.window}, soft_cap={how.soft_cap}, scale={how.scale}, ranks={spec.num_ranks}"


def _summands(spec: BoundSpec, node: BoundNode, split: str) -> str:
    """One for each rank: of operands that are sums, or of parts along an axis that is contracted."""
    placements = {name: spec.value(name).placement for name in node.inputs}
    if Partial() in placements.values():
        each = {name: name for name, placement in placements.items() if placement == Partial()}
    else:
        cut = (name for name, placement in placements.items() if isinstance(placement, Shard))
        each = {name: _parts(spec, name, spec.num_ranks) for name in cut}
    loop = ", ".join(f"{name}_part" for name in each)
    source = ", ".join(each.values())
    source = f"zip({source})" if len(each) > 1 else source
    operands = [f"{name}_part" if name in each else name for name in node.inputs]
    return f"[{_local(node, operands, split)}.rounded({TORCH[node.output.dtype]}) for {loop} in {source}]"


def _local(node: BoundNode, operands: Sequence[str], split: str) -> str:
    """What each rank computes, of what it holds."""
    listed = ", ".join(operands)
    match node.operation:
        case Matmul(transposed):
            return f"{operands[0]}.times({operands[1]}{'.T' if transposed else ''}{split})"
        case Elementwise(function, left, right):
            names = [f"x{number}" for number in range(len(operands))]
            numbers = (None if one is None else in_fp32(one) for one in (left, right))
            computed = FUNCTIONS[function].on_tensors(*with_constants(names, *numbers))
            return f"Near.map(lambda {', '.join(names)}: {computed}, {listed})"
        case Attention(causal, window, soft_cap, scale, zigzag):
            how = f"causal={causal}, window={window}, soft_cap={soft_cap}, scale={scale}"
            how += (", zigzag=NUM_RANKS" if zigzag else "") + split
            return f"attention_of({listed}, {TORCH[node.output.dtype]}, {how})"
        case LogWeights(Attention(causal, window, soft_cap, scale, zigzag), base2):
            how = f"causal={causal}, window={window}, soft_cap={soft_cap}, scale={scale}, base2={base2}"
            how += ", zigzag=NUM_RANKS" if zigzag else ""
            return f"attention_logs({', '.join(operands[:2])}, {how})"
        case Dispatch():
            return f"dispatched({listed})"
        case GroupedMatmul():
            return f"grouped({listed})"
        case Combine():
            return f"combined({listed}{split})"
        case UserOp(name=name):
            return _user(name, TORCH[node.output.dtype], operands)
        case _:
            raise AssertionError(f"{node.operation} computes nothing")


def _user(name: str, dtype: str, operands: Sequence[str], chosen: str = "") -> str:
    """The reference of the user's, of which `chosen` takes one result."""
    exact = f"lambda *tensors: in_float64({name}_reference, tensors){chosen}"
    return f"Near.user({exact}, {dtype}, {', '.join(operands)})"


def _chosen(fold: UserFold) -> str:
    return f"[{fold.number}]" if len(fold.finishes) > 1 else ""


_CHECKS = '''
def make_inputs(rank, seed, device):
    """Random inputs of a rank, by name: the same on every rank where they are replicated, other ones on each rank where not."""
    inputs = {}
    for number, (name, (shape, dtype)) in enumerate(INPUT_CLASS.INPUTS.items()):
        if name in EXPERTS:
            inputs[name] = random_ids(shape, EXPERTS[name], seed + (0 if name in REPLICATED else 5 * rank), device)
            continue
        if name in LENGTHS:
            inputs[name] = random_lengths(shape, LENGTHS[name], seed, device)
            continue
        if name in PAGES:
            inputs[name] = random_pages(shape, PAGES[name], seed + 5 * rank, device)
            continue
        if name in ELEMENTS:
            inputs[name] = random_elements(shape, ELEMENTS[name], seed + (0 if name in REPLICATED else 5 * rank), device)
            continue
        if name in LOGS:
            inputs[name] = random_logs(shape, seed + 5 * rank, device)
            continue
        generator = torch.Generator(device=device)
        generator.manual_seed(1000 * seed + 10 * number + (0 if name in REPLICATED else 1 + rank))
        inputs[name] = (torch.randn(shape, generator=generator, device=device) * SCALES[name]).to(dtype)
    return inputs


def check_call(op, call, seed):
    """Call once, with inputs and memory that no call has seen; each output against its bounds, as a dict of facts."""
    fabric = op.fabric
    rank_inputs = [make_inputs(rank, seed, fabric.device) for rank in range(fabric.num_ranks)]
    poison(op, fabric.barrier)
    with nan_when_empty():
        results = op(*rank_inputs[fabric.rank].values())
    results = results if isinstance(results, tuple) else (results,)
    found = []
    for output, result, near in zip(OUTPUTS, results, reference(rank_inputs)[fabric.rank], strict=True):
        comparison = Comparison.of(result, near)
        facts = {"call": call, "rank": fabric.rank, "output": output, "text": comparison.text()}
        found.append(facts | comparison._asdict())
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", default="", help="write the result to this file")
    arguments = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    OPENS
    op, start = INPUT_CLASS(fabric), time.perf_counter()
    here = [one for call in range(arguments.calls) for one in check_call(op, call, arguments.seed + call)]
    seconds = time.perf_counter() - start
    ranks = [[] for _ in range(fabric.num_ranks)]
    dist.all_gather_object(ranks, here)
    found = [one for listed in ranks for one in listed]
    wrong = [one for one in found if one["wrong"]]
    worst = max(one["error"] for one in found)
    if fabric.rank == 0:
        verdict = "NOT equal" if wrong else "equal"
        print(f"{verdict}: {fabric.num_ranks} ranks, {arguments.calls} calls, largest error {worst:.2f} of its bound")
        for one in wrong[:SHOWN]:
            print(f"{one['output']} on rank {one['rank']}, call {one['call']}: {one['text']}")
        if arguments.json:
            facts = {"equal": not wrong, "max_error": worst, "wrong": wrong, "calls": arguments.calls, "seconds": seconds}
            with open(arguments.json, "w") as file:
                json.dump(facts, file)
    CLOSES
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
'''


def _print_user_reference(out: Source, op: UserOp) -> None:
    if op.reference:
        out.lines(op.reference.rstrip())
        named = [node.name for node in ast.parse(op.reference).body if isinstance(node, ast.FunctionDef)]
        function = named[0] if named else ""
        if function and function != f"{op.name}_reference":
            out.line(f"{op.name}_reference = {function}")
    else:
        with out.block(f"def {op.name}_reference(*tensors):"):
            out.line(
                f'raise RuntimeError("tile op {op.name} was declared without a reference: nothing to compare with")'
            )
    out.line()
    out.line()


def _quoted(name: str) -> str:
    return f'"{name}"'


def print_main(schedule: Schedule, dialect: Dialect) -> str:
    """Constants of the check, what it compares with, and the check itself."""
    out = Source()
    spec = schedule.spec
    of_users = (of_user(node.operation) for node in spec.nodes)
    for op in {op.name: op for op in of_users if op is not None}.values():
        _print_user_reference(out, op)
    replicated = [value.name for value in spec.inputs if isinstance(value.placement, Replicate)]
    out.line(
        f"REPLICATED = {{{', '.join(_quoted(name) for name in replicated)}}}" if replicated else "REPLICATED = set()"
    )
    out.line(f"SCALES = {{{', '.join(f'{_quoted(name)}: {scale:.6g}' for name, scale in input_scales(spec).items())}}}")
    out.line(f"OUTPUTS = [{', '.join(_quoted(name) for name in spec.outputs)}]")
    out.line("SHOWN = 8  # outputs of calls that are wrong, at most")
    out.line()
    out.line()
    out.lines(print_reference(schedule))
    out.line()
    lines = _CHECKS.splitlines(keepends=True)
    drawn = {"EXPERTS": experts_of(spec), "LENGTHS": lengths_of(spec), "PAGES": pages_of(spec)}
    drawn["ELEMENTS"] = elements_of(spec)
    told = {constant: [f"{_quoted(name)}: {many}" for name, many in found.items()] for constant, found in drawn.items()}
    told["LOGS"] = [_quoted(name) for name in logs_of(spec)]
    for constant, entries in told.items():
        if entries:
            out.line(f"{constant} = {{{', '.join(entries)}}}")
        else:  # no input is of that kind
            first = next(number for number, line in enumerate(lines) if f"in {constant}" in line)
            del lines[first : first + 3]
    if any(told.values()):
        out.line()
    checks = "".join(lines)
    if matrices_of(spec):
        checks = checks.replace("INPUT_CLASS.INPUTS", "inputs_of(INPUT_CLASS, rank)")
    checks = checks.replace("INPUT_CLASS", class_name(schedule.name)).replace("CLOSES", dialect.closes)
    out.lines(checks.replace("OPENS", "\n    ".join(dialect.opens)))
    text = out.text()
    return f"{needed_by(text)}\n\n\n{text}"


def matrices_of(spec: BoundSpec) -> dict[str, int]:
    """Inputs that are matrices of experts of which the last ranks have fewer, and how many there are on all ranks."""
    cut = [value for value in spec.inputs if value.placement == Shard(0)]
    return {value.name: value.shape[0] for value in cut if value.shape[0] % spec.num_ranks}


def experts_of(spec: BoundSpec) -> dict[str, int]:
    """Inputs that say the experts of tokens, and how many experts there are."""
    found = {}
    for node in spec.nodes:
        if isinstance(node.operation, Route):
            assert isinstance(node.operation.num_experts, int), "bound"
            found[node.inputs[0]] = node.operation.num_experts
    return found


def lengths_of(spec: BoundSpec) -> dict[str, int]:
    """Inputs that say how many tokens sequences have, and the most that there are."""
    found: dict[str, int] = {}
    for node in spec.nodes:
        if isinstance(node.operation, DecodeAttention) and node.operation.lengths:
            given = node.operation.named(node.inputs)
            pages = spec.value(given["pages"]).shape[1] if node.operation.pages else 1
            most = spec.value(given["k"]).shape[1] * pages
            found[given["lengths"]] = min(most, found.get(given["lengths"], most))
    return found


def pages_of(spec: BoundSpec) -> dict[str, int]:
    """Inputs that list the pages of sequences, and how many pages a rank has."""
    found: dict[str, int] = {}
    for node in spec.nodes:
        if isinstance(node.operation, DecodeAttention) and node.operation.pages:
            given = node.operation.named(node.inputs)
            pages = spec.value(given["k"]).local[0]
            found[given["pages"]] = min(pages, found.get(given["pages"], pages))
    return found


def elements_of(spec: BoundSpec) -> dict[str, int]:
    """Inputs of int32 that folds of the user's read, and how many elements the axis has that is folded over."""
    found: dict[str, int] = {}
    for node in spec.nodes:
        if not isinstance(node.operation, UserFold):
            continue
        values = [spec.value(name) for name in node.inputs]
        reads = [index for _, index in node.operation.block.reads]
        axes = (dict(zip(index, value.shape, strict=True)) for value, index in zip(values, reads, strict=True))
        most = next(extents[node.operation.over] for extents in axes if node.operation.over in extents)
        for value in values:
            if DTYPES[value.dtype].integer:
                found[value.name] = min(most, found.get(value.name, most))
    return found


def logs_of(spec: BoundSpec) -> list[str]:
    """Inputs that are logarithms of sums of weights."""
    return list(dict.fromkeys(node.inputs[1] for node in spec.nodes if isinstance(node.operation, MergeStates)))


def states_of(spec: BoundSpec) -> list[str]:
    """Values of which ranks have states, which are merged and not added."""
    made = ((node, getattr(node.operation, "how", node.operation)) for node in spec.nodes)
    return [node.output.name for node, operation in made if isinstance(operation, StatesOp | UserFold)]


def input_scales(spec: BoundSpec) -> dict[str, float]:
    """Standard deviation of each random input: right operands of matmuls shrink by sqrt(K), so that values stay near 1."""
    scales = {value.name: 1.0 for value in spec.inputs}
    origin = {value.name: value.name for value in spec.inputs}
    for node in spec.nodes:
        if isinstance(node.operation, AllGather | SendRecv | Slice) and node.inputs[0] in origin:
            origin[node.output.name] = origin[node.inputs[0]]
        if isinstance(node.operation, GroupedMatmul):
            scales[origin[node.inputs[1]]] = spec.value(node.inputs[1]).shape[1] ** -0.5
        rights = node.inputs[1:] if isinstance(node.operation, Matmul | UserOp) else ()
        for name in rights:
            shape = spec.value(name).shape
            if name in origin and len(shape) == 2:
                lies_as_n_k = isinstance(node.operation, Matmul) and node.operation.transposed
                scales[origin[name]] = shape[1 if lies_as_n_k else 0] ** -0.5
    return scales
