"""The end of an emitted file: a torch reference of the spec, and `main`, which runs and checks the file under torchrun."""

from __future__ import annotations

import ast

from lowering.dialect import Dialect
from lowering.names import class_name
from lowering.source import Source
from tilelink.ir.functions import FUNCTIONS, with_constants
from tilelink.ir.placement import Replicate
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import (
    AllGather,
    AllReduce,
    BoundNode,
    BoundSpec,
    Elementwise,
    Matmul,
    ReduceScatter,
    SendRecv,
    Slice,
)
from tilelink.ir.user_op import UserOp

# what each elementwise function is in torch, where it is written otherwise than in a kernel
TORCH_FUNCTIONS = {
    "silu": "torch.nn.functional.silu({0})",
    "gelu": "torch.nn.functional.gelu({0})",
    "relu": "torch.relu({0})",
}


def print_reference(schedule: Schedule) -> str:
    """`reference(x, w, …)`: every value in fp32, collectives by torch.distributed."""
    out = Source()
    spec = schedule.spec
    inputs = [value.name for value in spec.inputs]
    with out.block(f"def reference({', '.join(inputs)}):"):
        out.line('"""The spec in torch, in fp32, on the default process group."""')
        out.line(f"{', '.join(inputs)} = {', '.join(f'{name}.float()' for name in inputs)}")
        for node in spec.nodes:
            out.line(f"{node.output.name} = {_expression(node)}")
        results = ", ".join(spec.outputs)
        out.line(f"return ({results}{',' if len(spec.outputs) == 1 else ''})")
    return out.text()


def _expression(node: BoundNode) -> str:
    match node.operation:
        case Matmul(transposed):
            return f"{node.inputs[0]} @ {node.inputs[1]}{'.T' if transposed else ''}"
        case Elementwise(function, left, right):
            text = TORCH_FUNCTIONS.get(function, FUNCTIONS[function].text)
            return text.format(*with_constants(node.inputs, left, right))
        case Slice(dim, start, stop):
            return f"{node.inputs[0]}[{':, ' * dim}{start}:{stop}]"
        case AllGather(dim):
            return f"gathered({node.inputs[0]}, {dim})"
        case ReduceScatter(dim):
            return f"summed({node.inputs[0]}).chunk(dist.get_world_size(), {dim})[dist.get_rank()]"
        case AllReduce():
            return f"summed({node.inputs[0]})"
        case SendRecv(by):
            return f"shifted({node.inputs[0]}, {by})"
        case UserOp(name=name):
            return f"{name}_reference({', '.join(node.inputs)})"


_COLLECTIVES = {  # of the reference: name, text
    "gathered": """
def gathered(x, dim):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x.contiguous())
    return torch.cat(parts, dim)

""",
    "summed": """
def summed(x):
    total = x.clone()
    dist.all_reduce(total)
    return total

""",
    "shifted": """
def shifted(x, by):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x.contiguous())
    return parts[(dist.get_rank() - by) % dist.get_world_size()]

""",
}

_CHECKS = '''
def make_inputs(fabric, seed):
    """Random inputs: the same on every rank where they are replicated, other ones on each rank where not."""
    inputs = []
    for number, (name, (shape, dtype)) in enumerate(INPUT_CLASS.INPUTS.items()):
        generator = torch.Generator(device=fabric.device)
        generator.manual_seed(1000 * seed + 10 * number + (0 if name in REPLICATED else 1 + fabric.rank))
        scale = SCALES[name]
        inputs.append((torch.randn(shape, generator=generator, device=fabric.device) * scale).to(dtype))
    return inputs


def error_of(results, expected):
    """Largest relative error (Frobenius norm) over the outputs and ranks; nan counts as infinite."""
    worst = torch.zeros(1, device=expected[0].device)
    for result, wanted in zip(results, expected, strict=True):
        error = (result.float() - wanted).norm() / wanted.norm().clamp_min(1e-30)
        worst = torch.maximum(worst, torch.nan_to_num(error, nan=float("inf")).reshape(1))
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    return worst.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", default="", help="write the result to this file")
    arguments = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    OPENS
    op = INPUT_CLASS(fabric)
    worst, start = 0.0, time.perf_counter()
    for call in range(arguments.calls):
        inputs = make_inputs(fabric, arguments.seed + call)
        results = op(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        worst = max(worst, error_of(results, reference(*inputs)))
    seconds = time.perf_counter() - start
    equal = worst <= TOLERANCE
    if fabric.rank == 0:
        verdict = "equal" if equal else "NOT equal"
        print(f"{verdict}: {fabric.num_ranks} ranks, {arguments.calls} calls, relative error {worst:.1e} (tolerance {TOLERANCE})")
        if arguments.json:
            with open(arguments.json, "w") as file:
                json.dump({"equal": equal, "max_error": worst, "tolerance": TOLERANCE, "seconds": seconds}, file)
    CLOSES
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
'''

TOLERANCES = {"bf16": 1e-2, "fp16": 2e-3, "fp32": 1e-5}


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
    """Constants of the check, then the check itself."""
    out = Source()
    spec = schedule.spec
    for node in spec.nodes:
        if isinstance(node.operation, UserOp):
            _print_user_reference(out, node.operation)
    replicated = [value.name for value in spec.inputs if isinstance(value.placement, Replicate)]
    out.line(
        f"REPLICATED = {{{', '.join(_quoted(name) for name in replicated)}}}" if replicated else "REPLICATED = set()"
    )
    out.line(f"SCALES = {{{', '.join(f'{_quoted(name)}: {scale:.6g}' for name, scale in input_scales(spec).items())}}}")
    out.line(f"TOLERANCE = {TOLERANCES[spec.inputs[0].dtype]}  # relative, of {spec.inputs[0].dtype}")
    out.line()
    out.line()
    reference = print_reference(schedule)
    out.lines(reference)
    out.line()
    checks = "".join(text for name, text in _COLLECTIVES.items() if f"{name}(" in reference) + _CHECKS
    checks = checks.replace("INPUT_CLASS", class_name(schedule.name)).replace("CLOSES", dialect.closes)
    out.lines(checks.replace("OPENS", "\n    ".join(dialect.opens)))
    return out.text()


def input_scales(spec: BoundSpec) -> dict[str, float]:
    """Standard deviation of each random input: right operands of matmuls shrink by sqrt(K), so that values stay near 1."""
    scales = {value.name: 1.0 for value in spec.inputs}
    origin = {value.name: value.name for value in spec.inputs}
    for node in spec.nodes:
        if isinstance(node.operation, AllGather | SendRecv | Slice) and node.inputs[0] in origin:
            origin[node.output.name] = origin[node.inputs[0]]
        rights = node.inputs[1:] if isinstance(node.operation, Matmul | UserOp) else ()
        for name in rights:
            shape = spec.value(name).shape
            if name in origin and len(shape) == 2:
                lies_as_n_k = isinstance(node.operation, Matmul) and node.operation.transposed
                scales[origin[name]] = shape[1 if lies_as_n_k else 0] ** -0.5
    return scales
