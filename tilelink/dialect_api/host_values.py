"""What host code passes on: allocations with their dtypes, constants, numbers of SMs; followed through names and calls."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import replace

from tilelink.dialect_api.functions import UTILS, find
from tilelink.dialect_api.model import Effect, Exact
from tilelink.dialect_api.source import Definition, SourceFile
from tilelink.dialect_api.value import UNKNOWN, Element, Trait, Value, arithmetic, join

_DEEPEST = 8  # names are followed that far; a circle of assignments ends there
_FILLED = ("torch.zeros", "torch.empty", "torch.ones", "torch.full", "torch.randn", "torch.rand", "torch.arange")
_LIKE = ("torch.zeros_like", "torch.empty_like", "torch.ones_like", "torch.full_like")
_SAME_TENSOR = ("zero_", "fill_", "contiguous", "view", "reshape", "flatten", "cuda", "to", "clone", "detach", "narrow")
_SM_NAMES = ("NUM_SMS", "num_sms", "multi_processor_count")


class HostValues:
    """Values of host expressions of one file. A name assigned more than once has all of the values."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self._names: dict[tuple[str, str], list[tuple[ast.expr, Definition | None]]] = defaultdict(list)
        self._attributes: dict[str, dict[str, list[tuple[ast.expr, Definition | None]]]] = defaultdict(
            lambda: defaultdict(list)
        )  # by attribute, then by class
        self._by_node = {id(definition.node): definition for definition in file.definitions.values()}
        self._calls: dict[str, list[tuple[ast.Call, Definition | None]]] = defaultdict(list)
        self._collect(file.tree, None, "")
        for call, within in file.host_calls:
            if isinstance(call.func, ast.Name | ast.Attribute):
                self._calls[call.func.id if isinstance(call.func, ast.Name) else call.func.attr].append((call, within))

    def _collect(self, node: ast.AST, within: Definition | None, body_of: str) -> None:
        """`body_of` is the class whose body is looked at, empty inside functions and at module level."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Assign):
                for target in child.targets:
                    self._assign(target, child.value, within, body_of)
            elif isinstance(child, ast.AnnAssign) and child.value is not None:
                self._assign(child.target, child.value, within, body_of)
            elif isinstance(child, ast.keyword) and child.arg:
                # a field of a context object that is given by keyword: Context(signals=...)
                self._attributes[f"keyword {child.arg}"][""].append((child.value, within))
            if isinstance(child, ast.FunctionDef):
                self._collect(child, self._by_node.get(id(child)), "")
            else:
                self._collect(child, within, child.name if isinstance(child, ast.ClassDef) else body_of)

    def _assign(self, target: ast.expr, value: ast.expr, within: Definition | None, body_of: str) -> None:
        match target:
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                self._attributes[name][within.owner if within else ""].append((value, within))
            case ast.Attribute(attr=name):
                self._attributes[name]["not self"].append((value, within))
            case ast.Name(id=name) if body_of:
                self._attributes[name][body_of].append((value, within))
            case ast.Name(id=name):
                self._names[within.key if within else "", name].append((value, within))
            case ast.Tuple(elts=elements) if isinstance(value, ast.Tuple) and len(elements) == len(value.elts):
                for one, part in zip(elements, value.elts, strict=True):
                    self._assign(one, part, within, body_of)
            case _:
                pass

    def _of_attribute(self, node: ast.Attribute, within: Definition | None) -> list[tuple[ast.expr, Definition | None]]:
        """Assignments to an attribute: of the own class after `self`, else of the one class that has it."""
        classes = self._attributes.get(node.attr, {})
        if isinstance(node.value, ast.Name) and node.value.id == "self" and within is not None:
            return list(classes.get(within.owner, ()))
        found = classes or self._attributes.get(f"keyword {node.attr}", {})
        return list(next(iter(found.values()))) if len(found) == 1 else []

    def of(self, node: ast.expr, within: Definition | None, depth: int = 0) -> Value:
        """The value of an expression that stands in `within`, or at module level."""
        if depth > _DEEPEST:
            return UNKNOWN
        match node:
            case ast.Constant(value=bool() | int() | str() as constant):
                return Value(constants=frozenset({constant}))
            case ast.Name():
                return self._name(node, within, depth)
            case ast.Attribute():
                return self._attribute(node, within, depth)
            case ast.Subscript():
                return self.of(node.value, within, depth + 1)
            case ast.BinOp():
                left, right = self.of(node.left, within, depth + 1), self.of(node.right, within, depth + 1)
                value = arithmetic(node.op, left, right)
                fewer = isinstance(node.op, ast.Sub | ast.FloorDiv) and left.has(Trait.NUM_SMS)
                return value.with_traits(Trait.NUM_SMS) if fewer else value
            case ast.Call():
                return self._call(node, within, depth)
            case ast.IfExp():
                return join(self.of(node.body, within, depth + 1), self.of(node.orelse, within, depth + 1))
            case _:
                return UNKNOWN

    def assigned(self, node: ast.expr, within: Definition | None) -> list[tuple[ast.expr, Definition | None]]:
        """What a name or attribute stands for, as written; empty for other expressions and for unknown names."""
        if isinstance(node, ast.Name):
            local = self._names.get((within.key if within else "", node.id))
            return [*(local or self._names.get(("", node.id), []))]
        if isinstance(node, ast.Attribute):
            return self._of_attribute(node, within)
        return []

    def num_sms(self) -> int:
        """What the file calls NUM_SMS, the least if there are several, 0 if it does not say."""
        found = [
            *self._names.get(("", "NUM_SMS"), ()),
            *(one for found in self._attributes.get("NUM_SMS", {}).values() for one in found),
        ]
        known = [value for node, within in found if isinstance(value := self.of(node, within).constant, int)]
        return min(known, default=0)

    def _all(self, found: list[tuple[ast.expr, Definition | None]], depth: int) -> Value:
        values = [self.of(value, within, depth + 1) for value, within in found]
        if not values:
            return UNKNOWN
        total = values[0]
        for value in values[1:]:
            total = join(total, value)
        return total

    def _name(self, node: ast.Name, within: Definition | None, depth: int) -> Value:
        value = self._local(node, within, depth)
        return value.with_traits(Trait.NUM_SMS) if node.id in _SM_NAMES else value

    def _local(self, node: ast.Name, within: Definition | None, depth: int) -> Value:
        path = self._file.full_path(node)
        if path:
            return Value(elements=_dtype(path, node.lineno))
        if within is not None and (assigned := self._names.get((within.key, node.id))):
            return self._all(assigned, depth)
        if within is not None and node.id in (names := [arg.arg for arg in within.parameters]):
            return self._parameter(within, node.id, names, depth)
        return self._all(self._names.get(("", node.id), []), depth)

    def _parameter(self, within: Definition, name: str, names: list[str], depth: int) -> Value:
        method = names[:1] == ["self"]
        found: list[tuple[ast.expr, Definition | None]] = []
        called = self._calls_of(within)
        for call, caller in called:
            position = names.index(name) - (1 if method else 0)
            by_name = [word.value for word in call.keywords if word.arg == name]
            by_position = [call.args[position]] if 0 <= position < len(call.args) else []
            given = by_name or by_position or ([within.defaults[name]] if name in within.defaults else [])
            found += [(value, caller) for value in given]
        if not called and name in within.defaults:
            found.append((within.defaults[name], None))
        return self._all(found, depth)

    def _calls_of(self, function: Definition) -> list[tuple[ast.Call, Definition | None]]:
        """Calls of a host function by name; nothing if several methods have that name."""
        if function.name == "__init__":
            return self._calls.get(function.owner, [])
        named = [one for one in self._file.definitions.values() if one.name == function.name]
        return self._calls.get(function.name, []) if len(named) == 1 else []

    def _attribute(self, node: ast.Attribute, within: Definition | None, depth: int) -> Value:
        path = self._file.full_path(node)
        if path:
            return Value(elements=_dtype(path, node.lineno))
        if not (isinstance(node.value, ast.Name) and node.value.id == "self"):
            # a part of a tensor, or of an object that holds one, as `signals.local`
            base = self.of(node.value, within, depth + 1)
            if base.origins or node.attr not in self._attributes:
                return base.with_traits(Trait.NUM_SMS) if node.attr in _SM_NAMES else base
        found = self._of_attribute(node, within)
        value = self._all(found, depth)
        return value.with_traits(Trait.NUM_SMS) if node.attr in _SM_NAMES else value

    def _call(self, node: ast.Call, within: Definition | None, depth: int) -> Value:
        path = self._file.full_path(node.func)
        if path == "triton.language.constexpr" and node.args:
            return self.of(node.args[0], within, depth + 1)
        function = find(path) if path else None
        if function is not None and function.effect is Effect.ALLOCATE and isinstance(function.signature, Exact):
            names = [parameter.name for parameter in function.signature.parameters]
            dtype = _argument(node, names.index("dtype"), "dtype")
            value = self._made(node, self._elements(dtype, within, depth))
            return value.with_traits(Trait.SYMMETRIC)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "symmetric" and not path:
            # a fabric's allocator: symmetric(shape, dtype)
            made = self._made(node, self._elements(_argument(node, 1, "dtype"), within, depth))
            return made.with_traits(Trait.SYMMETRIC)
        if path in _FILLED:
            dtype = next((word.value for word in node.keywords if word.arg == "dtype"), None)
            default = frozenset[Element]() if path == "torch.arange" else frozenset({Element("float32", node.lineno)})
            return self._made(node, self._elements(dtype, within, depth) if dtype else default)
        if path in _LIKE and node.args:
            dtype = next((word.value for word in node.keywords if word.arg == "dtype"), None)
            return self._made(node, self._elements(dtype or node.args[0], within, depth))
        if isinstance(node.func, ast.Name) and node.func.id == "min":
            smaller = [self.of(argument, within, depth + 1) for argument in node.args]
            if any(value.has(Trait.NUM_SMS) for value in smaller):
                return Value(traits=frozenset({Trait.NUM_SMS}))
        return self._method(node, within, depth)

    def _method(self, node: ast.Call, within: Definition | None, depth: int) -> Value:
        if not isinstance(node.func, ast.Attribute) or node.func.attr not in _SAME_TENSOR:
            return UNKNOWN
        value = self.of(node.func.value, within, depth + 1)
        if node.func.attr in ("view", "to"):
            dtypes = [self.of(argument, within, depth + 1).elements for argument in node.args]
            new = [dtype for dtype in dtypes if dtype]
            return replace(value, elements=new[0]) if new else value
        return value

    def _elements(self, node: ast.expr | None, within: Definition | None, depth: int) -> frozenset[Element]:
        return self.of(node, within, depth + 1).elements if node is not None else frozenset()

    def _made(self, node: ast.Call, elements: frozenset[Element]) -> Value:
        at = frozenset({Element(element.dtype, node.lineno) for element in elements})
        return Value(elements=at, origins=frozenset({f"tensor of line {node.lineno}"}))


def _argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    by_name = [word.value for word in call.keywords if word.arg == name]
    return by_name[0] if by_name else call.args[position] if position < len(call.args) else None


def _dtype(path: str, line: int) -> frozenset[Element]:
    """`torch.int32` stands for itself; other paths are no dtypes."""
    if path == f"{UTILS}.NVSHMEM_SIGNAL_DTYPE":
        return frozenset({Element("int64", line)})
    owner, _, name = path.rpartition(".")
    known = name.startswith(("int", "uint", "float", "bfloat", "half", "bool")) and name != "interpolate"
    return frozenset({Element(name, line)}) if owner == "torch" and known else frozenset()
