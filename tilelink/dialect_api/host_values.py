"""What host code passes on: allocations with their dtypes, constants, numbers of SMs; followed through names and calls."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import replace

from tilelink.dialect_api.source import Definition, SourceFile
from tilelink.dialect_api.value import UNKNOWN, Element, Trait, Value, join_all, simple
from tilelink.stubs.functions import UTILS, find
from tilelink.stubs.model import Effect

_DEEPEST = 8  # expressions are followed that far; a circle of assignments ends there
_FILLED = ("torch.zeros", "torch.empty", "torch.ones", "torch.full", "torch.randn", "torch.rand", "torch.arange")
_LIKE = ("torch.zeros_like", "torch.empty_like", "torch.ones_like", "torch.full_like")
_SAME_TENSOR = ("zero_", "fill_", "contiguous", "view", "reshape", "flatten", "cuda", "to", "clone", "detach", "narrow")
_SM_NAMES = ("NUM_SMS", "num_sms", "multi_processor_count")

Placed = tuple[ast.expr, Definition | None]  # an expression, and the function that it stands in


class HostValues:
    """Values of host expressions of one file. A name assigned more than once has all of the values."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self._depth = 0
        self._names: dict[tuple[str, str], list[Placed]] = defaultdict(list)  # by function and name
        # by attribute, then by class
        self._attributes: dict[str, dict[str, list[Placed]]] = defaultdict(lambda: defaultdict(list))
        self._by_node = {id(definition.node): definition for definition in file.definitions.values()}
        self._calls: dict[str, list[tuple[ast.Call, Definition | None]]] = defaultdict(list)
        self._collect(file.tree, None, "")
        for call, within in file.host_calls:
            if isinstance(call.func, ast.Name | ast.Attribute):
                self._calls[call.func.id if isinstance(call.func, ast.Name) else call.func.attr].append((call, within))

    def _collect(self, node: ast.AST, within: Definition | None, body_of: str) -> None:
        """`body_of` is the class whose body is looked at, empty inside functions and at module level."""
        for child in ast.iter_child_nodes(node):
            inside, body = within, body_of
            match child:
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        self._assign(target, value, within, body_of)
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    self._assign(target, value, within, body_of)
                case ast.keyword(arg=str() as name, value=value):
                    # a field of a context object that is given by keyword: Context(signals=...)
                    self._attributes[f"keyword {name}"][""].append((value, within))
                case ast.FunctionDef():
                    inside, body = self._by_node.get(id(child)), ""
                case ast.ClassDef(name=name):
                    body = name
            self._collect(child, inside, body)

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

    def assigned(self, node: ast.expr, within: Definition | None) -> list[Placed]:
        """What a name or attribute stands for, as written; empty for other expressions and for unknown names.

        Attributes are those of the own class after `self`, else of the one class that has them.
        """
        match node:
            case ast.Name(id=name):
                return self._names.get((within.key if within else "", name)) or self._names.get(("", name), [])
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if within is not None:
                return self._attributes.get(name, {}).get(within.owner, [])
            case ast.Attribute(attr=name):
                found = self._attributes.get(name) or self._attributes.get(f"keyword {name}", {})
                return next(iter(found.values())) if len(found) == 1 else []
            case _:
                return []

    def num_sms(self) -> int:
        """What the file calls NUM_SMS, the least if there are several, 0 if it does not say."""
        found = self._names.get(("", "NUM_SMS"), [])
        found = sum(self._attributes.get("NUM_SMS", {}).values(), found)
        constants = [self.of(node, within).constant for node, within in found]
        return min((one for one in constants if isinstance(one, int)), default=0)

    def of(self, node: ast.expr | None, within: Definition | None) -> Value:
        """The value of an expression that stands in `within`, or at module level."""
        if node is None or self._depth > _DEEPEST:
            return UNKNOWN
        self._depth += 1
        value = self._of(node, within)
        self._depth -= 1
        return value

    def _of(self, node: ast.expr, within: Definition | None) -> Value:
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                value = self._name(node, within) if isinstance(node, ast.Name) else self._attribute(node, within)
                return value.with_traits(Trait.NUM_SMS) if name in _SM_NAMES else value
            case ast.Subscript():
                return self.of(node.value, within)
            case ast.Call():
                return self._call(node, within)
            case _:
                value = simple(node, lambda part: self.of(part, within)) or UNKNOWN
                match node:
                    case ast.BinOp(left, ast.Sub() | ast.FloorDiv()) if self.of(left, within).has(Trait.NUM_SMS):
                        return value.with_traits(Trait.NUM_SMS)  # fewer of them
                    case _:
                        return value

    def _all(self, found: list[Placed]) -> Value:
        return join_all(self.of(value, within) for value, within in found)

    def _name(self, node: ast.Name, within: Definition | None) -> Value:
        path = self._file.full_path(node)
        if path:
            return Value(elements=_dtype(path, node.lineno))
        if within is not None and (within.key, node.id) not in self._names:
            names = [argument.arg for argument in within.parameters]
            if node.id in names:
                return self._parameter(within, node.id, names)
        return self._all(self.assigned(node, within))

    def _parameter(self, within: Definition, name: str, names: list[str]) -> Value:
        """What the calls of a host function pass, by name; its default if no call of it is known."""
        default: list[Placed] = [(within.defaults[name], None)] if name in within.defaults else []
        named = [one for one in self._file.definitions.values() if one.name == within.name]
        one = within.owner if within.name == "__init__" else within.name if len(named) == 1 else ""
        found: list[Placed] = []
        for call, caller in (called := self._calls.get(one, [])):
            given = _argument(call, names.index(name) - (names[0] == "self"), name)
            found += [(given, caller)] if given is not None else default
        return self._all(found if called else default)

    def _attribute(self, node: ast.Attribute, within: Definition | None) -> Value:
        path = self._file.full_path(node)
        if path:
            return Value(elements=_dtype(path, node.lineno))
        if not (isinstance(node.value, ast.Name) and node.value.id == "self"):
            # a part of a tensor, or of an object that holds one, as `signals.local`
            base = self.of(node.value, within)
            if base.origins or node.attr not in self._attributes:
                return base
        return self._all(self.assigned(node, within))

    def _call(self, node: ast.Call, within: Definition | None) -> Value:
        path = self._file.full_path(node.func)
        function = find(path) if path else None
        dtype = _argument(node, -1, "dtype")
        if path == "triton.language.constexpr" and node.args:
            return self.of(node.args[0], within)
        if function is not None and function.effect is Effect.ALLOCATE:
            names = [parameter.name for parameter in function.signature.parameters]
            return self._made(node, _argument(node, names.index("dtype"), "dtype"), within, Trait.SYMMETRIC)
        if path in _FILLED:
            if dtype is None and path != "torch.arange":
                return replace(self._made(node, None, within), elements=frozenset({Element("float32", node.lineno)}))
            return self._made(node, dtype, within)
        if path in _LIKE and node.args:
            return self._made(node, dtype or node.args[0], within)
        match node.func:
            case ast.Attribute(attr="symmetric") if not path:  # a fabric's allocator: symmetric(shape, dtype)
                return self._made(node, _argument(node, 1, "dtype"), within, Trait.SYMMETRIC)
            case ast.Attribute(value=tensor, attr=method) if method in _SAME_TENSOR:
                value = self.of(tensor, within)
                views = [self.of(argument, within).elements for argument in node.args if method in ("view", "to")]
                return replace(value, elements=next(filter(None, views), value.elements))
            case ast.Name(id="min" | "max" as name):
                return self._extreme(name, [self.of(one, within) for one in node.args])
            case _:
                return UNKNOWN

    @staticmethod
    def _extreme(name: str, values: list[Value]) -> Value:
        """The least or the largest of numbers; the least of some is no more than the SMs if one of them is not."""
        numbers = [value.constant for value in values if isinstance(value.constant, int)]
        known = bool(numbers) and len(numbers) == len(values)
        found = Value(constants=frozenset({min(numbers) if name == "min" else max(numbers)})) if known else UNKNOWN
        few = name == "min" and any(value.has(Trait.NUM_SMS) for value in values)
        return found.with_traits(Trait.NUM_SMS) if few else found

    def _made(self, node: ast.Call, dtype: ast.expr | None, within: Definition | None, *traits: Trait) -> Value:
        elements = frozenset(Element(element.dtype, node.lineno) for element in self.of(dtype, within).elements)
        return Value(elements, frozenset({f"tensor of line {node.lineno}"}), frozenset(traits))


def _argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    """The argument of a parameter that is given by name, or by position from 0."""
    by_name = [word.value for word in call.keywords if word.arg == name]
    return by_name[0] if by_name else call.args[position] if 0 <= position < len(call.args) else None


def _dtype(path: str, line: int) -> frozenset[Element]:
    """`torch.int32` stands for itself; other paths are no dtypes."""
    if path == f"{UTILS}.NVSHMEM_SIGNAL_DTYPE":
        return frozenset({Element("int64", line)})
    owner, _, name = path.rpartition(".")
    known = name.startswith(("int", "uint", "float", "bfloat", "half", "bool")) and name != "interpolate"
    return frozenset({Element(name, line)}) if owner == "torch" and known else frozenset()
