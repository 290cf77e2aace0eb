"""What a fence in inline assembly orders, read from its text.

Sources: PTX ISA 8.7, `membar/fence`, `fence.proxy`, `cp.async.bulk.wait_group`; the LLVM AMDGPU memory model of gfx942,
where a release writes back and an acquire invalidates, and the scope is in the bits sc0 and sc1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from tilelink.emulator.events import Scope


@dataclass(frozen=True, slots=True)
class OrderingFence:
    """Turns relaxed writes after it into releases, relaxed reads before it into acquires."""

    scope: Scope
    acquires: bool = True
    releases: bool = True


@dataclass(frozen=True, slots=True)
class ProxyFence:
    """What the program's threads see, its descriptor accesses see as well."""


@dataclass(frozen=True, slots=True)
class StoresAwaited:
    """All descriptor stores but the last `left` are complete."""

    left: int


@dataclass(frozen=True, slots=True)
class NoOrder:
    """Orders nothing that the detector models, such as a wait for the *source* of a descriptor store."""


Meaning = OrderingFence | ProxyFence | StoresAwaited | NoOrder

# a cluster is more than a block, but no program of Triton is in another one's cluster
_PTX_SCOPES = {"cta": Scope.CTA, "cluster": Scope.CTA, "gpu": Scope.GPU, "gl": Scope.GPU, "sys": Scope.SYSTEM}


@cache
def meaning(text: str) -> Meaning:
    """The meaning of one statement, such as `fence.acq_rel.sys`."""
    if match := re.fullmatch(r"fence(?:\.(?:sc|acq_rel|acquire|release))?\.(cta|cluster|gpu|sys)", text):
        return OrderingFence(_PTX_SCOPES[match[1]], ".release" not in text, ".acquire" not in text)
    if match := re.fullmatch(r"membar\.(cta|gl|sys)", text):
        return OrderingFence(_PTX_SCOPES[match[1]])
    if re.fullmatch(r"fence\.proxy\.async(\.global)?", text):
        return ProxyFence()
    if match := re.fullmatch(r"cp\.async\.bulk\.wait_group (\d+)", text):
        return StoresAwaited(int(match[1]))
    if match := re.fullmatch(r"buffer_(wbl2|inv)((?: sc[01])*)", text):
        return OrderingFence(_amd_scope(match[2]), acquires=match[1] == "inv", releases=match[1] == "wbl2")
    return NoOrder()


def _amd_scope(bits: str) -> Scope:
    if "sc1" not in bits:
        return Scope.CTA
    return Scope.SYSTEM if "sc0" in bits else Scope.GPU
