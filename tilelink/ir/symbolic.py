"""What a symbolic tensor answers to Python, torch and numpy: calls of torch that are operations here are recorded, and
whatever asks for elements or has no meaning in a spec is refused with a message, at the user's line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from tilelink.errors import NotATensor, NoValues, UnknownOp
from tilelink.ir.location import here
from tilelink.ir.ops.elementwise import FUNCTIONS, Elementwise

_KNOWN = "+, -, *, /, @, slices, chunk, split and the functions of tilelink such as matmul"
_OPERATORS = {
    "add": "__add__",
    "mul": "__mul__",
    "multiply": "__mul__",
    "matmul": "__matmul__",
    "mm": "__matmul__",
    "sub": "__sub__",
    "subtract": "__sub__",
    "div": "__truediv__",
    "divide": "__truediv__",
    "true_divide": "__truediv__",
}
_METHODS = {"neg": "__neg__", "negative": "__neg__", "t": "t", "chunk": "chunk", "split": "split"}
_DEFAULTS: dict[str, object] = {"inplace": False, "approximate": "none", "alpha": 1}
_DECIDE = (
    "Decide outside of the function, by a Python value that it closes over, or declare two operators; what depends on "
    "elements belongs into a tile op (tilelink.op)."
)
_SIZES = "Sizes are symbols, such as {tensor}.shape[0]; their values are given to `plan`."
_LEAVE = "Call the compiled operator with torch tensors, and convert what it returns."


def _values(use: str, legal: str) -> Callable[..., NoReturn]:
    """A method that would need the elements of the tensor, or their number."""

    def refuse(tensor: object, *_: object, **__: object) -> NoReturn:
        name = _name(tensor)
        raise NoValues(here(), use=use, tensor=name, legal=legal.format(tensor=name))

    return refuse


def _unknown(sign: str) -> Callable[..., NoReturn]:
    """A method for an operator that Python has and specs do not."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise UnknownOp(here(), name=sign, hint="", known=_KNOWN)

    return refuse


def _name(tensor: object) -> str:
    turned = getattr(tensor, "tensor", None)
    return f"{_name(turned)}.T" if turned is not None else getattr(tensor, "name", "") or "the tensor"


class Symbolic:
    """Base of tensors without elements. A subclass overrides what it has a meaning for."""

    __slots__ = ()

    if not TYPE_CHECKING:  # type checkers say themselves that these are missing
        __bool__ = _values("`if`, `while`, `and`, `or` or `not`", _DECIDE)
        __len__ = _values("len()", _SIZES)
        __iter__ = _values("a loop or an unpacking", _SIZES)
        __contains__ = _values("`in`", _DECIDE)
        __float__ = __int__ = __index__ = __complex__ = _values("float() or int()", _DECIDE)
        __array__ = _values("numpy", _LEAVE)
        __lt__ = _unknown("<")
        __le__ = _unknown("<=")
        __gt__ = _unknown(">")
        __ge__ = _unknown(">=")
        __floordiv__ = __rfloordiv__ = _unknown("//")
        __mod__ = __rmod__ = _unknown("%")
        __divmod__ = __rdivmod__ = _unknown("divmod")
        __pow__ = __rpow__ = _unknown("**")
        __and__ = __rand__ = _unknown("&")
        __or__ = __ror__ = _unknown("|")
        __xor__ = __rxor__ = _unknown("^")
        __lshift__ = __rlshift__ = _unknown("<<")
        __rshift__ = __rrshift__ = _unknown(">>")
        __pos__ = _unknown("unary +")
        __invert__ = _unknown("~")
        __abs__ = _unknown("abs")
        __round__ = _unknown("round")
        __setitem__ = __delitem__ = _unknown("[…] =")

        def __getattr__(self, name: str) -> NoReturn:
            """Methods of torch's tensors. Raises UnknownOp, which is an AttributeError."""
            if name.startswith("_") or name in type(self).__slots__:
                raise AttributeError(name)  # what Python and tools ask for
            raise UnknownOp(here(), name=f".{name}", hint="", known=_KNOWN)

    def __eq__(self, other: object) -> bool:
        if self is other or getattr(self, "trace", None) is None:
            return self is other  # declarations are compared by Python itself
        raise UnknownOp(here(), name="==", hint="", known=_KNOWN)

    __hash__ = object.__hash__

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """`torch.relu(x)` and the like, as far as they are operations of specs. Raises NotATensor and UnknownOp."""
        given = {name: value for name, value in (kwargs or {}).items() if not _is_default(name, value)}
        name = getattr(func, "__name__", str(func))
        for operand in (*args, *given.values()):
            if _is_data(operand):
                raise NotATensor(here(), what=name, value=operand)
        if name in _METHODS and args and isinstance(args[0], Symbolic):
            return getattr(args[0], _METHODS[name])(*args[1:], **given)
        if not given:
            recorded = _recorded(name, args)
            if recorded is not NotImplemented:
                return recorded
        module = (getattr(func, "__module__", None) or "torch.Tensor").replace("torch._C._nn", "torch.nn.functional")
        hint = f" Its arguments {', '.join(given)} are not taken." if given and _is_unary(name) else ""
        raise UnknownOp(here(), name=f"{module}.{name}", hint=hint, known=_KNOWN)

    def __array_ufunc__(self, ufunc: Callable[..., object], method: str, *args: object, **kwargs: object) -> object:
        """A number of numpy on the left of an operator is a number; functions of numpy are refused. Raises UnknownOp."""
        name = ufunc.__name__
        if method == "__call__" and name in _OPERATORS and not kwargs and len(args) == 2 and args[1] is self:
            return getattr(self, _OPERATORS[name].replace("__", "__r", 1))(args[0])
        raise UnknownOp(here(), name=f"numpy.{name}", hint="", known=_KNOWN)


def _is_unary(name: str) -> bool:
    """Whether it is an elementwise function of one tensor, which torch calls so, too."""
    return name in FUNCTIONS and FUNCTIONS[name].num_operands == 1


def _recorded(name: str, args: Sequence[object]) -> object:
    """What the operation `name` of torch gives on these operands; NotImplemented where specs have no such operation."""
    left, *rights = args
    if not isinstance(left, Symbolic):
        return NotImplemented
    if _is_unary(name) and not rights:
        trace = getattr(left, "trace", None)
        if trace is None:
            raise NotATensor(here(), what=name, value=left)
        return trace.record(Elementwise(name), (left,), here())
    if name in _OPERATORS and len(rights) == 1:
        return getattr(left, _OPERATORS[name])(rights[0])
    if name == "linear" and 1 <= len(rights) <= 2 and isinstance(rights[0], Symbolic):
        product = left @ rights[0].T  # type: ignore[attr-defined]
        return product if len(rights) == 1 or rights[1] is None else product + rights[1]
    return NotImplemented


def _is_default(name: str, value: object) -> bool:
    return value is None or (name in _DEFAULTS and type(value) is type(_DEFAULTS[name]) and value == _DEFAULTS[name])


def _is_data(operand: object) -> bool:
    """A tensor of torch or an array of numpy, which has elements."""
    return not isinstance(operand, Symbolic) and hasattr(operand, "shape") and bool(getattr(operand, "shape", ()))
