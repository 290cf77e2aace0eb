"""What the GPU does in a kernel, in lines that a person compares: its IR without the arithmetic on indices."""

from __future__ import annotations

import re

KINDS = ("loops", "loads and stores", "dots", "atomics", "barriers", "words", "branches", "rest")
_BITS = {"bar.sync": "barrier", "fence.proxy": "fence", "wait_group": "flush", "st.relaxed": "put", "ld.relaxed": "get"}


def outline(ir: str) -> list[str]:
    """Lines of `ir` that are more than arithmetic, indented by the regions that they stand in."""
    out: list[str] = []
    open_regions: list[int] = []  # where the line of each lies, to which its attributes are added
    for line in ir.splitlines():
        text = line.strip()
        if text.startswith("}"):
            _closed(out, open_regions, text)
            continue
        found = _line(text)
        if found:
            out.append("  " * len(open_regions) + found)
        if text.endswith("{"):
            open_regions.append(len(out) - 1 if found else -1)
    return _without_empty(out)


def _closed(out: list[str], open_regions: list[int], text: str) -> None:
    place = open_regions.pop() if open_regions else -1
    attributes = re.search(r"\{(.*)\}\)?$", text.replace("} do {", "").replace("} else {", "").removeprefix("}"))
    if attributes and place >= 0:
        out[place] += f"  [{attributes[1]}]"
    if text.startswith(("} else", "} do")):
        out.append("  " * len(open_regions) + text.split()[1])
        open_regions.append(len(out) - 1)


def _without_empty(lines: list[str]) -> list[str]:
    """Lines without branches in which nothing is left."""
    out: list[str] = []
    for number, line in enumerate(lines):
        depth = len(line) - len(line.lstrip())
        following = lines[number + 1] if number + 1 < len(lines) else ""
        inner = len(following) - len(following.lstrip()) > depth
        if line.strip() in ("if", "else") and not inner:
            continue
        out.append(line)
    return out


def _line(text: str) -> str:
    """What is left of a line of IR."""
    op = re.search(r"(?:^|= )\"?((?:tt|ttg|ttng|scf|gpu|nvvm|rocdl|arith)\.[\w.]+)", text)
    name = op[1] if op else ""
    types = text.rpartition(" : ")[2]
    match name:
        case "scf.for":
            return "for"
        case "scf.while":
            return "while"
        case "scf.if":
            return "if"
        case "tt.load":
            return f"load{' masked' if _operands(text, name) > 1 else ''} {_shape(types)}"
        case "tt.store":
            return f"store{' masked' if _operands(text, name) > 2 else ''} {_shape(types)}"
        case "tt.descriptor_load" | "tt.descriptor_store":
            return f"{name.removeprefix('tt.')} {_shape(types)}"
        case "tt.reshape" if types.endswith("i32>"):
            return ""  # of flags that are reduced, in any order
        case "tt.dot" | "tt.trans" | "tt.reduce" | "tt.split" | "tt.join" | "tt.reshape" | "tt.call":
            return f"{name.removeprefix('tt.')} {_shape(types)}"
        case "tt.atomic_rmw" | "tt.atomic_cas":
            what = re.search(r"atomic_\w+ ([\w, ]+), %", text)
            return f"atomic {what[1] if what else ''} {_shape(types)}"
        case "tt.elementwise_inline_asm":
            return next((what for part, what in _BITS.items() if part in text), "asm")
        case "gpu.barrier" | "ttg.local_barrier":
            return "barrier"
    if name.startswith(("ttg.", "ttng.", "nvvm.", "rocdl.")):
        return f"{name} {_shape(types)}"
    return ""


def _operands(text: str, op: str) -> int:
    return text.partition(f"{op} ")[2].partition(" : ")[0].split(" {")[0].count(",") + 1


def _shape(types: str) -> str:
    """The shape and the type of the elements of the first tensor in `types`, or the type of the pointer."""
    found = re.search(r"((?:\d+x)*)(!tt\.ptr<)?(bf16|[fi]\d+)\b", types)
    return f"{found[1]}{'*' if found[2] else ''}{found[3]}" if found else ""


def kind(line: str) -> str:
    """The kind of a line of an outline."""
    word = line.strip().split(" ")[0]
    match word:
        case "for" | "while" | "do":
            return "loops"
        case "load" | "store" | "descriptor_load" | "descriptor_store":
            return "loads and stores"
        case "dot" | "trans":
            return "dots"
        case "atomic":
            return "atomics"
        case "barrier" | "fence" | "flush":
            return "barriers"
        case "put" | "get" | "split" | "join" | "reshape":
            return "words"
        case "if" | "else":
            return "branches"
    return "rest"
