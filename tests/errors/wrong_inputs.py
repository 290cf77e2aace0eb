"""The table of wrong inputs: how each is made, which error answers it, a fact of the message, the exit code.

A command is what follows `tilelink` on the command line, in a folder with the files of `FILES`. A snippet is Python behind
`PRELUDE`. The exit code of a snippet is the one of a command that meets the same error.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """`tilelink LINE`."""

    line: str
    error: str  # its class; USAGE where the command line itself is wrong, NONE where the answer is no error
    says: str
    exit_code: int = 2


@dataclass(frozen=True)
class Snippet:
    """Python text, with the names of `PRELUDE`."""

    text: str
    error: str
    says: str
    exit_code: int = 2


USAGE, NONE = "Usage", ""

PRELUDE = """\
import numpy as np
import torch
import torch.nn.functional as F
import triton
import triton.language as tl

import tilelink
from tilelink import CommSms, Partial, Replicate, Schedule, Shard, Tensor, all_gather, all_reduce, axes, dims, matmul, overlap
from tilelink.emulator import World
from tilelink.runtime.run import run_emulated

M, N, K = dims("M N K")
m, n = axes("m n")
SIZES = {"M": 64, "K": 32, "N": 64}


@overlap
def ag_gemm(x: Tensor(M, K, placement=Shard(0)), w: Tensor(K, N, placement=Shard(1))):
    return matmul(all_gather(x, dim=0), w)


def traced(body):
    def f(x, w):
        return body(x, w)

    f.__annotations__ = {"x": Tensor(M, K, placement=Shard(0)), "w": Tensor(K, N)}
    return overlap(f)


"""

SPEC = """\
import tilelink
from tilelink import Shard, Tensor, dims

M, N, K = dims("M N K")


@tilelink.overlap
def ag_gemm(x: Tensor(M, K, placement=Shard(0)), w: Tensor(K, N, placement=Shard(1))):
    return tilelink.matmul(tilelink.all_gather(x, dim=0), w)


@tilelink.overlap
def gemm_rs(x: Tensor(M, K, placement=Shard(1)), w: Tensor(K, N, placement=Shard(0))):
    return tilelink.reduce_scatter(tilelink.matmul(x, w), dim=0)


number = 3
"""

OPERATOR = """\
import torch


class Twice:
    INPUTS = {"x": ((8,), torch.float32)}
    NUM_RANKS = 2
    NUM_SMS = 4

    def __init__(self, fabric):
        pass

    def __call__(self, x):
        return 2 * x


def reference(x):
    return (2 * x,)
"""

FILES: dict[str, str | bytes] = {
    "layers.py": SPEC,
    "broken.py": "x = 1\ny = x +\n",
    "raising.py": "import json\n\njson.loads('')\n",
    "leaving.py": "import sys\n\nsys.exit(3)\n",
    "bad_spec.py": SPEC.replace("dim=0), w)", "dim=1), w)"),
    "no_operator.py": "x = 3\n",
    "two_operators.py": OPERATOR + OPERATOR.partition("\n\n\n")[2].replace("Twice", "Again"),
    "operator.py": OPERATOR,
    "large.py": OPERATOR.replace("(8,)", "(1 << 20, 1 << 16)"),
    "bad_inputs.py": OPERATOR.replace("((8,), torch.float32)", "8"),
    "bad_reference.py": OPERATOR.replace("return (2 * x,)", "return (x.no_such_method(),)"),
    "picture.py": b"\x89PNG\xff\xfe\x00",
    "empty.toml": "",
    "broken.toml": "name = \n",
    "binary.toml": b"\xff\xfe\x00",
    "list.toml": "name = ['a']\nlevels = 3\n",
    "results.json": "{}",
}

SIZES = "M=64 K=32 N=64"
PLAN = f"plan layers.py:ag_gemm {SIZES} --topology laptop-switch --ranks 2"

COMMANDS = [
    # the command line itself
    Command("plna", USAGE, "Did you mean 'plan'?"),
    Command("topo shw", USAGE, "No such command 'shw'"),
    Command("plan", USAGE, "Missing argument"),
    Command(f"{PLAN} --rank 2", USAGE, "No such option: --rank"),
    Command(f"{PLAN} --ranks four", USAGE, "Invalid value for '--ranks': it takes an integer"),
    Command(f"{PLAN} --ranks 2.5", USAGE, "Invalid value for '--ranks': it takes an integer"),
    Command(f"{PLAN} --ranks", USAGE, "'--ranks' requires an argument"),
    Command("run layers.py:ag_gemm --device gpu", USAGE, "'gpu' is not one of 'cpu', 'cuda'"),
    Command("run layers.py:ag_gemm --calls 0", USAGE, "Invalid value for '--calls': it takes at least 1"),
    Command("verify layers.py:ag_gemm --workers 0", USAGE, "it takes at least 1"),
    Command("verify layers.py:ag_gemm --seeds -1", USAGE, "it takes at least 0"),
    Command("verify --api operator.py --vendor intel", USAGE, "'intel' is not one of"),
    Command("mutate layers.py:ag_gemm --workers 3", USAGE, "it takes at most 2"),
    Command("bench ag_gemm --row-budget soon", USAGE, "it takes a number"),
    # spec files
    Command("plan layers.py M=8", "NoFunctionNamed", "layers.py:ag_gemm"),
    Command("plan :ag_gemm", "NoFunctionNamed", "path.py:function"),
    Command("plan layer.py:ag_gemm", "SpecFileMissing", "Did you mean 'layers.py'?"),
    Command("plan .:ag_gemm", "SpecFileMissing", "there is no file '.'"),
    Command("plan layers.py:ag_gem", "NoSuchFunction", "Did you mean 'ag_gemm'?"),
    Command("plan layers.py:number", "NotAnOverlap", "a value of type int"),
    Command("plan broken.py:f", "SpecFileBroken", "broken.py:2"),
    Command("plan raising.py:f", "SpecFileBroken", "raising.py:3"),
    Command("plan leaving.py:f", "SpecFileBroken", "SystemExit: 3"),
    Command("plan picture.py:f", "SpecFileBroken", "picture.py"),
    Command("plan bad_spec.py:ag_gemm", "NothingToGather", "dim=0"),
    # sizes
    Command("plan layers.py:ag_gemm M=64 K=32", "MissingSize", "N is missing"),
    Command(f"{PLAN} Q=3", "UnknownSize", "has no size 'Q'"),
    Command("plan layers.py:ag_gemm M=many K=32 N=64", "SizeNotInteger", "M=8192"),
    Command("plan layers.py:ag_gemm M=0 K=32 N=64", "SizeNotPositive", "at least 1"),
    Command("plan layers.py:ag_gemm M=-64 K=32 N=64", "SizeNotPositive", "at least 1"),
    Command("plan layers.py:ag_gemm M K=32 N=64", "MalformedSize", "NAME=INTEGER"),
    Command("plan layers.py:ag_gemm =64", "MalformedSize", "NAME=INTEGER"),
    Command(f"{PLAN} M=64", "DuplicateSize", "Give each size once"),
    Command(f"{PLAN} ranks=4", "UnknownSize", "has no size 'ranks'"),
    Command(f"{PLAN} dtype=4", "OptionAmongSizes", "Write --dtype 4"),
    Command("plan layers.py:ag_gemm M=65 K=32 N=64 --ranks 2", "NotDivisible", "64, 66"),
    Command(f"plan layers.py:ag_gemm M={10**30} K=32 N=64", "IllegalSize", "in 32 bits"),
    Command(f"plan layers.py:ag_gemm M={'9' * 5000} K=32 N=64", "SizeNotInteger", "count of elements"),
    Command("plan layers.py:ag_gemm M=100000000 K=4096000 N=143360000", "TooLargeToPlan", "GiB"),
    # dtypes, targets, topologies, ranks
    Command(f"{PLAN} --dtype fp8", "UnknownDtype", "bf16, fp16, fp32"),
    Command(f"emit layers.py:ag_gemm {SIZES} --target cuda", "UnknownTarget", "triton-distributed"),
    Command(f"plan layers.py:ag_gemm {SIZES} --topology h200", "UnknownTopology", "Did you mean 'h200-nvswitch'?"),
    Command("topo show", USAGE, "Missing argument"),
    Command("topo show h20-nvswich", "UnknownTopology", "Did you mean 'h20-nvswitch'?"),
    Command("topo show absent.toml", "UnreadableDescriptor", "No such file"),
    Command("topo show ./", "UnreadableDescriptor", "directory"),
    Command("topo show binary.toml", "UnreadableDescriptor", "not UTF-8"),
    Command("topo show empty.toml", "MalformedDescriptor", "missing"),
    Command("topo show broken.toml", "MalformedDescriptor", "line 1"),
    Command("topo show list.toml", "MalformedDescriptor", "key levels"),
    Command("topo show h200-nvswitch --ranks 9", "IllegalRanks", "2 to 8"),
    Command("topo show h200-nvswitch --ranks 1", "IllegalRanks", "a single rank has no peer"),
    Command("topo show h200-nvswitch --ranks -4", "IllegalRanks", "2 to 8"),
    Command("topo detect", "NothingDetected", "torch sees no GPU"),
    # pins
    Command(f"{PLAN} --pin colour=red", "UnknownPin", "colour"),
    Command(f"{PLAN} --pin mover", "MalformedPin", "--pin NAME=VALUE"),
    Command(f"{PLAN} --pin chunks=many", "IllegalPin", "chunks"),
    Command(f"{PLAN} --pin chunks={10**30}", "IllegalPin", "chunks"),
    Command(f"{PLAN} --pin group={10**30}", "IllegalPin", "group"),
    Command(f"{PLAN} --pin tile=0x0x0/0w0s", "IllegalPin", "tile"),
    Command(f"{PLAN} --pin mover=CommSms(0)", "IllegalPin", "CommSms"),
    Command(f"{PLAN} --pin chunks=2 --pin chunks=4", "DuplicatePin", "2, 4"),
    Command(f"{PLAN} --pin mover=Fused() --pin transfer=push", "NoLegalSchedule", "mover=Fused()", 3),
    # runs and files
    Command(f"run layers.py:ag_gemm {SIZES} --ranks 2 --device cuda", "FabricUnavailable", "torch sees no GPU"),
    Command(
        "run layers.py:ag_gemm M=8192 K=4096 N=14336 --ranks 4 --max-minutes 1", "TooLongToEmulate", "--max-minutes"
    ),
    Command(f"emit layers.py:ag_gemm {SIZES} --ranks 2 -o absent/out.py", "OutputNotWritable", "existing folder"),
    Command(f"emit layers.py:ag_gemm {SIZES} --ranks 2 -o .", "OutputNotWritable", "cannot write ."),
    Command("verify absent.py", "NotAnOperatorFile", "No such file"),
    Command("verify no_operator.py", "NotAnOperatorFile", "classes with INPUTS in it: none"),
    Command("verify two_operators.py", "NotAnOperatorFile", "Twice, Again"),
    Command("verify broken.py", "NotAnOperatorFile", "it does not run: SyntaxError"),
    Command("verify raising.py", "NotAnOperatorFile", "it does not run: JSONDecodeError"),
    Command("verify leaving.py", "NotAnOperatorFile", "it does not run: SystemExit"),
    Command("verify picture.py", "NotAnOperatorFile", "picture.py"),
    Command("verify bad_inputs.py", "NotAnOperatorFile", "INPUTS"),
    Command("verify bad_reference.py --workers 1", "FileReferenceFailed", "no_such_method"),
    Command("verify operator.py --ranks 3", "FileIsForOthers", "--ranks 2"),
    Command("verify operator.py --sms 3", "FileIsForOthers", "--sms 4 or more"),
    Command("verify operator.py M=8", "SizesOfFile", "operator.py:FUNCTION M=8"),
    Command("verify operator.py --replay calls", "UnknownReplay", "SCENARIO,POLICY"),
    Command("verify operator.py --vendor nvidia", "OptionOfApi", "--api"),
    Command("verify large.py", "TooLongToEmulate", "emit the same choices for small sizes"),
    Command("verify --api absent.py", "SourceMissing", "absent.py"),
    Command("verify --api broken.py", "SourceNotPython", "2"),
    Command("verify --api operator.py", NONE, "nothing to check"),
    # benchmarks
    Command("bench no_such_operator", "UnknownOperator", "no_such_operator"),
    Command("bench ag_gemm --plans absent.json", "NotPlans", "absent.json"),
    Command("bench ag_gemm --plans results.json", "NotPlans", "results.json"),
    Command("bench ag_gemm --topology nowhere", "UnknownTopology", "nowhere"),
    Command("bench ag_gemm", "FabricUnavailable", "torch sees no GPU"),
]

SNIPPETS = [
    # declarations
    Snippet("dims(3)", "BadNames", 'dims("M N K")'),
    Snippet('axes("m-1 n")', "BadNames", 'axes("M N K")'),
    Snippet("Tensor(M, N, K, M, N)", "BadShape", "5 dimensions"),
    Snippet("Tensor(-3)", "BadShape", "positive integer"),
    Snippet("Tensor('M')", "BadShape", "dims() symbol"),
    Snippet("Tensor(M, placement=3)", "UnknownPlacement", "Shard(dim)"),
    Snippet("Tensor(M, placement=Shard(9))", "ShardOutOfRange", "Shard(0)"),
    Snippet("overlap(3)", "NotAFunction", "is not a Python function"),
    Snippet("overlap(lambda x: x)", "BadAnnotation", "annotated with nothing"),
    Snippet("tilelink.matmull", "UnknownOp", "Did you mean 'matmul'?"),
    Snippet("traced(lambda x, w: None)", "NothingReturned", "None"),
    Snippet("traced(lambda x, w: [matmul(x, w)])", "NothingReturned", "a tuple of tensors"),
    # what has no meaning while a function is traced
    Snippet("traced(lambda x, w: x if x else w)", "NoValues", "`if`"),
    Snippet("traced(lambda x, w: x if w.T else w)", "NoValues", "w.T"),
    Snippet("traced(lambda x, w: [part for part in x])", "NoValues", "a loop"),
    Snippet("traced(lambda x, w: len(x))", "NoValues", "x.shape[0]"),
    Snippet("traced(lambda x, w: float(x))", "NoValues", "float()"),
    Snippet("traced(lambda x, w: np.asarray(x))", "NoValues", "numpy"),
    Snippet("traced(lambda x, w: 3 in x)", "NoValues", "`in`"),
    Snippet("traced(lambda x, w: x if x.shape[0] > 4 else w)", "SymbolicSize", "M > 4"),
    Snippet("traced(lambda x, w: [x for _ in range(M)])", "SymbolicSize", "sizes are symbols"),
    Snippet("traced(lambda x, w: x > 0)", "UnknownOp", "'>'"),
    Snippet("traced(lambda x, w: x == 0)", "UnknownOp", "'=='"),
    Snippet("traced(lambda x, w: x ** 2)", "UnknownOp", "'**'"),
    Snippet("traced(lambda x, w: np.exp(x))", "UnknownOp", "numpy.exp"),
    Snippet("traced(lambda x, w: torch.cat([x, x]))", "UnknownOp", "torch.cat"),
    Snippet("traced(lambda x, w: F.softmax(x, dim=-1))", "UnknownOp", "torch.nn.functional.softmax"),
    Snippet("traced(lambda x, w: F.gelu(x, approximate='tanh'))", "UnknownOp", "approximate"),
    Snippet("traced(lambda x, w: x.view(3, 4))", "UnknownOp", "view"),
    Snippet("traced(lambda x, w: torch.ones(3, 3) @ x)", "NotATensor", "a torch.Tensor of shape [3, 3]"),
    Snippet("traced(lambda x, w: matmul(x, np.ones((3, 3))))", "NotATensor", "a numpy.ndarray of shape [3, 3]"),
    Snippet("traced(lambda x, w: torch.nn.Linear(3, 3)(x))", "NotATensor", "Parameter of shape [3, 3]"),
    Snippet("traced(lambda x, w: matmul(x, None))", "NotATensor", "None"),
    Snippet("traced(lambda x, w: matmul(x, x))", "MatmulMismatch", "contracted dimensions"),
    Snippet("traced(lambda x, w: all_gather(x, dim=7))", "BadDim", "Legal dims: 0, 1"),
    Snippet("traced(lambda x, w: all_gather(w, dim=0))", "NothingToGather", "Replicate()"),
    Snippet("traced(lambda x, w: all_reduce(x))", "NothingToReduce", "Partial"),
    # plans
    Snippet("ag_gemm(torch.ones(8, 4), torch.ones(4, 8))", "NotCompiled", "ag_gemm.compile(group, M=…, K=…, N=…)"),
    Snippet('ag_gemm.plan(pin="mover=Fused()", **SIZES)', "PinsNotAMapping", '{"mover": tilelink.CommSms(16)'),
    Snippet("ag_gemm.plan(pin={'mover': object()}, **SIZES)", "IllegalPin", "mover=<object"),
    Snippet("ag_gemm.plan(M=64.0, K=32, N=64)", "IllegalSize", "it is not an integer"),
    Snippet("ag_gemm.plan(M=True, K=32, N=64)", "IllegalSize", "it is not an integer"),
    Snippet("ag_gemm.plan(M=torch.ones(2), K=32, N=64)", "IllegalSize", "it is not an integer"),
    Snippet("ag_gemm.plan(3, 2, **SIZES)", "UnknownTopology", "topology 3"),
    Snippet("ag_gemm.plan(None, 2, **SIZES)", "UnknownTopology", "topology None"),
    Snippet("ag_gemm.plan('laptop-switch', '2', **SIZES)", "IllegalRanks", "it is not a whole number"),
    Snippet("ag_gemm.plan(dtype=3, **SIZES)", "UnknownDtype", "bf16, fp16, fp32"),
    Snippet("ag_gemm.graph(0, **SIZES)", "IllegalSize", "num_ranks=0"),
    Snippet("ag_gemm.emit(target=None, **SIZES)", "UnknownTarget", "triton-distributed"),
    Snippet("Schedule.from_json('{')", "NotASchedule", "tilelink plan --json"),
    Snippet("Schedule.from_json('[3]')", "NotASchedule", "it is a tuple"),
    # operators
    Snippet("ag_gemm.compile(**SIZES)", "FabricUnavailable", "torch.distributed is not initialised"),
    Snippet("ag_gemm.compile(3, **SIZES)", "FabricUnavailable", "tilelink.emulator.World"),
    Snippet("ag_gemm.compile(World(2, num_sms=4).fabrics[0], **SIZES)", "FabricTooSmall", "World(num_sms=8)"),
    Snippet("World('2')", "IllegalWorld", "integers of at least 1", 1),
    # tile ops
    Snippet(
        "@tilelink.op(reads={'x': (m,)}, writes=(m,), tiled=m, reference=lambda x: x.no_such_method())\n@triton.jit\n"
        "def same(x, m, TILE_M: tl.constexpr):\n    return tl.load(x + m + tl.arange(0, TILE_M))\n\n\n"
        "@overlap\ndef f(x: Tensor(M, placement=Shard(0))):\n    return same(all_gather(x, dim=0))\n\n\n"
        "schedule = f.plan('laptop-switch', 2, M=64)\nrun_emulated(schedule, schedule.emit())\n",
        "ReferenceFailed",
        "no_such_method",
    ),
    Snippet("tilelink.op(reads={'x': (m,)}, writes=(m,))(len)", "BadUserOp", "Put @triton.jit below @tilelink.op"),
    Snippet(
        "LIMITS = (1, 2)\n\n\n@tilelink.op(reads={'x': (m,)}, writes=(m,))\n@triton.jit\n"
        "def scaled(x, m, TILE_M: tl.constexpr):\n    return tl.load(x + m + tl.arange(0, TILE_M)) * LIMITS[0]\n",
        "BadUserOp",
        "it uses 'LIMITS' of your file, a tuple",
    ),
    Snippet(
        "@tilelink.op(reads={'x': (m,)}, writes=(m,))\n@triton.jit\n"
        "def scaled(x, m, TILE_M: tl.constexpr):\n    return tl.load(x + m + tl.arange(0, TILE_M)) * LIMIT\n",
        "BadUserOp",
        "'LIMIT', which is not defined",
    ),
]
