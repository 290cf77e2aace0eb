"""The short notation in which signatures are written: `name:type` or `name:type=default`, separated by spaces."""

from __future__ import annotations

from tilelink.dialect_api.model import Choice, Exact, HostTensor, Parameter, ParameterType, Plain, Pointer, Symbol

_CUDA_SCOPES = ("gpu", "sys")
_HIP_SCOPES = ("workgroup", "agent", "system", *_CUDA_SCOPES)
_MAYBE = ("",)

TYPES: dict[str, ParameterType] = {
    "pointer": Pointer(),
    "scalar_pointer": Pointer(one=True),
    "wait_words": Pointer(("int32", "uint32", "int64", "uint64")),
    "notify_word": Pointer(("int64", "uint64"), one=True),
    "signal_word": Pointer(("int64", "uint64")),
    "word32": Pointer(("int32", "uint32")),
    "address": Plain.ADDRESS,
    "token": Plain.TOKEN,
    "value": Plain.VALUE,
    "count": Plain.COUNT,
    "bytes": Plain.BYTES,
    "rank": Plain.RANK,
    "stream": Plain.STREAM,
    "dtype": Plain.DTYPE,
    "open": Plain.OPEN,
    "signal_op": Symbol.SIGNAL_OP,
    "compare": Symbol.COMPARE,
    "team": Symbol.TEAM,
    "tensor": HostTensor(),
    "signal_tensor": HostTensor(("int32", "int64")),
    "flags_tensor": HostTensor(("int32",)),
    "wait_scope": Choice(("cta", "gpu", "sys"), ()),
    "wait_semantic": Choice(("acquire", "relaxed"), ()),
    "set_or_add": Choice(("set", "add"), ()),
    "comm_scope": Choice(("gpu", "intra_node", "inter_node"), ()),
    "scope": Choice(_CUDA_SCOPES, _HIP_SCOPES),
    "load_semantic": Choice(("relaxed", "acquire"), ("monotonic", "acquire", "relaxed")),
    "store_semantic": Choice(("relaxed", "release"), ("monotonic", "release", "relaxed")),
    "atomic_semantic": Choice(
        ("relaxed", "acquire", "release", "acq_rel"), ("monotonic", "acquire", "release", "acq_rel", "relaxed")
    ),
    "maybe_scope": Choice(_MAYBE + _CUDA_SCOPES, ()),
    "maybe_load": Choice((*_MAYBE, "relaxed", "acquire"), ()),
    "maybe_store": Choice((*_MAYBE, "relaxed", "release"), ()),
}


def signature(text: str) -> Exact:
    """`signature('ptr:pointer scope:scope="gpu"')`. Raises KeyError for a type that is not in `TYPES`."""
    return Exact(tuple(map(_parameter, text.split())))


def _parameter(word: str) -> Parameter:
    name, _, rest = word.partition(":")
    kind, _, default = rest.partition("=")
    return Parameter(name, TYPES[kind], default)
