"""Relations that one call carries out -> launches: of the library, or of one kernel whose words number the call."""

from __future__ import annotations

from tilelink.ir.calls import LibraryCollective, LLCollective
from tilelink.ir.counting import ll_words
from tilelink.ir.graph import Relation
from tilelink.ir.nodes import Kind
from tilelink.planner.layout import Illegal

_BLOCK = (
    512  # words that a program of an LL collective moves at a time, one a thread (of 128 to 1,024 best on 2 x H200)
)
_MOST_PER_SM = 4  # programs of 16 warps: 2,048 threads of 32 registers fill an SM of each GPU whose links carry atomics
_FUNCTIONS = {Kind.GATHER: "all_gather", Kind.SCATTER: "reduce_scatter", Kind.REDUCE: "all_reduce"}


def collective(relation: Relation, source: str, dtype: str, free_sms: int) -> LibraryCollective | LLCollective:
    """The launch that makes `relation` of the buffer `source`; an LL collective takes as many of the free SMs as it has
    blocks to move, and shares them among several programs if there are more. Raises Illegal."""
    if relation.kind is Kind.GATHER and relation.summed:
        raise Illegal("a gather adds nothing")
    function, words = _FUNCTIONS[relation.kind], ll_words(relation.part, dtype)
    if not relation.ll:
        return LibraryCollective(function, relation.name, source)
    blocks = -(-words // _BLOCK)
    per_sm = min(_MOST_PER_SM, -(-blocks // max(1, free_sms)))
    programs = max(1, min(free_sms * per_sm, blocks))  # what does not fit at all is refuted
    return LLCollective(function, relation.name, source, words, programs, _BLOCK, per_sm)
