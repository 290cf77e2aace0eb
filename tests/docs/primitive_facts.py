"""What the code says of a primitive: emitted statements, docstrings, the kernels that call it and the tests that run these."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
from functools import cache
from pathlib import Path
from types import FunctionType, LambdaType
from typing import Any

import lowering
import topologies
from tests.docs.primitives import (
    EMULATOR,
    FUSED,
    LIBSHMEM,
    MULTICAST,
    PULL_COPY,
    PULL_SMS,
    PUSH_COPY,
    PUSH_SMS,
    QUEUE,
    SCATTER,
    WIDTHS,
    WORDS,
    Code,
    Primitive,
)
from tests.pipeline.workloads import load, sizes
from tilelink.compat.triton_dist import install
from tilelink.dialect_api import FUNCTIONS, Function

ROOT = Path(__file__).resolve().parents[2]
RESULTS = {f"{ranks} x H200": ROOT / "benchmarks" / "results" / f"triton_dist_{ranks}xh200.json" for ranks in (2, 4)}
TARGETS = ("triton", "triton-distributed")
MACHINES = {"nvidia": "laptop-switch", "amd": "mi300x-full-mesh"}
RANKS = 3

# the page must not change with what the cost model finds fastest
PINS = {"algorithm": "direct", "compute": "triton", "chunks": "1", "nest": "rank by rank", "tile": "16x16x16/4w2s"}
GATHER, SCATTERED = "02_ag_gemm.py:ag_gemm", "03_gemm_rs.py:gemm_rs"
SCHEDULES: dict[str, tuple[str, dict[str, str]]] = {
    PUSH_SMS: (GATHER, {"mover": "CommSms(2)", "transfer": "push"}),
    PULL_SMS: (GATHER, {"mover": "CommSms(2)", "transfer": "pull"}),
    PUSH_COPY: (GATHER, {"mover": "CopyEngine()", "transfer": "push"}),
    PULL_COPY: (GATHER, {"mover": "CopyEngine()", "transfer": "pull"}),
    FUSED: (GATHER, {"mover": "Fused()", "transfer": "pull"}),
    SCATTER: (SCATTERED, {"mover": "CopyEngine()", "transfer": "push"}),
    WORDS: (GATHER, {"algorithm": "ll"}),
    MULTICAST: (GATHER, {"algorithm": "ll", "multicast": "yes"}),
    QUEUE: ("01_queue.py:queue", {"mover": "CommSms(2)", "chunks": "11", "slots": "2", "consumers": "2"}),
}

ON_AMD = (PUSH_SMS, PUSH_COPY)

COMPILED = "tests/compat/triton_dist/test_compiled.py"
GPU_SCRIPT = "tests/compat/triton_dist/test_gpu_script.py"
GPU_KERNELS = "tilelink/compat/check/kernels.py"
KERNELS_OF = {  # files of kernels that the tests of a file run
    "tests/compat/test_openshmem.py": "tests/compat/dialect_kernels.py",
    "tests/compat/triton_dist/test_emulated.py": "tests/compat/triton_dist/dialect_kernels.py",
    "tests/compat/triton_dist/test_emulated_more.py": "tests/compat/triton_dist/more_kernels.py",
    COMPILED: "tests/compat/triton_dist/compile_kernels.py",
}


@cache
def parsed(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


# ---- emitted files


@cache
def emitted(label: str, target: str, vendor: str) -> ast.Module:
    """The file of a schedule of `SCHEDULES`, parsed."""
    name, pins = SCHEDULES[label]
    machine = topologies.load(MACHINES[vendor], RANKS)
    words = label in (WORDS, MULTICAST)
    fixed = pins if words or label == QUEUE else PINS | pins
    given = {"M": 16 * RANKS, "K": 64, "N": 16 * RANKS} if words else sizes(name, RANKS)  # whole words
    return ast.parse(lowering.emit(load(name).plan_for(machine, given, "bf16", fixed), target))


def spelled(codes: tuple[Code, ...], target: str, vendor: str = "nvidia") -> str:
    """The statements, on one line; on AMD those of `ON_AMD`. Raises LookupError if the file has none."""
    return "; ".join(_spelled(code, target, vendor) for code in codes if vendor == "nvidia" or code.schedule in ON_AMD)


def _spelled(code: Code, target: str, vendor: str) -> str:
    wanted = code.function.split(".")
    scope: list[ast.stmt] = emitted(code.schedule, target, vendor).body
    for name in wanted:
        held = [node for one in scope for node in ast.walk(one) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        scope = next((node.body for node in held if node.name == name), [])
    found = [one for one in _with(scope, code.part) if not (isinstance(one, ast.Expr) and _is_text(one.value))]
    if not found:
        raise LookupError(f"no {code.part or 'statement'} in {code.function} of {code.schedule} for {target}")
    return "; ".join(dict.fromkeys(map(_one_line, found)))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _with(body: list[ast.stmt], part: str) -> list[ast.stmt]:
    """The innermost statements that have the text; all of `body` if it is empty."""
    if not part:
        return body
    found: list[ast.stmt] = []
    for one in body:
        if part in _one_line(one):
            inner = [child for child in ast.walk(one) if isinstance(child, ast.stmt) and child is not one]
            found += _with(inner, part) or [one]
    return list(dict.fromkeys(found))


def _one_line(node: ast.stmt) -> str:
    lines = ast.unparse(node).replace("'", '"').splitlines()
    text = "; ".join(line.strip() for line in lines)
    return text.replace(":; ", ": ")


# ---- the API, the shim and the emulator


@cache
def functions(primitive: Primitive) -> list[Function]:
    """The functions of the API that are this primitive, in the order of the data."""
    pattern = re.compile(primitive.variants or re.escape(primitive.name) + WIDTHS)
    return [one for one in FUNCTIONS if one.module == primitive.module and pattern.fullmatch(one.name)]


def paths(primitive: Primitive) -> set[str]:
    """Full names under which kernels call it, in the dialect and in the emulator."""
    held = {f"{path}.{one.name}" for one in functions(primitive) for path in one.import_paths}
    if primitive.module == LIBSHMEM:
        held |= {f"{EMULATOR}.openshmem.{one.name}" for one in functions(primitive)}
    return held | ({f"{EMULATOR}.{primitive.emulated}"} if primitive.emulated else set())


def shimmed(primitive: Primitive) -> Any:
    """The device function of the shim. Raises LookupError if it has none."""
    assert install()
    for one in functions(primitive):
        held = getattr(importlib.import_module(one.module), one.name, None)
        if held is not None:
            return held
    raise LookupError(f"the shim has no {primitive.name}")


def emulated(primitive: Primitive) -> Any:
    """The function of the emulator that a call of the shim's goes to."""
    if primitive.emulated:
        module, _, name = primitive.emulated.rpartition(".")
        return getattr(importlib.import_module(f"{EMULATOR}.{module}"), name)
    held = shimmed(primitive).emulated
    assert isinstance(held, FunctionType) and held.__name__ != LambdaType.__name__
    return held


def said(function: Any) -> str:
    """The first paragraph of a docstring without what it raises."""
    text = " ".join((inspect.getdoc(getattr(function, "fn", function)) or "").split("\n\n")[0].split())
    return re.sub(r" ?Raises .*$", "", text)


# ---- who calls it


@cache
def calls(path: str) -> dict[str, set[str]]:
    """For each function of a file of kernels the full names that it calls, itself or through functions of the file."""
    tree = parsed(path)
    known = _imports(tree)
    local = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    direct = {name: {_full(call.func, known) for call in _calls(node)} for name, node in local.items()}

    def all_of(name: str, seen: frozenset[str] = frozenset()) -> set[str]:
        inner = [one for one in direct[name] if one in local and one not in seen | {name}]
        return direct[name].union(*(all_of(one, seen | {name}) for one in inner))

    return {name: all_of(name) for name in local}


def _calls(node: ast.AST) -> list[ast.Call]:
    return [one for one in ast.walk(node) if isinstance(one, ast.Call)]


def _imports(tree: ast.Module) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            found |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
        elif isinstance(node, ast.Import):
            found |= {one.asname: one.name for one in node.names if one.asname}
    return found


def _full(node: ast.expr, known: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return known.get(node.id, node.id)
    return f"{_full(node.value, known)}.{node.attr}" if isinstance(node, ast.Attribute) else ""


@cache
def callers(primitive: Primitive, path: str) -> set[str]:
    """Kernels of a file that call it."""
    return {name for name, held in calls(path).items() if held & paths(primitive)}


def _named(tree: ast.Module) -> dict[str, ast.stmt]:
    """What a module defines or assigns, by name."""
    found: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {one.id: node for one in targets if isinstance(one, ast.Name)}
    return found


@cache
def kernels_of_test(path: str, test: str) -> set[str]:
    """Kernels that a test names, itself or through what it uses of its file. Raises LookupError if there is no such test."""
    local = _named(parsed(path))
    if test not in local:
        raise LookupError(f"{path} has no {test}")
    kernels = set(calls(KERNELS_OF[path]))
    reached, ahead, found, texts = {test}, [local[test]], set[str](), set[str]()
    for node in ahead:
        for one in ast.walk(node):
            if isinstance(one, ast.Name) and one.id in local.keys() - reached:
                reached.add(one.id)
                ahead.append(local[one.id])
            elif isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name | ast.Call):
                found.add(one.attr)
            elif isinstance(one, ast.Constant) and isinstance(one.value, str):
                texts.add(one.value)
    by_text = any(isinstance(one, ast.Name) and one.id == "getattr" for node in ahead for one in ast.walk(node))
    return (found | texts if by_text else found) & kernels


def tests_of(primitive: Primitive, path: str) -> list[str]:
    """Tests of a file that run a kernel which calls it, in the order of the file."""
    wanted = callers(primitive, KERNELS_OF[path])
    names = [one.name for one in parsed(path).body if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")]
    return [name for name in names if kernels_of_test(path, name) & wanted]


def checks_of(primitive: Primitive) -> list[str]:
    """Checks of tilelink/compat/check/cases.py that launch a kernel which calls it."""
    wanted = callers(primitive, GPU_KERNELS)
    tree = parsed("tilelink/compat/check/cases.py")
    classes = {one.name: one for one in tree.body if isinstance(one, ast.ClassDef)}
    launching = {
        name
        for name, node in classes.items()
        if any(isinstance(one, ast.Attribute) and one.attr in wanted for one in ast.walk(node))
    }
    (table,) = [
        one.value for one in tree.body if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "CHECKS"
    ]
    assert isinstance(table, ast.Dict)
    return [
        str(ast.literal_eval(key))
        for key, value in zip(table.keys, table.values, strict=True)
        if key is not None and any(isinstance(one, ast.Name) and one.id in launching for one in ast.walk(value))
    ]


def runs_it(primitive: Primitive) -> bool:
    """Whether the test that is named runs it on emulated ranks. Raises LookupError if there is no such test."""
    path, _, test = primitive.test.partition("::")
    name, _, case = test.rstrip("]").partition("[")
    if path == GPU_SCRIPT:
        text = (ROOT / path).read_text(encoding="utf-8")
        return f"def {name}(" in text and f'    "{case}",\n' in text and case in checks_of(primitive)
    return name in tests_of(primitive, path)


def on_gpus() -> dict[str, str]:
    """For each check what came out on GPUs: equal only if it was on every number of them."""
    outcomes = [one for path in RESULTS.values() for one in json.loads(path.read_text(encoding="utf-8"))["outcomes"]]
    wrong = {one["check"] for one in outcomes if one["wrong"]}
    return {one["check"]: "wrong" if one["check"] in wrong else "equal" for one in outcomes}
